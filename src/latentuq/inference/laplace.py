"""Laplace's approximation: the Gaussian with a mode's height and curvature."""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class LaplaceFit(NamedTuple):
    """The Gaussian at a mode.

    Attributes:
        mean: The mode.
        precision: -Hessian of the log density there, repaired where it is not positive definite.
        factor: Lower Cholesky factor of the covariance.
        log_mass: Ln of the integral of the fitted unnormalised Gaussian.
        eigenvalues: Of -Hessian, ascending, before the repair: a negative one means a saddle.
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
        log_density_fn: Unnormalised log density of one point.
        mode: Where its gradient vanishes.
        floor: Smallest eigenvalue, relative to the largest magnitude; by default rounding level,
            dim times the machine epsilon.
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


@eqx.filter_jit
def lower_factor(root: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """The lower Cholesky factor of root root^T, without forming the product.

    By orthogonal triangularisation, which cannot fail where rounding makes the product indefinite.
    """
    upper = jnp.linalg.qr(root.T, mode="r")
    return (upper * jnp.where(jnp.diagonal(upper) < 0, -1, 1)[:, None]).T
