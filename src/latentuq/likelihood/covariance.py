"""C = S_noise + A S_model A^T, factored once per problem so that residuals can be whitened.

A whitening is a matrix W with W^T W = C^-1 over the observed data, and zero rows and columns for
the others: shapes stay fixed while masks vary; `at` leaves rows out. Which of the three forms is
used follows from shapes and kinds, so that new values do not recompile (but data whose only error
is a low-rank model error need the dense form).
"""

import abc
from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Bool, Float, Int

from latentuq.core.arrays import to_device
from latentuq.core.compilation import bounded_jit
from latentuq.core.errors import UserError
from latentuq.forward import Operator, to_matrix, transpose
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior import ModelError

# Predicted data are float32, with rounding errors of about 1e-7 of their size: where C knows
# them better than this, whitened residuals would be made of rounding errors.
_SMALLEST_RELATIVE_STD = 1e-5


class Whitening(eqx.Module):
    """A square root W of C^-1."""

    @abc.abstractmethod
    def whiten(self, v: Float[Array, "*data"]) -> Float[Array, " data"]:
        """W v."""

    @abc.abstractmethod
    def forward(self, operator: Operator, x: Float[Array, "*shape"]) -> Float[Array, " data"]:
        """W A x."""

    def at(self, data: Int[np.ndarray, " seen"], padding: Bool[np.ndarray, " seen"]) -> Self | None:
        """W with rows for all observed data, in this order, and for padding; None if W is dense."""
        return None


class DiagonalWhitening(Whitening):
    """W = diag(inverse_std): no matrix is formed."""

    inverse_std: Float[Array, " data"]

    def whiten(self, v: Float[Array, "*data"]) -> Float[Array, " data"]:
        return self.inverse_std * jnp.ravel(v)

    def forward(self, operator: Operator, x: Float[Array, "*shape"]) -> Float[Array, " data"]:
        return self.whiten(operator.apply(x))

    def at(self, data: Int[np.ndarray, " seen"], padding: Bool[np.ndarray, " seen"]) -> Self:
        return type(self)(_rows(self.inverse_std, data, padding))


class LowRankWhitening(Whitening):
    """W = (I - basis diag(shrinkage) basis^T) diag(inverse_std), for C = D + U U^T.

    The columns of `basis` are D^-1/2 U turned to be orthogonal, of squared lengths q, and
    shrinkage = (1 - 1/sqrt(1 + q)) / q: the Woodbury identity for a square root.
    """

    inverse_std: Float[Array, " data"]
    basis: Float[Array, "data rank"]
    shrinkage: Float[Array, " rank"]

    def whiten(self, v: Float[Array, "*data"]) -> Float[Array, " data"]:
        scaled = self.inverse_std * jnp.ravel(v)
        return scaled - self.basis @ (self.shrinkage * (scaled @ self.basis))

    def forward(self, operator: Operator, x: Float[Array, "*shape"]) -> Float[Array, " data"]:
        return self.whiten(operator.apply(x))

    def at(self, data: Int[np.ndarray, " seen"], padding: Bool[np.ndarray, " seen"]) -> Self:
        inverse_std = _rows(self.inverse_std, data, padding)
        return type(self)(inverse_std, _rows(self.basis, data, padding), self.shrinkage)


class DenseWhitening(Whitening):
    """W = L^-1 with C = L L^T.

    W A is kept as well: its entries are of the size of 1/std(model error) however small the noise,
    so that W A x keeps float32 accuracy, and one product replaces two.
    """

    matrix: Float[Array, "data data"]
    matrix_operator: Float[Array, "data pixels"]

    def whiten(self, v: Float[Array, "*data"]) -> Float[Array, " data"]:
        return self.matrix @ jnp.ravel(v)

    def forward(self, operator: Operator, x: Float[Array, "*shape"]) -> Float[Array, " data"]:
        return self.matrix_operator @ jnp.ravel(x)


class Factored(NamedTuple):
    """C, ready for use: computed in float64, kept in float32.

    Attributes:
        whitening: W.
        log_det: ln det C over the observed data.
        whitened_data: W y.
        model_variance: The diagonal of A S_model A^T.
        dominated: How many data the model error dominates: tr C^-1 A S_model A^T.
        matrix: A, in the dense form.
    """

    whitening: Whitening
    log_det: float
    whitened_data: Float[Array, " data"]
    model_variance: Float[np.ndarray, " data"]
    dominated: float
    matrix: Float[np.ndarray, "data pixels"] | None = None

    def at(
        self, data: Int[np.ndarray, " seen"], padding: Bool[np.ndarray, " seen"]
    ) -> "Factored | None":
        """The same with rows for some data alone, see `Whitening.at`."""
        whitening = self.whitening.at(data, padding)
        if whitening is None:
            return None
        whitened = _rows(self.whitened_data, data, padding)
        return self._replace(whitening=whitening, whitened_data=whitened)


def factor(
    operator: Operator,
    noise: GaussianNoise,
    model_error: ModelError,
    observed: Bool[np.ndarray, " data"],
    y: Float[np.ndarray, " data"],
    matrix: Float[np.ndarray, "data pixels"] | None = None,
) -> Factored:
    """Factors C over the observed data in the cheapest form that is exact.

    Args:
        operator: A, bound.
        noise: S_noise.
        model_error: S_model.
        observed: Which of the flattened data exist.
        y: The flattened data, with zeros where nothing is observed.
        matrix: A, if a call before has made it.

    Raises:
        UserError: C is singular to working precision.
    """
    if operator.disjoint and noise.factor is None:
        model_variance, scale = _disjoint_variance(operator, model_error)
        noise_variance = noise.variance(operator.output_shape)
        variance = noise_variance + model_variance
        singular = not np.all(variance[observed] > (_SMALLEST_RELATIVE_STD * scale[observed]) ** 2)
        if model_error.rank == 0:
            if singular:
                raise _singular(scale)
            return _factor_diagonal(variance, model_variance, observed, y)
        # Products with the factors cost 2 data x rank, a dense W costs data^2. Data without any
        # independent error are left to the dense form, which does not divide by it.
        if 2 * model_error.rank < observed.size and not singular:
            columns = np.asarray(_each(operator, model_error.factors), np.float64).T
            return _factor_low_rank(noise_variance, model_variance, columns, observed, y)
    matrix = to_matrix(operator) if matrix is None else matrix
    return _factor_dense(operator, noise, model_error, observed, y, matrix)


def pull_back(
    operator: Operator,
    noise_variance: Float[Array, "*data"],
    model_error: ModelError,
    gap: Float[Array, "*data"],
) -> Float[Array, "*shape"]:
    """S_model A^T C^-1 gap for a disjoint A and independent noise, by the Woodbury identity.

    Nothing is factored beforehand, so S_model may differ from call to call, under jit and vmap.

    Args:
        operator: A, bound and disjoint.
        noise_variance: The diagonal of S_noise, infinite where nothing is observed.
        model_error: S_model = D + F^T F, with its factors as rows.
        gap: In the data, zero where nothing is observed.
    """
    # Each column of A has one entry at most: A D A^T is diagonal, and A^T 1 reads the entries off.
    entries = transpose(operator, jnp.ones(operator.output_shape))
    precision = jnp.ravel(1 / (noise_variance + operator.apply(entries * model_error.variance)))
    rows = jax.vmap(lambda x: jnp.ravel(operator.apply(x)))(model_error.factors)
    gap = jnp.ravel(gap)
    common = jnp.zeros(0, gap.dtype)
    if model_error.rank:
        inner = jnp.eye(model_error.rank, dtype=gap.dtype) + (rows * precision) @ rows.T
        common = cho_solve(cho_factor(inner), rows @ (precision * gap))
    own = jnp.reshape(precision * (gap - common @ rows), operator.output_shape)
    return model_error.variance * transpose(operator, own) + jnp.tensordot(
        common, model_error.factors, 1
    )


def _disjoint_variance(
    operator: Operator, model_error: ModelError
) -> tuple[Float[np.ndarray, " data"], Float[np.ndarray, " data"]]:
    """The diagonal of A diag(variance) A^T, and |A| 1, for a disjoint A.

    Each column of A has one entry at most, which A^T 1 therefore reads off.
    """
    variance, scale = _variance_and_scale(operator, model_error.variance)
    return np.asarray(variance, np.float64).ravel(), np.asarray(scale, np.float64).ravel()


@bounded_jit
def _variance_and_scale(
    operator: Operator, variance: Float[Array, "*shape"]
) -> tuple[Float[Array, "*data"], Float[Array, "*data"]]:
    entries = transpose(operator, jnp.ones(operator.output_shape))
    return operator.apply(entries * variance), operator.apply(jnp.sign(entries))


@bounded_jit
def _each(operator: Operator, images: Float[Array, "n *shape"]) -> Float[Array, "n data"]:
    return jax.vmap(lambda x: jnp.ravel(operator.apply(x)))(images)


def _factor_diagonal(
    variance: np.ndarray, model_variance: np.ndarray, observed: np.ndarray, y: np.ndarray
) -> Factored:
    inverse_std, log_det = _invert(variance, observed)
    whitening = DiagonalWhitening(_float32(inverse_std))
    dominated = float(np.sum(inverse_std**2 * model_variance))
    return Factored(whitening, log_det, _float32(inverse_std * y), model_variance, dominated)


def _factor_low_rank(
    noise_variance: np.ndarray,
    model_variance: np.ndarray,
    columns: np.ndarray,
    observed: np.ndarray,
    y: np.ndarray,
) -> Factored:
    inverse_std, log_det = _invert(noise_variance + model_variance, observed)
    scaled_columns = inverse_std[:, None] * columns
    squares, rotation = np.linalg.eigh(scaled_columns.T @ scaled_columns)
    root = np.sqrt(1 + squares.clip(min=0))
    basis, shrinkage = scaled_columns @ rotation, 1 / (root * (root + 1))
    scaled = inverse_std * y
    # The diagonal of C^-1 = W^T W; squares are the q of the columns.
    shares = basis**2 @ (shrinkage * (2 - shrinkage * squares))
    precision = inverse_std**2 * (1 - shares)
    return Factored(
        LowRankWhitening(_float32(inverse_std), _float32(basis), _float32(shrinkage)),
        log_det + 2 * float(np.sum(np.log(root))),
        _float32(scaled - basis @ (shrinkage * (basis.T @ scaled))),
        model_variance + np.sum(columns**2, axis=1),
        float(np.sum(observed) - np.sum(noise_variance * precision)),
    )


def _factor_dense(
    operator: Operator,
    noise: GaussianNoise,
    model_error: ModelError,
    observed: np.ndarray,
    y: np.ndarray,
    whole: np.ndarray,
) -> Factored:
    half = whole * np.sqrt(np.asarray(model_error.variance, np.float64).ravel())
    if model_error.rank:
        factors = np.asarray(model_error.factors, np.float64).reshape(model_error.rank, -1)
        half = np.concatenate([half, whole @ factors.T], axis=1)
    model_variance = np.sum(half**2, axis=1)
    # From here on only the rows of data that exist.
    matrix, half = whole[observed], half[observed]
    covariance = half @ half.T
    del half
    noise_variance = noise.variance(operator.output_shape)[observed]
    rows = None if noise.factor is None else np.asarray(noise.factor, np.float64)[observed]
    if rows is None:
        covariance[np.diag_indices_from(covariance)] += noise_variance
    else:
        covariance += rows @ rows.T
    scale = np.sum(np.abs(matrix), axis=1)
    try:
        lower = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        raise _singular(scale) from None
    whitening = scipy.linalg.solve_triangular(lower, np.eye(len(lower)), lower=True)
    # The variance that rounding errors of the predicted data have in r, per datum.
    rounding = (_SMALLEST_RELATIVE_STD * whitening * scale) ** 2
    if not np.sum(rounding) <= len(lower):
        raise _singular(scale)
    size = observed.size
    spread_whitening = np.zeros((size, size), np.float32)
    spread_whitening[np.ix_(observed, observed)] = whitening
    spread_operator = np.zeros((size, matrix.shape[1]), np.float32)
    spread_operator[observed] = scipy.linalg.solve_triangular(lower, matrix, lower=True)
    whitened_data = np.zeros(size)
    whitened_data[observed] = whitening @ y[observed]
    noise_part = whitening**2 * noise_variance if rows is None else (whitening @ rows) ** 2
    return Factored(
        DenseWhitening(_float32(spread_whitening), _float32(spread_operator)),
        2 * float(np.sum(np.log(np.diag(lower)))),
        _float32(whitened_data),
        model_variance,
        float(len(lower) - np.sum(noise_part)),
        whole,
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


def _invert(variance: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, float]:
    """diag(variance)^-1/2 with zeros for missing data, and ln det over the others."""
    safe = np.where(observed, variance, 1.0)
    return np.where(observed, 1 / np.sqrt(safe), 0.0), float(np.sum(np.log(safe)))


def _rows(
    values: Float[Array, "data ..."],
    data: Int[np.ndarray, " seen"],
    padding: Bool[np.ndarray, " seen"],
) -> Float[Array, "seen ..."]:
    """Rows of an array, zero for padding; on the host, where an index is not compiled."""
    rows = np.asarray(values)[data]
    rows[padding] = 0
    return to_device(rows)


def _float32(values: np.ndarray) -> Float[Array, "..."]:
    return to_device(values, np.dtype(np.float32))
