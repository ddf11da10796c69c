"""The data as a likelihood sees them: flattened, with the few kinds of A that programs know."""

from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from latentuq.core.arrays import to_device
from latentuq.core.compilation import bounded_jit
from latentuq.forward.gain import Gain
from latentuq.forward.matrix import Matrix
from latentuq.forward.operator import Operator, to_matrix, transpose
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior.model_error import ModelError

# Numbers of data that programs are compiled for: multiples of this part of the image's pixels.
_SIZES = 16
# Predicted data are float32, with rounding errors of about 1e-7 of their size: where C knows
# them better than this, whitened residuals would be made of rounding errors.
SMALLEST_RELATIVE_STD = 1e-5

_FLOAT = np.dtype(np.float32)


class ObservedData(eqx.Module):
    """y = A x + n, flattened to rows, some of which may be missing or only fill up the shape.

    Compiled programs depend on shapes and on the kind of `forward`. So that few programs serve
    all operators, A is a `Gain` if it only multiplies pixels, a `Matrix` if it mixes them, and
    the operator itself only where blocks of pixels are added up.

    Attributes:
        forward: A, bound.
        noise: The noise of every row.
        y: The data; zero where they do not count.
        counted: Which rows are data that exist.
        places: The place of every row in the flattened data of the problem.
    """

    forward: Operator
    noise: GaussianNoise
    y: Float[Array, " rows"]
    counted: Bool[Array, " rows"]
    places: Int[Array, " rows"]

    def predict(self, x: Float[Array, "*shape"]) -> Float[Array, " rows"]:
        """Computes A x."""
        return jnp.ravel(self.forward.apply(x))

    def pull_back(self, v: Float[Array, " rows"]) -> Float[Array, "*shape"]:
        """Computes A^T v."""
        return transpose(self.forward, v.reshape(self.forward.output_shape))

    def with_values(self, y: Float[Array, " data"]) -> Self:
        """The same with other values of the problem's flattened data."""
        values = jnp.where(self.counted, y[self.places], 0)
        return eqx.tree_at(lambda data: data.y, self, values)

    def pixels_that_matter(self) -> "Rows | None":
        """The pixels that data show, if each datum shows one and not all pixels are shown."""
        if not isinstance(self.forward, Gain):
            return None
        rows = pick_rows(np.asarray(self.counted), len(self.y))
        return rows if 0 < len(rows.places) < len(self.y) else None

    def at(self, rows: "Rows") -> Self:
        """The data that show some pixels, of an image that consists of these pixels alone."""
        assert isinstance(self.forward, Gain)
        factors = np.ravel(self.forward.pixel_factors())[rows.places]
        return type(self)(
            Gain(factors),
            self.noise.at(rows.places),
            rows.take(self.y),
            to_device(~rows.padding),
            to_device(np.asarray(self.places)[rows.places]),
        )


class Rows(NamedTuple):
    """Some rows of an array: their places, and which of them only fill up the shape."""

    places: Int[np.ndarray, " rows"]
    padding: Bool[np.ndarray, " rows"]

    def take(self, values: Float[Array, "all_rows ..."]) -> Float[Array, "rows ..."]:
        """Takes these rows of an array, zero for padding."""
        # On the host, where an index is not compiled.
        taken = np.asarray(values)[self.places]
        taken[self.padding] = 0
        return to_device(taken)


def pick_rows(observed: Bool[np.ndarray, " data"], pixels: int) -> Rows:
    """The rows of all data that exist, filled up to a multiple of a sixteenth of the pixels."""
    seen, step = np.flatnonzero(observed), -(-pixels // _SIZES)
    size = max(-(-len(seen) // step), 1) * step
    places = np.resize(seen, size) if len(seen) else np.zeros(size, int)
    return Rows(places, np.arange(size) >= len(seen))


def arrange_data(
    operator: Operator,
    noise: GaussianNoise,
    model_error: ModelError,
    y: Float[np.ndarray, "*data"],
) -> ObservedData:
    """Flattens the data and chooses the kind of A, so that C can be factored cheaply.

    The operator is bound, and y is NaN where nothing is observed.
    """
    observed = ~np.isnan(y).ravel()
    values, noise = np.nan_to_num(y).ravel(), noise.flattened()
    if operator.disjoint and noise.factor is None:
        factors = operator.pixel_factors()
        forward = operator if factors is None else Gain(factors)
        data = ObservedData(
            forward,
            noise,
            to_device(values, _FLOAT),
            to_device(observed),
            to_device(np.arange(y.size)),
        )
        if model_error.rank == 0:
            return data
        # Products with the factors of a low-rank error cost 2 data x rank, a dense W data^2. Data
        # without any independent error need the dense form, which does not divide by it.
        if 2 * model_error.rank < y.size:
            variance, scale = disjoint_variance(data, model_error)
            if is_regular(noise.variance((y.size,)) + variance, scale, observed):
                return data
    matrix = to_matrix(operator)
    rows = pick_rows(observed, matrix.shape[1])
    kept = np.where(rows.padding[:, None], 0, matrix[rows.places])
    return ObservedData(
        Matrix(kept).bind(operator.input_shape or ()),
        noise.at(rows.places),
        to_device(np.where(rows.padding, 0, values[rows.places]), _FLOAT),
        to_device(~rows.padding),
        to_device(rows.places),
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
def predict_each(data: ObservedData, images: Float[Array, "n *shape"]) -> Float[Array, "n rows"]:
    """Computes A x for many images."""
    return jax.vmap(data.predict)(images)
