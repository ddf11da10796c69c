"""Laplace's approximation of many modes: a Gaussian at each, weighted by its mass.

The weight is that of the mode's height and width,

    ln w_k = ln p(mode_k) - ln q_k(mode_k) = ln p(mode_k) + (dim / 2) ln 2 pi - (1/2) ln det H_k,

the paper's formula (Boehm, Lanusse and Seljak 2019, appendix A). It is exact for Gaussians far
apart. Modes that overlap are counted more than once.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int, Key

from latentuq import UserError
from latentuq.core.compilation import bounded_jit
from latentuq.inference.mixture import Mixture, lower_factor
from latentuq.inference.result import Counts
from latentuq.inference.target import Target
from studies.baselines.result import BaselineResult, LogDensity
from studies.baselines.timing import Timer

SAME = 1.0
"""The squared Mahalanobis distance below which two minima are one: closer than their width."""


class LaplaceFit(NamedTuple):
    """The Gaussian at a mode.

    Attributes:
        mean: The mode.
        precision: -Hessian of the log density there, repaired where it is not positive definite.
        factor: The lower Cholesky factor of the covariance.
        log_mass: Ln of the integral of the fitted unnormalised Gaussian.
        repaired: Whether an eigenvalue of -Hessian was not above the floor, as at a saddle.
    """

    mean: Float[Array, " dim"]
    precision: Float[Array, "dim dim"]
    factor: Float[Array, "dim dim"]
    log_mass: Float[Array, ""]
    repaired: Bool[Array, ""]


def laplace(log_density_fn: LogDensity, mode: Float[Array, " dim"]) -> LaplaceFit:
    """Fits N(mode, (-Hessian)^-1).

    A direction of negative curvature keeps its length scale: its eigenvalue is replaced by its
    magnitude, and magnitudes below the rounding level of the largest one by that level.
    """
    dim = mode.shape[0]
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
        repaired=~jnp.all(eigenvalues > lowest),
    )


def laplace_mixture(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    modes: Float[Array, "modes dim"],
    *,
    draws: int = 1000,
) -> BaselineResult:
    """Draws from the Gaussians at given modes; the evidence is the sum of their masses.

    Every given point becomes a component, so give each mode once; a saddle point keeps its length
    scales, see `laplace`.
    """
    number, dim = modes.shape
    timer = Timer()
    fits, log_densities = timer.run(fit_points, Target(log_density_fn, dim), modes)
    if not np.all(np.isfinite(log_densities)):
        bad = int(np.argmin(np.isfinite(log_densities)))
        raise UserError(f"The log density is not finite at mode {bad}.")
    mixture = mix(fits, np.arange(number))
    return timer.result(
        timer.run(sample_mixture, key, mixture, draws),
        Counts(forwards=number, hessians=number),
        logsumexp(fits.log_mass),
        weights=np.exp(mixture.log_weights),
        log_masses=fits.log_mass,
    )


@bounded_jit
def fit_points(
    target: Target, points: Float[Array, "n dim"]
) -> tuple[LaplaceFit, Float[Array, " n"]]:
    """Laplace's fit at each point, stacked, and ln p there: a Hessian and a forward each."""
    fits = jax.vmap(lambda point: laplace(target.log_density, point))(points)
    return fits, jax.vmap(target.log_density)(points)


def mix(fits: LaplaceFit, kept: Int[np.ndarray, " minima"]) -> Mixture:
    """The mixture of the kept fits, weighted by mass; the others stay with weight zero.

    One shape for all answers: nothing compiles anew where another number of modes is found.
    """
    some = jnp.zeros(len(fits.mean), bool).at[kept].set(True)
    log_weights = jax.nn.log_softmax(jnp.where(some, fits.log_mass, -jnp.inf))
    return Mixture(log_weights, fits.mean, fits.factor)


@bounded_jit
def sample_mixture(key: Key[Array, ""], mixture: Mixture, n: int) -> Float[Array, "n dim"]:
    """Independent draws, compiled."""
    return mixture.sample(key, n)


def distinct_minima(
    fits: LaplaceFit, log_densities: Float[Array, " n"]
) -> Int[np.ndarray, " minima"]:
    """Indices of separate minima of -ln p, deepest first.

    Points whose Hessian is not positive definite and copies of deeper points are left out.
    """
    minima = np.isfinite(log_densities) & ~np.asarray(fits.repaired)
    kept: list[int] = []
    for index in np.argsort(-np.asarray(log_densities)):
        if minima[index] and np.all(squared_distances(fits, kept, index) >= SAME):
            kept.append(int(index))
    return np.array(kept, int)


def squared_distances(
    fits: LaplaceFit, kept: Sequence[int] | Int[np.ndarray, " minima"], index: int
) -> Float[np.ndarray, " minima"]:
    """Squared Mahalanobis distances from one point, under the mean of both precisions."""
    points, precisions = np.asarray(fits.mean), np.asarray(fits.precision)
    gaps = points[kept] - points[index]
    means = 0.5 * (precisions[kept] + precisions[index])
    return np.einsum("ki,kij,kj->k", gaps, means, gaps)
