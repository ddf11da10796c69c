"""A proposal for curved posteriors: a mixture fitted to Hamiltonian particles and to draws."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.special
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Key

from latentuq.core.arrays import to_device
from latentuq.core.batches import padded
from latentuq.core.cores import on_cores
from latentuq.core.randomness import host_generator
from latentuq.inference.el2o import EL2OFit
from latentuq.inference.em import fit_mixture
from latentuq.inference.importance import effective_sample_size, systematic_index
from latentuq.inference.mixture import Mixture
from latentuq.inference.moves import Moved, move
from latentuq.inference.pool import Pool
from latentuq.inference.target import Counts, Target

FIT_COMPONENTS = 16
"""The number of components of a fit."""

# The proposal is made of copies of a fit with these widths and shares: the wide one gives it the
# tails that a fit to few draws lacks.
_WIDTHS = (1.1, 1.8)
_SHARES = (0.7, 0.3)

PROPOSAL_COMPONENTS = FIT_COMPONENTS * len(_WIDTHS)
"""The number of components of a proposal."""

# There are so few particles that the activations of a small network stay in the processor's cache;
# they move in groups, at the same time. A bout is so many moves, with so many stops each and so
# many gradients to the next. Moves are long because short ones reach the arms of a posterior only
# by diffusion.
_PARTICLES = 256
_GROUPS = 2
_MOVES = 2
_STOPS = 2
_LEAPS = 8
# The step size of the first moves, in units of the components' widths.
_FIRST_STEP = 0.3
# A fit sees at most so many points, so many resampled draws among them for each independent draw
# that the pool is worth, and takes so many iterations.
_MOST_POINTS = 4096
_DRAWS_PER_WORTH = 4
_ITERATIONS = 20
# A component with less than this part of an equal share is moved to where points are.
_WEAK_SHARE = 0.3
# A mode that has less of the mass gets no more particles for it.
_LEAST_LOG_MASS = -12.0


class Fit(NamedTuple):
    """A mixture, and what the moves that led to it leave to the next ones.

    Attributes:
        mixture: The fitted mixture.
        step: The step size that suited the moves.
        places: The points to which the last bouts of the climbs have led, the latest climb first.
    """

    mixture: Mixture
    step: float
    places: Float[np.ndarray, "n dim"]


def start_fit(mixture: Mixture) -> Fit:
    """Takes the first components of a mixture, heaviest first, or all of them and padding."""
    missing = max(0, FIT_COMPONENTS - mixture.components)
    log_weights = np.asarray(mixture.log_weights)[:FIT_COMPONENTS]
    log_weights = log_weights - scipy.special.logsumexp(log_weights)
    eye = np.tile(np.eye(mixture.dim, dtype=mixture.means.dtype), (missing, 1, 1))
    fit = Mixture(
        to_device(np.pad(log_weights, (0, missing), constant_values=-np.inf)),
        to_device(np.pad(np.asarray(mixture.means)[:FIT_COMPONENTS], ((0, missing), (0, 0)))),
        to_device(np.concatenate([np.asarray(mixture.factors)[:FIT_COMPONENTS], eye])),
        mixture.degrees,
    )
    return Fit(fit, _FIRST_STEP, np.zeros((0, mixture.dim), mixture.means.dtype))


def widened(
    fit: Mixture, widths: Sequence[float] = _WIDTHS, shares: Sequence[float] = _SHARES
) -> Mixture:
    """Makes a mixture of wider copies of another, each with its share."""
    log_weights, factors = np.asarray(fit.log_weights), np.asarray(fit.factors)
    return Mixture(
        to_device(np.concatenate([log_weights + math.log(share) for share in shares])),
        to_device(np.tile(np.asarray(fit.means), (len(widths), 1))),
        to_device(np.concatenate([width * factors for width in widths]), factors.dtype),
        fit.degrees,
    )


def climb(
    key: Key[Array, ""], target: Target, fit: Fit, pool: Pool, modes: Mixture, bouts: int
) -> Fit:
    """Resamples the draws, moves them on the posterior, and fits the places that they reach.

    Light modes get more draws than their mass says. Weights so uneven that few draws would be left
    are tempered. The fit sees resampled draws as well, the more the better they are: a particle
    stays in its mode, so that few of them know little of what the draws know of the modes' shares.
    Places that earlier climbs have reached fill what room is left. `modes` has a component for each
    mode. Of several bouts of moves, the places of the last one are fitted.
    """
    rng, (mixture, step, earlier) = host_generator(key), fit
    lifted = lift_light_modes(pool.log_weights, log_responsibilities(modes, pool.points))
    log_weights = _tempered(lifted, _PARTICLES / 4)
    particles = pool.points[systematic_index(rng, log_weights, _PARTICLES)]
    places, factor = particles, _typical_factor(mixture)
    for bout in range(bouts):
        moved = _move(jax.random.fold_in(key, bout), target, particles, factor, step)
        places = np.concatenate([each.points for each in moved], axis=1).reshape(-1, target.dim)
        particles = np.concatenate([each.last for each in moved])
        step = float(np.exp(np.mean([np.log(each.step) for each in moved])))
    extra = int(_DRAWS_PER_WORTH * effective_sample_size(lifted))
    extra = min(_MOST_POINTS - len(places), extra)
    chosen = pool.points[systematic_index(rng, log_weights, extra)]
    points = np.concatenate([places, chosen, earlier])[:_MOST_POINTS]
    places = np.concatenate([places, earlier])[:_MOST_POINTS]
    return Fit(_refit(rng, mixture, points), step, places)


def _move(
    key: Key[Array, ""],
    target: Target,
    particles: Float[np.ndarray, "particles dim"],
    factor: Float[Array, "dim dim"],
    step: float,
) -> list[Moved]:
    """Moves each group of particles for one bout."""

    def one(group: tuple[int, np.ndarray]) -> Moved:
        number, members = group
        return move(
            jax.random.fold_in(key, number),
            target,
            to_device(members),
            factor,
            moves=_MOVES,
            stops=_STOPS,
            leaps=_LEAPS,
            step=to_device(step, particles.dtype),
        )

    return on_cores(one, enumerate(np.split(particles, _GROUPS)))


def climb_counts(bouts: int) -> Counts:
    """Counts the evaluations of one climb."""
    return Counts(gradients=bouts * _PARTICLES * (_MOVES * _STOPS * _LEAPS + 1))


def replace_weakest(fit: Fit, gaussians: list[EL2OFit], shares: Float[np.ndarray, " new"]) -> Fit:
    """Puts Gaussians in the place of the weakest components.

    The shares are relative to all that the fit holds already. Places so far are forgotten: none of
    them is near the Gaussians, which would count for little.
    """
    old = fit.mixture
    log_weights, means, factors = map(np.array, (old.log_weights, old.means, old.factors))
    slots = np.argsort(log_weights)[: len(gaussians)]
    log_weights[slots] = np.log(shares)
    means[slots] = [new.mean for new in gaussians]
    factors[slots] = [new.factor for new in gaussians]
    log_weights -= scipy.special.logsumexp(log_weights)
    mixture = Mixture(*map(to_device, (log_weights, means, factors)), degrees=old.degrees)
    return fit._replace(mixture=mixture, places=fit.places[:0])


def _refit(rng: np.random.Generator, fit: Mixture, points: Float[np.ndarray, "n dim"]) -> Mixture:
    """Fits a mixture to the points, from another on."""
    seeds = points[rng.choice(len(points), FIT_COMPONENTS, replace=False)]
    counted = np.arange(_MOST_POINTS) < len(points)
    return _fit_from(fit, *map(to_device, (seeds, padded(points, _MOST_POINTS), counted)))


@eqx.filter_jit
def _fit_from(
    fit: Mixture,
    seeds: Float[Array, "components dim"],
    points: Float[Array, "n dim"],
    counted: Bool[Array, " n"],
) -> Mixture:
    return fit_mixture(points, _reseeded(fit, seeds), _ITERATIONS, counted)


def lift_light_modes(
    log_weights: Float[np.ndarray, " n"], log_shares: Float[np.ndarray, "modes n"]
) -> Float[np.ndarray, " n"]:
    """Changes weights so that every mode that stands alone counts for the square root of its mass.

    A mode of a few per cent would have a handful of particles and hardly a component: its mass, and
    its part of the evidence, would be found too small more often than not. `log_shares` is ln of
    the share that each mode has in each draw.
    """
    total = np.logaddexp.reduce(log_weights)
    if len(log_shares) < 2 or not np.isfinite(total):
        return log_weights
    log_masses = np.logaddexp.reduce(log_shares + log_weights - total, axis=1)
    log_lifts = -0.5 * np.maximum(log_masses, _LEAST_LOG_MASS)
    return log_weights + np.logaddexp.reduce(log_shares + log_lifts[:, None], axis=0)


def log_responsibilities(
    modes: Mixture, points: Float[np.ndarray, "n dim"]
) -> Float[np.ndarray, "modes n"]:
    """Computes ln of the responsibilities of the components that have any weight.

    This is done on the host because few components of many that pad the shape have a weight.
    """
    log_weights, means, factors = map(np.asarray, (modes.log_weights, modes.means, modes.factors))
    rows = []
    for place in np.flatnonzero(np.isfinite(log_weights)):
        factor, gaps = factors[place], (points - means[place]).T
        whitened = scipy.linalg.solve_triangular(factor, gaps, lower=True, check_finite=False)
        log_det = np.sum(np.log(np.diagonal(factor)))
        energies = modes.energies(np.sum(whitened**2, axis=0))
        rows.append(log_weights[place] - log_det - energies)
    return np.array(rows) - np.logaddexp.reduce(rows, axis=0)


def _tempered(log_weights: Float[np.ndarray, " n"], least: float) -> Float[np.ndarray, " n"]:
    """Raises weights to a power gamma <= 1, lowered until they are worth `least` draws."""
    gamma = 1.0
    while effective_sample_size(gamma * log_weights) < least and gamma > 1e-3:
        gamma *= 0.8
    return gamma * log_weights


@eqx.filter_jit
def _typical_factor(mixture: Mixture) -> Float[Array, "dim dim"]:
    """Factors the components' mean scale matrix, by rotations: nothing is squared."""
    weights = jnp.exp(0.5 * mixture.log_weights)
    rows = weights[:, None, None] * jnp.swapaxes(mixture.factors, 1, 2)
    return jnp.linalg.qr(rows.reshape(-1, mixture.dim), mode="r").T


def _reseeded(fit: Mixture, seeds: Float[Array, "components dim"]) -> Mixture:
    """Moves components that hold almost nothing to the seeds.

    Each takes the shape of the component that its seed most likely belongs to.
    """
    weak = ~(fit.log_weights > math.log(_WEAK_SHARE / FIT_COMPONENTS))
    terms, _ = fit.component_terms(seeds)
    factors = fit.factors[jnp.argmax(fit.log_weights + terms, axis=1)]
    log_weights = jnp.where(weak, -math.log(FIT_COMPONENTS), fit.log_weights)
    return Mixture(
        log_weights - logsumexp(log_weights),
        jnp.where(weak[:, None], seeds, fit.means),
        jnp.where(weak[:, None, None], factors, fit.factors),
        fit.degrees,
    )
