"""The covariance of the generator's error, S_model: diagonal plus low rank."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.core.arrays import read_finite, to_device
from latentuq.core.errors import UserError

LOW_RANK, SIGNAL_DEPENDENT = "low-rank", "signal-dependent"
"""Names of two estimates; the second is made from the first."""


class ModelError(eqx.Module):
    """S_model = diag(variance) + sum_k factors[k] factors[k]^T over the pixels of one image.

    A scalar is a constant `variance` without factors; a full covariance has zero `variance` and
    its Cholesky columns as factors.

    With a `gain` the error of an image grows and shrinks with what the generator shows: its
    standard deviation is multiplied by the gain at that intensity, and images are drawn with
    T S_model T, T = diag(gain(g(u))). u is inferred with a gain, too, where each datum shows one
    pixel (`SignalDependentLikelihood`), and with S_model elsewhere.

    With `most_data` the n data that the error dominates count as n / (1 + n / most_data) of them,
    never more than `most_data`: the error is not quite Gaussian and its covariance not quite known,
    so that more data do not tell u ever more exactly. Images are drawn with the error as it is.

    Attributes:
        variance: The variance of every pixel's independent error.
        factors: The columns of the low-rank part, each an image.
        gain: The gain at intensities from 0 to 1 in equal steps, linear in between; it is 1
            everywhere if there is none.
        most_data: The limit to what dominated data count for, if there is one.
    """

    variance: Float[Array, "*shape"]
    factors: Float[Array, "rank *shape"]
    gain: Float[Array, " knots"] | None = None
    most_data: float | None = eqx.field(static=True, default=None)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.variance.shape

    @property
    def rank(self) -> int:
        return self.factors.shape[0]

    @property
    def std(self) -> Float[Array, "*shape"]:
        """Standard deviation of every pixel, both parts together."""
        return jnp.sqrt(self.variance + jnp.sum(self.factors**2, axis=0))

    def gain_at(self, decoded: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The gain of every pixel of a generated image."""
        if self.gain is None:
            return jnp.ones_like(decoded)
        knots = jnp.linspace(0, 1, len(self.gain), dtype=decoded.dtype)
        return jnp.interp(decoded, knots, self.gain)

    def inflated(self, dominated: float) -> "ModelError":
        """S_model so large that the data which it dominates count for no more than they should.

        Args:
            dominated: How many data this error dominates.
        """
        if self.most_data is None or not dominated > 0:
            return self
        inflation = math.sqrt(1 + dominated / self.most_data)
        return ModelError(
            to_device(inflation**2 * np.asarray(self.variance)),
            to_device(inflation * np.asarray(self.factors)),
        )

    def scaled(self, gain: Float[Array, "*shape"]) -> "ModelError":
        """T S_model T with T = diag(gain)."""
        return ModelError(gain**2 * self.variance, gain * self.factors)

    def sample(self, key: Key[Array, ""]) -> Float[Array, "*shape"]:
        """Draws n_model ~ N(0, S_model)."""
        # Drawn flat and at once: XLA compiles that several times faster.
        pixels = self.variance.size
        numbers = jax.random.normal(key, (pixels + self.rank,))
        own = jnp.sqrt(self.variance) * jnp.reshape(numbers[:pixels], self.shape)
        return own + jnp.tensordot(numbers[pixels:], self.factors, 1)

    def apply(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Multiplies an image by S_model."""
        axes = tuple(range(1, self.factors.ndim))
        return self.variance * x + jnp.tensordot(
            jnp.sum(self.factors * x, axis=axes), self.factors, 1
        )


def make_model_error(value: object, shape: Sequence[int]) -> ModelError:
    """Reads a standard deviation (scalar or image) or a covariance (pixels x pixels) as S_model."""
    shape = tuple(shape)
    pixels = int(np.prod(shape))
    given = read_finite(value, "model_error")
    no_factors = jnp.zeros((0, *shape), jnp.float32)
    if given.ndim == 0 or given.shape == shape:
        if np.any(given <= 0):
            raise UserError(
                f"model_error is a standard deviation and must be positive, not {given.min():g}."
            )
        return ModelError(jnp.asarray(np.broadcast_to(given**2, shape), jnp.float32), no_factors)
    if given.shape == (pixels, pixels):
        if not np.allclose(given, given.T, atol=1e-6 * np.abs(given).max()):
            raise UserError("model_error as a covariance must be symmetric, and this one is not.")
        try:
            cholesky = np.linalg.cholesky(given)
        except np.linalg.LinAlgError:
            raise UserError("model_error as a covariance must be positive definite.") from None
        factors = jnp.asarray(cholesky.T.reshape(pixels, *shape), jnp.float32)
        return ModelError(jnp.zeros(shape, jnp.float32), factors)
    raise UserError(
        f"model_error of shape {given.shape} is neither a number, nor an image of shape {shape}, "
        f"nor a covariance of shape {(pixels, pixels)}."
    )
