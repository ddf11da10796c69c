"""A proposal for curved posteriors: Hamiltonian particles, fitted at three temperatures."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Key

from latentuq.arrays import to_device
from latentuq.inference.chance import host_generator
from latentuq.inference.el2o import EL2OFit
from latentuq.inference.expectation import component_terms, fit_mixture
from latentuq.inference.importance import WeightedDraws, effective_sample_size, systematic_index
from latentuq.inference.mixture import Mixture
from latentuq.inference.moves import move
from latentuq.inference.result import Counts
from latentuq.inference.target import Target
from latentuq.programs import program


class Rung(NamedTuple):
    """One temperature of the ladder.

    Attributes:
        beta: Inverse temperature: the particles move on p^beta times reference^(1 - beta).
        share: Of the proposal.
        components: Of the mixture that is fitted to the particles.
        bouts: Of moves; the last one is fitted.
        particles: That move.
    """

    beta: float
    share: float
    components: int
    bouts: int
    particles: int


# The hotter rungs give the proposal the tails that a fit to the posterior's own draws lacks: on the
# image posteriors of the benchmark k-hat falls from 0.7-0.8 to 0.4-0.65.
LADDER = (
    Rung(1.0, 0.65, components=16, bouts=2, particles=512),
    Rung(0.5, 0.2, components=8, bouts=1, particles=256),
    Rung(0.25, 0.15, components=8, bouts=1, particles=256),
)

_MOVES = 4
_LEAPS = 6
_ITERATIONS = 20
_WEAK = 0.3
# One shape each of particles that move, of points that a mixture is fitted to, and of the mixture:
# what is less is padded, and nothing compiles twice.
_MOVING = 256
_POINTS = 4096
_SLOTS = max(rung.components for rung in LADDER)


class Ladder(NamedTuple):
    """The fits of all rungs, and the step size that suited the moves.

    Fits have as many components as the largest rung; those that a rung does not use have no weight.
    """

    fits: tuple[Mixture, ...]
    step: float

    @property
    def mixture(self) -> Mixture:
        """The rungs' mixtures, each with its share."""
        used = [
            (fit, rung, slice(rung.components)) for fit, rung in zip(self.fits, LADDER, strict=True)
        ]
        log_weights = [fit.log_weights[own] + math.log(rung.share) for fit, rung, own in used]
        return Mixture(
            to_device(np.concatenate(log_weights)),
            to_device(np.concatenate([fit.means[own] for fit, _, own in used])),
            to_device(np.concatenate([fit.factors[own] for fit, _, own in used])),
            self.fits[0].degrees,
        )


def begin(mixture: Mixture) -> Ladder:
    """A ladder all of whose rungs are one mixture; its components come heaviest first."""
    fits = (_resized(_resized(mixture, rung.components), _SLOTS) for rung in LADDER)
    return Ladder(tuple(fits), 0.3)


def climb(key: Key[Array, ""], target: Target, ladder: Ladder, draws: WeightedDraws) -> Ladder:
    """Resamples the weighted draws, moves them rung by rung, and refits every rung.

    Weights so uneven that few draws would be left are tempered. The fit to the posterior itself
    sees resampled draws as well, as far as they are worth something: they know the masses of the
    modes better than the particles do.
    """
    rng, points = host_generator(key), np.asarray(draws.draws)
    number = LADDER[0].particles
    log_weights = _tempered(np.asarray(draws.log_weights, np.float64), number / 4)
    particles = points[systematic_index(rng, log_weights, number)]
    extra = points[systematic_index(rng, log_weights, number * _MOVES)]
    fits: list[Mixture] = []
    step, guide = ladder.step, ladder.fits[0]
    for place, (rung, fit) in enumerate(zip(LADDER, ladder.fits, strict=True)):
        particles, size = particles[:: len(particles) // rung.particles], step
        visited = particles
        for bout in range(rung.bouts):
            move_key = jax.random.fold_in(jax.random.fold_in(key, place), bout)
            visited, particles, size = _move(move_key, target, particles, guide, rung.beta, size)
        if not fits:
            step = size
            # Up to half of the places are draws, the more the better the draws are.
            share = 0.5 * min(1.0, float(draws.ess) / number)
            replaced = rng.uniform(size=(len(visited), 1)) < share
            visited = np.where(replaced, extra, visited)
        fits.append(_refit(rng, fit, visited, rung.components))
        guide = fits[0]
    return Ladder(tuple(fits), step)


def reweigh(key: Key[Array, ""], target: Target, ladder: Ladder, draws: WeightedDraws) -> Ladder:
    """Refits every rung to the draws themselves, weighted for its temperature: no evaluation.

    What the draws do not reach it cannot find, so it only polishes what a climb has found.
    """
    rng, points = host_generator(key), np.asarray(draws.draws)
    log_densities = np.asarray(draws.log_densities, np.float64)
    log_references = target.log_references(points)
    fits: list[Mixture] = []
    for rung, fit in zip(LADDER, ladder.fits, strict=True):
        log_rung = rung.beta * log_densities + (1 - rung.beta) * log_references
        log_weights = log_rung - np.asarray(draws.log_proposals)
        log_weights = np.where(np.isfinite(log_weights), log_weights, -np.inf)
        log_weights = _tempered(log_weights, _POINTS / 8)
        chosen = points[systematic_index(rng, log_weights, _POINTS)]
        fits.append(_refit(rng, fit, chosen, rung.components))
    return Ladder(tuple(fits), ladder.step)


def climb_counts() -> Counts:
    """What one climb evaluates."""
    moved = sum(rung.particles * rung.bouts for rung in LADDER)
    return Counts(gradients=moved * (_MOVES * _LEAPS + 1))


def _move(
    key: Key[Array, ""],
    target: Target,
    particles: Float[np.ndarray, "n dim"],
    guide: Mixture,
    beta: float,
    step: float,
) -> tuple[Float[np.ndarray, "visited dim"], Float[np.ndarray, "n dim"], float]:
    """Moves particles, a fixed number at a time.

    Returns:
        The places they visited, where they are now, and the step size in the end.
    """
    dtype = particles.dtype
    moved = []
    for first in range(0, len(particles), _MOVING):
        group = to_device(particles[first : first + _MOVING])
        moved.append(
            move(
                jax.random.fold_in(key, first),
                target,
                group,
                _nearest_factors(guide, group),
                to_device(beta, dtype),
                moves=_MOVES,
                leaps=_LEAPS,
                step=to_device(step, dtype),
            )
        )
    visited = np.concatenate([each.points for each in moved], axis=1)
    step = math.exp(np.mean([math.log(each.step) for each in moved]))
    return visited.reshape(-1, target.dim), visited[-1], step


def _refit(
    rng: np.random.Generator, fit: Mixture, points: Float[np.ndarray, "n dim"], components: int
) -> Mixture:
    """A mixture of so many components for the points, from another on."""
    seeds = points[rng.choice(len(points), _SLOTS, replace=False)]
    used = np.arange(_SLOTS) < components
    padded = np.resize(points, (_POINTS, points.shape[1]))
    counted = np.arange(_POINTS) < len(points)
    return _fit_from(fit, *map(to_device, (seeds, used, padded, counted)))


@program
def _fit_from(fit: Mixture, seeds: Array, used: Array, points: Array, counted: Array) -> Mixture:
    return fit_mixture(points, _reseeded(fit, seeds, used), _ITERATIONS, counted)


def admit(ladder: Ladder, newcomers: list[EL2OFit], shares: Float[np.ndarray, " modes"]) -> Ladder:
    """Puts Gaussians in the place of the weakest components of the coldest rung.

    Args:
        ladder: Where to.
        newcomers: The Gaussians.
        shares: Of each, relative to all that the rung holds already.
    """
    cold = ladder.fits[0]
    slots = np.argsort(cold.log_weights)[: len(newcomers)]
    log_weights = cold.log_weights.at[slots].set(jnp.log(jnp.asarray(shares, cold.means.dtype)))
    cold = Mixture(
        log_weights - logsumexp(log_weights),
        cold.means.at[slots].set(jnp.stack([fit.mean for fit in newcomers])),
        cold.factors.at[slots].set(jnp.stack([fit.factor for fit in newcomers])),
        cold.degrees,
    )
    return Ladder((cold, *ladder.fits[1:]), ladder.step)


def _tempered(log_weights: Float[np.ndarray, " n"], least: float) -> Float[np.ndarray, " n"]:
    """Weights to a power gamma <= 1, lowered until they are worth `least` draws."""
    gamma = 1.0
    while effective_sample_size(gamma * log_weights) < least and gamma > 1e-3:
        gamma *= 0.8
    return gamma * log_weights


@program
def _nearest_factors(mixture: Mixture, points: Float[Array, "n dim"]) -> Float[Array, "n dim dim"]:
    """The factor of the component that each point most likely belongs to."""
    terms, _ = component_terms(mixture, points)
    return mixture.factors[jnp.argmax(mixture.log_weights + terms, axis=1)]


def _reseeded(
    fit: Mixture, seeds: Float[Array, "components dim"], used: Bool[Array, " components"]
) -> Mixture:
    """Moves components that hold almost nothing to the seeds."""
    count = jnp.sum(used)
    weak = used & ~(fit.log_weights > jnp.log(_WEAK / count))
    factors = _nearest_factors(fit, seeds)
    log_weights = jnp.where(weak, -jnp.log(count.astype(seeds.dtype)), fit.log_weights)
    return Mixture(
        log_weights - logsumexp(log_weights),
        jnp.where(weak[:, None], seeds, fit.means),
        jnp.where(weak[:, None, None], factors, fit.factors),
        fit.degrees,
    )


def _resized(mixture: Mixture, count: int) -> Mixture:
    """The first components, or all of them and padding."""
    missing = max(0, count - mixture.components)
    log_weights = np.asarray(mixture.log_weights)[:count]
    log_weights = log_weights - scipy.special.logsumexp(log_weights)
    eye = np.tile(np.eye(mixture.dim, dtype=mixture.means.dtype), (missing, 1, 1))
    return Mixture(
        to_device(np.pad(log_weights, (0, missing), constant_values=-np.inf)),
        to_device(np.pad(np.asarray(mixture.means)[:count], ((0, missing), (0, 0)))),
        to_device(np.concatenate([np.asarray(mixture.factors)[:count], eye])),
        mixture.degrees,
    )
