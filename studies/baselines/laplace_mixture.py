"""Laplace's approximation of many modes: a Gaussian at each, weighted by its mass.

The weight is that of the mode's height and width,

    ln w_k = ln p(mode_k) - ln q_k(mode_k) = ln p(mode_k) + (dim / 2) ln 2 pi - (1/2) ln det H_k,

the paper's formula (Boehm, Lanusse and Seljak 2019, appendix A). It is exact for Gaussians far
apart. Modes that overlap are counted more than once.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int, Key

from latentuq import UserError
from latentuq.core.compilation import bounded_jit
from latentuq.inference.mixture import Mixture
from latentuq.inference.result import Counts
from latentuq.inference.target import Target
from studies.baselines.result import BaselineResult, LogDensity
from studies.baselines.timing import Timer
from studies.laplace import LaplaceFit, laplace

# Squared Mahalanobis distance below which two minima are one: closer than their width.
_SAME = 1.0


def laplace_mixture(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    modes: Float[Array, "modes dim"],
    *,
    draws: int = 1000,
) -> BaselineResult:
    """Draws from the Gaussians at given modes; the evidence is the sum of their masses.

    Every given point becomes a component, so give each mode once; a saddle point keeps its length
    scales, as in `studies.laplace`.
    """
    number, dim = modes.shape
    timer = Timer()
    fits, log_densities = timer.run(fit_points, Target(log_density_fn, dim), modes)
    if not np.all(np.isfinite(log_densities)):
        bad = int(np.argmin(np.isfinite(log_densities)))
        raise UserError(f"The log density is not finite at mode {bad}.")
    mixture = mix(fits, jnp.ones(number, bool))
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


def mix(fits: LaplaceFit, kept: Bool[Array, " n"]) -> Mixture:
    """The mixture of the kept fits, weighted by mass; the others stay with weight zero.

    One shape for all answers: nothing compiles anew where another number of modes is found.
    """
    log_weights = jax.nn.log_softmax(jnp.where(kept, fits.log_mass, -jnp.inf))
    return Mixture(log_weights, fits.mean, fits.factor)


@bounded_jit
def sample_mixture(key: Key[Array, ""], mixture: Mixture, n: int) -> Float[Array, "n dim"]:
    """Independent draws, compiled."""
    return mixture.sample(key, n)


def distinct_minima(
    fits: LaplaceFit, log_densities: Float[Array, " n"]
) -> Int[np.ndarray, " minima"]:
    """Indices of separate minima of -ln p, deepest first.

    Points whose Hessian is not positive definite are left out. A point is another's copy if its
    squared Mahalanobis distance under the mean of both precisions is below one.
    """
    points, precisions = np.asarray(fits.mean), np.asarray(fits.precision)
    minima = np.isfinite(log_densities) & ~np.asarray(fits.repaired)
    kept: list[int] = []
    for index in np.argsort(-np.asarray(log_densities)):
        gaps = points[kept] - points[index]
        means = 0.5 * (precisions[kept] + precisions[index])
        distances = np.einsum("ki,kij,kj->k", gaps, means, gaps)
        if minima[index] and np.all(distances >= _SAME):
            kept.append(int(index))
    return np.array(kept, int)
