"""The covariance C = S_noise + A S_model A^T, factored so that residuals can be whitened.

A whitening is a matrix W with W^T W = C^-1 over the observed data, and zero rows and columns for
the others. Which of the two forms is used follows from shapes and kinds, so that new values do
not recompile (but data whose only error is a low-rank model error need the dense form).
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from latentuq.core.arrays import to_float32
from latentuq.core.errors import UserError
from latentuq.forward.matrix import Matrix
from latentuq.likelihood.data import (
    SMALLEST_RELATIVE_STD,
    ObservedData,
    disjoint_variance,
    is_regular,
    predict_each,
)
from latentuq.prior.model_error import ModelError


class Whitening(eqx.Module):
    """A square root W of C^-1."""

    @abc.abstractmethod
    def whiten(self, v: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """Computes W v."""

    def forward(self, data: ObservedData, x: Float[Array, "*shape"]) -> Float[Array, " rows"]:
        """Computes W A x."""
        return self.whiten(data.predict(x))


class LowRankWhitening(Whitening):
    """W = (I - basis diag(shrinkage) basis^T) diag(inverse_std), for C = D + U U^T.

    The columns of `basis` are D^-1/2 U turned to be orthogonal, of squared lengths q, and
    shrinkage = (1 - 1/sqrt(1 + q)) / q: the Woodbury identity for a square root. Without any
    columns W is diagonal.
    """

    inverse_std: Float[Array, " rows"]
    basis: Float[Array, "rows rank"]
    shrinkage: Float[Array, " rank"]

    def whiten(self, v: Float[Array, " rows"]) -> Float[Array, " rows"]:
        scaled = self.inverse_std * v
        return scaled - self.basis @ (self.shrinkage * (scaled @ self.basis))


class DenseWhitening(Whitening):
    """W = L^-1 with C = L L^T.

    W A is kept as well: its entries are of the size of 1/std(model error) however small the noise,
    so that W A x keeps float32 accuracy, and one product replaces two.
    """

    matrix: Float[Array, "rows rows"]
    matrix_operator: Float[Array, "rows pixels"]

    def whiten(self, v: Float[Array, " rows"]) -> Float[Array, " rows"]:
        return self.matrix @ v

    def forward(self, data: ObservedData, x: Float[Array, "*shape"]) -> Float[Array, " rows"]:
        return self.matrix_operator @ jnp.ravel(x)


class Factored(NamedTuple):
    """The covariance C, ready for use: computed in float64, kept in float32.

    Attributes:
        whitening: A square root W of C^-1.
        log_det: ln det C over the observed data.
        whitened_data: W y.
        model_variance: The diagonal of A S_model A^T.
        dominated: How many data the model error dominates: tr C^-1 A S_model A^T.
    """

    whitening: Whitening
    log_det: float
    whitened_data: Float[Array, " rows"]
    model_variance: Float[np.ndarray, " rows"]
    dominated: float


def factor(data: ObservedData, model_error: ModelError) -> Factored:
    """Factors C over the data that count, in the form that the kind of A allows.

    Raises:
        UserError: C is singular to working precision.
    """
    if isinstance(data.forward, Matrix):
        return _factor_dense(data, model_error)
    return _factor_low_rank(data, model_error)


def _factor_low_rank(data: ObservedData, model_error: ModelError) -> Factored:
    counted, y = np.asarray(data.counted), np.asarray(data.y, np.float64)
    noise_variance = data.noise.variance(y.shape)
    own_variance, scale = disjoint_variance(data, model_error)
    variance = noise_variance + own_variance
    if not is_regular(variance, scale, counted):
        raise _singular(scale * np.asarray(data.units, np.float64))
    safe = np.where(counted, variance, 1.0)
    inverse_std = np.where(counted, 1 / np.sqrt(safe), 0.0)
    columns = np.asarray(predict_each(data, model_error.factors), np.float64).T
    scaled_columns = inverse_std[:, None] * columns
    squares, rotation = np.linalg.eigh(scaled_columns.T @ scaled_columns)
    root = np.sqrt(1 + squares.clip(min=0))
    basis, shrinkage = scaled_columns @ rotation, 1 / (root * (root + 1))
    scaled = inverse_std * y
    # The diagonal of C^-1 = W^T W; squares are the q of the columns.
    shares = basis**2 @ (shrinkage * (2 - shrinkage * squares))
    precision = inverse_std**2 * (1 - shares)
    return Factored(
        LowRankWhitening(to_float32(inverse_std), to_float32(basis), to_float32(shrinkage)),
        float(np.sum(np.log(safe))) + 2 * float(np.sum(np.log(root))),
        to_float32(scaled - basis @ (shrinkage * (basis.T @ scaled))),
        own_variance + np.sum(columns**2, axis=1),
        float(np.sum(counted) - np.sum(noise_variance * precision)),
    )


def _factor_dense(data: ObservedData, model_error: ModelError) -> Factored:
    assert isinstance(data.forward, Matrix)
    # Only the rows of data that exist; each array is dropped as soon as it has served.
    counted, size = np.asarray(data.counted), data.y.size
    units = np.asarray(data.units, np.float64)[counted]
    matrix = np.asarray(data.forward.values, np.float64)[counted]
    scale = np.sum(np.abs(matrix), axis=1)
    half = matrix * np.sqrt(np.asarray(model_error.variance, np.float64).ravel())
    covariance = half @ half.T
    del half
    if model_error.rank:
        factors = np.asarray(model_error.factors, np.float64).reshape(model_error.rank, -1)
        columns = matrix @ factors.T
        covariance += columns @ columns.T
    model_variance = np.zeros(size)
    model_variance[counted] = np.diag(covariance)
    noise_variance = data.noise.variance((size,))[counted]
    noise_factor = data.noise.factor
    rows = None if noise_factor is None else np.asarray(noise_factor, np.float64)[counted]
    if rows is None:
        covariance[np.diag_indices_from(covariance)] += noise_variance
    else:
        covariance += rows @ rows.T
    try:
        lower = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        raise _singular(scale * units) from None
    del covariance
    whitened_matrix = scipy.linalg.solve_triangular(lower, matrix, lower=True)
    del matrix
    spread_operator = np.zeros((size, whitened_matrix.shape[1]), np.float32)
    spread_operator[counted] = whitened_matrix
    del whitened_matrix
    log_det = 2 * float(np.sum(np.log(np.diag(lower))))
    whitening = scipy.linalg.solve_triangular(lower, np.eye(len(lower)), lower=True)
    del lower
    squares = np.einsum("ij,ij->j", whitening, whitening)
    # The variance that rounding errors of the predicted data have in r, per datum.
    if not squares @ (SMALLEST_RELATIVE_STD * scale) ** 2 <= len(scale):
        raise _singular(scale * units)
    noise_part = squares @ noise_variance if rows is None else np.sum((whitening @ rows) ** 2)
    spread_whitening = np.zeros((size, size), np.float32)
    spread_whitening[np.ix_(counted, counted)] = whitening
    whitened_data = np.zeros(size)
    whitened_data[counted] = whitening @ np.asarray(data.y, np.float64)[counted]
    return Factored(
        DenseWhitening(to_float32(spread_whitening), to_float32(spread_operator)),
        log_det,
        to_float32(whitened_data),
        model_variance,
        float(len(scale) - noise_part),
    )


def _singular(scale: np.ndarray) -> UserError:
    """Says that C claims to know some combination of the data beyond float32 rounding.

    Args:
        scale: |A| 1, the size of the data that images within [0, 1] can give.
    """
    suggestion = float(f"{0.01 * (np.max(scale, initial=0.0) or 1.0):.1g}")
    return UserError(
        "The covariance of the data is singular: with this little noise some combinations of them"
        " are known beyond rounding error; state the instrument's noise, or add some, for instance"
        f" a standard deviation of {suggestion:g}."
    )
