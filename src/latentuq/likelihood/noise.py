"""Gaussian noise on the data: one level, a level per datum, or a full covariance."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Key

from latentuq.core.arrays import read_finite, to_float32
from latentuq.core.errors import UserError
from latentuq.core.modules import with_fields


class GaussianNoise(eqx.Module):
    """n ~ N(0, S_noise), S_noise = diag(std^2) or factor factor^T.

    `std` is one number or one per datum; `factor`, the lower Cholesky factor over the flattened
    data, is None for independent noise.
    """

    std: Float[Array, "..."]
    factor: Float[Array, "rows data"] | None

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
        values = read_finite(value, f"The noise {name}", squared=name != "std")
        if name == "covariance":
            self.factor = jnp.asarray(_cholesky(values), jnp.float32)
            values = np.diag(values)
        else:
            self.factor = None
        if np.any(values < 0):
            raise UserError(f"The noise {name} cannot be negative: {values.min():g}.")
        std = values if name == "std" else np.sqrt(values)
        self.std = to_float32(std)

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuses data of a shape that the noise does not describe."""
        size = int(np.prod(shape))
        if self.factor is not None and self.factor.shape[0] != size:
            raise UserError(
                f"The noise covariance has {self.factor.shape[0]} rows, but there are {size} data."
            )
        if self.factor is None and self.std.shape not in ((), shape):
            raise UserError(
                f"The noise has shape {self.std.shape}, but the data have shape {shape}."
            )

    def in_units(self, units: Float[np.ndarray, " data"]) -> "GaussianNoise":
        """The noise of flattened data that are measured in units of their own."""
        std = np.broadcast_to(np.asarray(self.std, np.float64).ravel(), units.shape) / units
        factor = self.factor
        if factor is not None:
            factor = to_float32(np.asarray(factor, np.float64) / units[:, None])
        return with_fields(self, std=to_float32(std), factor=factor)

    def variance(self, shape: tuple[int, ...]) -> Float[np.ndarray, " data"]:
        """The diagonal of S_noise for data of one shape, flattened, in float64."""
        variance = np.asarray(self.std, np.float64).ravel() ** 2
        return np.broadcast_to(variance, (int(np.prod(shape)),))

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*data"]:
        """Draws n ~ N(0, S_noise)."""
        # Drawn flat: XLA compiles that several times faster than a shape.
        if self.factor is not None:
            normal = jax.random.normal(key, (self.factor.shape[1],))
            return (self.factor @ normal).reshape(shape)
        return self.std * jax.random.normal(key, (math.prod(shape),)).reshape(shape)

    def parameters(self) -> dict[str, Any]:
        """The arguments that make this noise anew, which problem files hold."""
        if self.factor is None:
            return {"std": self.std}
        factor = np.asarray(self.factor, np.float64)
        return {"covariance": factor @ factor.T}

    def __repr__(self) -> str:
        if self.factor is not None:
            return f"GaussianNoise(covariance {'x'.join(map(str, self.factor.shape))})"
        if self.std.ndim:
            return f"GaussianNoise(std {'x'.join(map(str, self.std.shape))})"
        traced = isinstance(self.std, Tracer)
        return f"GaussianNoise({'traced' if traced else format(float(self.std), 'g')})"


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
