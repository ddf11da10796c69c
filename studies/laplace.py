"""Laplace's approximation: the Gaussian with a mode's height and curvature."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from latentuq.inference.mixture import lower_factor


class LaplaceFit(NamedTuple):
    """The Gaussian at a mode.

    Attributes:
        mean: The mode.
        precision: -Hessian of the log density there, repaired where it is not positive definite.
        factor: The lower Cholesky factor of the covariance.
        log_mass: Ln of the integral of the fitted unnormalised Gaussian.
        eigenvalues: The eigenvalues of -Hessian, ascending, before the repair; a negative one
            means a saddle.
        repaired: Whether an eigenvalue was not above the floor.
    """

    mean: Float[Array, " dim"]
    precision: Float[Array, "dim dim"]
    factor: Float[Array, "dim dim"]
    log_mass: Float[Array, ""]
    eigenvalues: Float[Array, " dim"]
    repaired: Bool[Array, ""]


def laplace(
    log_density_fn: Callable[[Float[Array, " dim"]], Float[Array, ""]],
    mode: Float[Array, " dim"],
    floor: float | None = None,
) -> LaplaceFit:
    """Fits N(mode, (-Hessian)^-1).

    ln mass = ln p(mode) + (dim / 2) ln 2 pi - (1/2) ln det precision.

    A direction of negative curvature keeps its length scale: its eigenvalue is replaced by its
    magnitude, and magnitudes below the floor by the floor.

    Args:
        log_density_fn: The unnormalised log density of one point.
        mode: The point where its gradient vanishes.
        floor: The smallest eigenvalue, relative to the largest magnitude; by default the rounding
            level, dim times the machine epsilon.
    """
    dim = mode.shape[0]
    if floor is None:
        floor = dim * float(jnp.finfo(mode.dtype).eps)
    eigenvalues, vectors = jnp.linalg.eigh(-jax.hessian(log_density_fn)(mode))
    magnitudes = jnp.abs(eigenvalues)
    lowest = floor * jnp.max(magnitudes)
    positive = jnp.maximum(magnitudes, lowest)
    log_mass = log_density_fn(mode) + 0.5 * (
        dim * math.log(2 * math.pi) - jnp.sum(jnp.log(positive))
    )
    return LaplaceFit(
        mean=mode,
        precision=(vectors * positive) @ vectors.T,
        factor=lower_factor(vectors / jnp.sqrt(positive)),
        log_mass=log_mass,
        eigenvalues=eigenvalues,
        repaired=~jnp.all(eigenvalues > lowest),
    )
