"""Gaussian noise on the data: one level, a level per datum, or a full covariance."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.errors import UserError


class GaussianNoise(eqx.Module):
    """n ~ N(0, S_noise), S_noise = diag(std^2) or factor factor^T.

    `std` is one number or an array of the data's shape; `factor` is the lower Cholesky factor of
    a covariance over the flattened data. One of the two is None.
    """

    std: Float[Array, "*data"] | None
    factor: Float[Array, "data data"] | None

    def __init__(self, std: object = None, *, variance: object = None, covariance: object = None):
        """Reads exactly one of the three.

        Args:
            std: Standard deviation: a number, or one per datum; 0 means no noise.
            variance: Its square, the same way.
            covariance: Positive definite matrix over the data, flattened row by row.
        """
        given = {"std": std, "variance": variance, "covariance": covariance}
        named = {name: value for name, value in given.items() if value is not None}
        if len(named) != 1:
            raise UserError(
                "GaussianNoise takes one of std, variance and covariance, not"
                f" {' and '.join(named) or 'none'}."
            )
        ((name, value),) = named.items()
        values = _finite(value, name)
        self.std = self.factor = None
        if name == "covariance":
            self.factor = jnp.asarray(_cholesky(values), jnp.float32)
            return
        if np.any(values < 0):
            raise UserError(f"The noise {name} cannot be negative: {values.min():g}.")
        self.std = jnp.asarray(values if name == "std" else np.sqrt(values), jnp.float32)

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuses data of a shape that the noise does not describe."""
        if self.std is not None and self.std.shape not in ((), shape):
            raise UserError(
                f"The noise has shape {self.std.shape}, but the data have shape {shape}."
            )
        size = int(np.prod(shape))
        if self.factor is not None and self.factor.shape[0] != size:
            raise UserError(
                f"The noise covariance has {self.factor.shape[0]} rows, but there are {size} data."
            )

    def variance(self, shape: tuple[int, ...]) -> Float[np.ndarray, " data"]:
        """The diagonal of S_noise for data of one shape, flattened, in float64."""
        if self.std is None:
            return np.sum(np.asarray(self.factor, np.float64) ** 2, axis=1)
        return np.broadcast_to(np.asarray(self.std, np.float64) ** 2, shape).ravel()

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*data"]:
        """Draws n ~ N(0, S_noise)."""
        normal = jax.random.normal(key, shape)
        if self.std is not None:
            return self.std * normal
        return (self.factor @ normal.ravel()).reshape(shape)

    def __repr__(self) -> str:
        if self.std is None:
            return f"GaussianNoise(covariance {'x'.join(map(str, np.shape(self.factor)))})"
        if self.std.ndim:
            return f"GaussianNoise(std {'x'.join(map(str, self.std.shape))})"
        traced = isinstance(self.std, jax.core.Tracer)
        return f"GaussianNoise({'traced' if traced else format(float(self.std), 'g')})"


def _finite(value: object, name: str) -> Float[np.ndarray, "..."]:
    try:
        values = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"The noise {name} must be made of numbers, not {value!r}.") from None
    if not np.all(np.isfinite(values)):
        bad = values[~np.isfinite(values)].flat[0]
        raise UserError(f"The noise {name} contains {bad}; mark missing data by NaN in y instead.")
    return values


def _cholesky(covariance: Float[np.ndarray, "data data"]) -> Float[np.ndarray, "data data"]:
    if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
        raise UserError(f"A noise covariance is a square matrix, not of shape {covariance.shape}.")
    if not np.allclose(covariance, covariance.T, rtol=0, atol=1e-6 * np.abs(covariance).max()):
        raise UserError("The noise covariance must be symmetric, and this one is not.")
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        smallest = np.linalg.eigvalsh(covariance)[0]
        raise UserError(
            "The noise covariance must be positive definite, but its smallest eigenvalue is"
            f" {smallest:.2g}."
        ) from None
