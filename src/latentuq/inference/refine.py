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
from latentuq.inference.em import component_terms, fit_mixture
from latentuq.inference.importance import effective_sample_size, systematic_index
from latentuq.inference.mixture import Mixture
from latentuq.inference.moves import Moved, move
from latentuq.inference.pool import Pool
from latentuq.inference.result import Counts
from latentuq.inference.target import Target

COMPONENTS = 16
"""Of a fit."""

# Widths of the copies of a fit that make up the proposal, and their shares: the wide one gives it
# the tails that a fit to few draws lacks.
_WIDTHS = (1.1, 1.8)
_SHARES = (0.7, 0.3)

PROPOSED = COMPONENTS * len(_WIDTHS)
"""Components of a proposal."""

# So few particles that the activations of a small network stay in the processor's cache, in groups
# that move at the same time. A bout is so many moves, with so many stops each and so many gradients
# to the next: long ones, because short moves reach the arms of a posterior only by diffusion.
_PARTICLES = 256
_GROUPS = 2
_MOVES = 2
_STOPS = 2
_LEAPS = 8
# Most points of a fit, and resampled draws among them for each that the pool is worth.
_POINTS = 4096
_RESAMPLED = 4
_ITERATIONS = 20
_WEAK = 0.3
# A mode that has less of the mass gets no more particles for it.
_LEAST_LOG_MASS = -12.0


class Fit(NamedTuple):
    """A mixture, and what the moves that led to it leave to the next ones.

    Attributes:
        mixture: The fit.
        step: The step size that suited the moves.
        places: Where the last bouts of the climbs have led, the latest climb first.
    """

    mixture: Mixture
    step: float
    places: Float[np.ndarray, "n dim"]


def begin(mixture: Mixture) -> Fit:
    """The first components of a mixture, heaviest first, or all of them and padding."""
    missing = max(0, COMPONENTS - mixture.components)
    log_weights = np.asarray(mixture.log_weights)[:COMPONENTS]
    log_weights = log_weights - scipy.special.logsumexp(log_weights)
    eye = np.tile(np.eye(mixture.dim, dtype=mixture.means.dtype), (missing, 1, 1))
    fit = Mixture(
        to_device(np.pad(log_weights, (0, missing), constant_values=-np.inf)),
        to_device(np.pad(np.asarray(mixture.means)[:COMPONENTS], ((0, missing), (0, 0)))),
        to_device(np.concatenate([np.asarray(mixture.factors)[:COMPONENTS], eye])),
        mixture.degrees,
    )
    return Fit(fit, 0.3, np.zeros((0, mixture.dim), mixture.means.dtype))


def widened(
    fit: Mixture, widths: Sequence[float] = _WIDTHS, shares: Sequence[float] = _SHARES
) -> Mixture:
    """Wider copies of a mixture, each with its share."""
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
    Places that earlier climbs have reached fill what room is left.

    Args:
        key: Randomness.
        target: Where to.
        fit: Guides the moves, and is where the new one begins; its places serve again.
        pool: Draws.
        modes: A component for each mode.
        bouts: Of moves; the places of the last one are fitted.
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
    extra = min(_POINTS - len(places), int(_RESAMPLED * effective_sample_size(lifted)))
    chosen = pool.points[systematic_index(rng, log_weights, extra)]
    points = np.concatenate([places, chosen, earlier])[:_POINTS]
    return Fit(_refit(rng, mixture, points), step, np.concatenate([places, earlier])[:_POINTS])


def _move(
    key: Key[Array, ""],
    target: Target,
    particles: Float[np.ndarray, "particles dim"],
    factor: Float[Array, "dim dim"],
    step: float,
) -> list[Moved]:
    """A bout of moves of each group of particles."""

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
    """What one climb evaluates."""
    return Counts(gradients=bouts * _PARTICLES * (_MOVES * _STOPS * _LEAPS + 1))


def admit(fit: Fit, newcomers: list[EL2OFit], shares: Float[np.ndarray, " modes"]) -> Fit:
    """Puts Gaussians in the place of the weakest components.

    Places so far are forgotten: none of them is near the newcomers, which would count for little.

    Args:
        fit: Where to.
        newcomers: The Gaussians.
        shares: Of each, relative to all that the fit holds already.
    """
    old = fit.mixture
    slots = np.argsort(old.log_weights)[: len(newcomers)]
    log_weights = old.log_weights.at[slots].set(jnp.log(jnp.asarray(shares, old.means.dtype)))
    mixture = Mixture(
        log_weights - logsumexp(log_weights),
        old.means.at[slots].set(jnp.stack([new.mean for new in newcomers])),
        old.factors.at[slots].set(jnp.stack([new.factor for new in newcomers])),
        old.degrees,
    )
    return fit._replace(mixture=mixture, places=fit.places[:0])


def _refit(rng: np.random.Generator, fit: Mixture, points: Float[np.ndarray, "n dim"]) -> Mixture:
    """A mixture for the points, from another on."""
    seeds = points[rng.choice(len(points), COMPONENTS, replace=False)]
    counted = np.arange(_POINTS) < len(points)
    return _fit_from(fit, *map(to_device, (seeds, padded(points, _POINTS), counted)))


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
    """Weights under which every mode that stands alone counts for the square root of its mass.

    A mode of a few per cent would have a handful of particles and hardly a component: its mass, and
    its part of the evidence, would be found too small more often than not.

    Args:
        log_weights: Of draws.
        log_shares: Ln of the share that each mode has in each draw.
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
    """Ln of the responsibilities of Student-t components that have any weight.

    On the host: few components of many that pad the shape have one.
    """
    log_weights, means, factors = map(np.asarray, (modes.log_weights, modes.means, modes.factors))
    nu, rows = modes.degrees, []
    for place in np.flatnonzero(np.isfinite(log_weights)):
        factor, gaps = factors[place], (points - means[place]).T
        whitened = scipy.linalg.solve_triangular(factor, gaps, lower=True, check_finite=False)
        log_det = np.sum(np.log(np.diagonal(factor)))
        energies = 0.5 * (nu + modes.dim) * np.log1p(np.sum(whitened**2, axis=0) / nu)
        rows.append(log_weights[place] - log_det - energies)
    return np.array(rows) - np.logaddexp.reduce(rows, axis=0)


def _tempered(log_weights: Float[np.ndarray, " n"], least: float) -> Float[np.ndarray, " n"]:
    """Weights to a power gamma <= 1, lowered until they are worth `least` draws."""
    gamma = 1.0
    while effective_sample_size(gamma * log_weights) < least and gamma > 1e-3:
        gamma *= 0.8
    return gamma * log_weights


@eqx.filter_jit
def _typical_factor(mixture: Mixture) -> Float[Array, "dim dim"]:
    """A factor of the components' mean scale matrix, by rotations: nothing is squared."""
    weights = jnp.exp(0.5 * mixture.log_weights)
    rows = weights[:, None, None] * jnp.swapaxes(mixture.factors, 1, 2)
    return jnp.linalg.qr(rows.reshape(-1, mixture.dim), mode="r").T


def _nearest_factors(mixture: Mixture, points: Float[Array, "n dim"]) -> Float[Array, "n dim dim"]:
    """The factor of the component that each point most likely belongs to."""
    terms, _ = component_terms(mixture, points)
    return mixture.factors[jnp.argmax(mixture.log_weights + terms, axis=1)]


def _reseeded(fit: Mixture, seeds: Float[Array, "components dim"]) -> Mixture:
    """Moves components that hold almost nothing to the seeds."""
    weak = ~(fit.log_weights > math.log(_WEAK / COMPONENTS))
    factors = _nearest_factors(fit, seeds)
    log_weights = jnp.where(weak, -math.log(COMPONENTS), fit.log_weights)
    return Mixture(
        log_weights - logsumexp(log_weights),
        jnp.where(weak[:, None], seeds, fit.means),
        jnp.where(weak[:, None, None], factors, fit.factors),
        fit.degrees,
    )
