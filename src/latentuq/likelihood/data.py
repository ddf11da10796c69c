"""The data as a likelihood sees them: flattened, of about size one, with few kinds of A."""

import os
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from latentuq.core.arrays import to_device, to_float32
from latentuq.core.compilation import bounded_jit
from latentuq.core.errors import UserError
from latentuq.forward.gain import Gain
from latentuq.forward.matrix import Matrix
from latentuq.forward.operator import Operator, to_matrix, transpose
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior.model_error import ModelError

# Predicted data are float32, with rounding errors of about 1e-7 of their size: where C knows
# them better than this, whitened residuals would be made of rounding errors.
SMALLEST_RELATIVE_STD = 1e-5
# The powers of two that float32 holds together with their inverses.
_LARGEST_EXPONENT = 126

# The GB that a problem may take, and those of the compiled programs that make it.
_MOST_MEMORY = 8.0
_PROGRAMS = 0.05


class ObservedData(eqx.Module):
    """y = A x + n, flattened to rows, each measured in a unit of its own; some may be missing.

    Compiled programs depend on shapes and on the kind of `forward`. So that few programs serve
    all operators, A is a `Gain` if it only multiplies pixels, a `Matrix` if it mixes them, and
    the operator itself only where blocks of pixels are added up. Missing data keep their rows,
    so that one program serves all masks.

    Squares of data in watts do not fit float32. So each row has a unit, a power of two of the size
    of the row, and all the rest of a likelihood knows y, A x and the noise in these units alone.
    Dividing by a power of two is exact: problems in other units have the same posterior.

    Attributes:
        forward: A, bound, in the rows' units.
        noise: The noise of every row, in the row's unit.
        y: The data, in the rows' units; zero where they do not count.
        counted: Which rows are data that exist.
        units: The unit of every row.
    """

    forward: Operator
    noise: GaussianNoise
    y: Float[Array, " rows"]
    counted: Bool[Array, " rows"]
    units: Float[Array, " rows"]

    def predict(self, x: Float[Array, "*shape"]) -> Float[Array, " rows"]:
        """Computes A x."""
        return jnp.ravel(self.forward.apply(x))

    def pull_back(self, v: Float[Array, " rows"]) -> Float[Array, "*shape"]:
        """Computes A^T v."""
        return transpose(self.forward, v.reshape(self.forward.output_shape))

    def with_values(self, y: Float[Array, " rows"]) -> Self:
        """The same with other data, which are given in the units of the problem."""
        values = jnp.where(self.counted, y / self.units, 0)
        return eqx.tree_at(lambda data: data.y, self, values)


def arrange_data(
    operator: Operator,
    noise: GaussianNoise,
    model_error: ModelError,
    y: Float[np.ndarray, "*data"],
) -> ObservedData:
    """Flattens the data, measures them, and chooses the kind of A, so that C is factored cheaply.

    The operator is bound, and y is NaN where nothing is observed.

    Raises:
        UserError: The data mix pixels, and more of them than memory allows.
    """
    if operator.disjoint and noise.factor is None:
        factors = operator.pixel_factors()
        if factors is None:
            units = _measure(np.asarray(_block_sums(operator)), noise)
            forward = Gain(1 / units) @ operator
        else:
            units = _measure(np.abs(factors), noise)
            forward = Gain(factors / units)
        data = _in_units(forward, noise, y, units)
        if model_error.rank == 0:
            return data
        # Products with the factors of a low-rank error cost 2 data x rank, a dense W data^2. Data
        # without any independent error need the dense form, which does not divide by it.
        if 2 * model_error.rank < y.size:
            variance, scale = disjoint_variance(data, model_error)
            total = data.noise.variance((y.size,)) + variance
            if is_regular(total, scale, np.asarray(data.counted)):
                return data
    _check_memory(y.size, int(np.prod(operator.input_shape or ())), int(np.sum(~np.isnan(y))))
    matrix = to_matrix(operator)
    units = _measure(np.sum(np.abs(matrix), axis=1).reshape(y.shape), noise)
    matrix /= units.reshape(-1, 1)
    forward = Matrix(matrix).bind(operator.input_shape or ())
    return _in_units(forward, noise, y, units)


def dense_memory(data: int, pixels: int, observed: int) -> float:
    """Estimates the GB at the peak of making a problem whose data mix pixels.

    While A is made explicit, all its rows are there in float64, twice, and in float32, twice; while
    C is factored, A in float32, the observed rows in float64, and C with three of its factors.
    """
    explicit = 25 * data * pixels
    factored = 4 * data * pixels + 8 * observed * pixels + 32 * observed**2
    return _PROGRAMS + max(explicit, factored) / 1e9


def _check_memory(data: int, pixels: int, observed: int) -> None:
    needed, given = dense_memory(data, pixels, observed), os.environ.get("LATENTUQ_MEMORY")
    try:
        limit = _MOST_MEMORY if given is None else float(given)
    except ValueError:
        raise UserError(f"LATENTUQ_MEMORY is a number of GB, not {given!r}.") from None
    if not needed <= limit:
        raise UserError(
            f"Data that mix {pixels} pixels need dense matrices: {data} data would take about"
            f" {needed:.2g} GB, and the limit is {limit:g} GB; crop the image, use a prior of"
            " smaller images, or set LATENTUQ_MEMORY to the GB that may be used."
        )


def _measure(reach: Float[np.ndarray, "*data"], noise: GaussianNoise) -> Float[np.ndarray, "*data"]:
    """The power of two next to |A| 1 (`reach`) or to the noise of a datum, the larger of them."""
    size = np.maximum(reach, np.sqrt(noise.variance(reach.shape)).reshape(reach.shape))
    exponents = np.round(np.log2(np.where(size > 0, size, 1)))
    return np.exp2(np.clip(exponents, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))


def _in_units(
    forward: Operator,
    noise: GaussianNoise,
    y: Float[np.ndarray, "*data"],
    units: Float[np.ndarray, "*data"],
) -> ObservedData:
    """The data, flattened and in their units; `forward` is in them already."""
    values, units = (y / units).ravel(), units.ravel()
    observed = ~np.isnan(values)
    return ObservedData(
        forward,
        noise.in_units(units),
        to_float32(np.where(observed, values, 0)),
        to_device(observed),
        to_float32(units),
    )


def is_regular(
    variance: Float[np.ndarray, " rows"],
    scale: Float[np.ndarray, " rows"],
    counted: Bool[np.ndarray, " rows"],
) -> bool:
    """Whether every datum has an independent error that is larger than rounding errors."""
    return bool(np.all(variance[counted] > (SMALLEST_RELATIVE_STD * scale[counted]) ** 2))


def disjoint_variance(
    data: ObservedData, model_error: ModelError
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """The diagonal of A diag(variance) A^T, and |A| 1, for a disjoint A.

    Each column of A has one entry at most, which A^T 1 therefore reads off.
    """
    variance, scale = _variance_and_scale(data, model_error.variance)
    return np.asarray(variance, np.float64), np.asarray(scale, np.float64)


@bounded_jit
def _variance_and_scale(
    data: ObservedData, variance: Float[Array, "*shape"]
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    entries = data.pull_back(jnp.ones(data.y.shape))
    return data.predict(entries * variance), data.predict(jnp.sign(entries))


@bounded_jit
def _block_sums(operator: Operator) -> Float[Array, "*data"]:
    """|A| 1 for a disjoint A."""
    return operator.apply(jnp.sign(transpose(operator, jnp.ones(operator.output_shape))))


@bounded_jit
def predict_each(data: ObservedData, images: Float[Array, "n *shape"]) -> Float[Array, "n rows"]:
    """Computes A x for many images."""
    return jax.vmap(data.predict)(images)
