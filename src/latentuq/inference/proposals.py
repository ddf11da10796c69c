"""Weighing chains: proposals are fitted to half of the islands and bridged to the other half."""

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.core.arrays import to_device
from latentuq.core.batches import padded
from latentuq.core.randomness import host_generator
from latentuq.inference.bridge import Seen, bridge
from latentuq.inference.chains import Chains, efficiencies
from latentuq.inference.em import fit_mixture
from latentuq.inference.importance import (
    WeightedDraws,
    draw,
    log_ratios,
    pareto_khat,
    systematic_index,
    weighted_draws,
)
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.population import shrunk_factor
from latentuq.inference.regions import Regions
from latentuq.inference.settings import Settings
from latentuq.inference.target import Counts, Target, log_densities_at

_DEGREES = 10.0
_ITERATIONS = 20


class Weighed(NamedTuple):
    """Chains that have been weighed.

    Attributes:
        draws: The draws of chains and proposals with their weights.
        proposals: The proposal of each half of the islands, which was fitted to the other half.
        counts: The evaluations.
    """

    draws: WeightedDraws
    proposals: tuple[Defensive, Defensive]
    counts: Counts


def weigh_chains(
    key: Key[Array, ""], target: Target, chains: Chains, settings: Settings
) -> Weighed:
    """Bridges each half of the islands to a proposal that is fitted to the other half."""
    settled, rng = chains.settled, host_generator(key)
    islands, size, stops, dim = settled.points.shape
    each = settings.fresh // islands
    number = islands * size
    first, second = (
        _fit(
            rng,
            target,
            settled.points[1 - half :: 2].reshape(-1, dim),
            chains.regions,
            settings,
        )
        for half in (0, 1)
    )
    parts: list[tuple[np.ndarray, ...]] = []
    for half, proposal in enumerate((first, second)):
        mine = np.arange(half, islands, 2)
        fresh = np.asarray(draw(jax.random.fold_in(key, half), proposal, each * len(mine)))
        values = log_densities_at(target.log_density, fresh)
        chained = settled.points[half::2].reshape(-1, dim).astype(fresh.dtype)
        points = np.concatenate([fresh, chained])
        densities = np.concatenate([values, settled.log_densities[half::2].ravel()])
        where = np.concatenate([np.repeat(mine, each), np.repeat(mine, size * stops)])
        # Chains are the first sources, and draws of proposals those after them.
        drawn = number + half * len(fresh) + np.arange(len(fresh))
        moved = np.repeat(half * len(mine) * size + np.arange(len(mine) * size), stops)
        parts.append(
            (
                points,
                densities.astype(np.float64),
                log_densities_at(proposal.log_prob, points).astype(np.float64),
                where,
                np.concatenate([drawn, moved]),
                chains.regions.of(points.astype(np.float64)),
                np.arange(len(points)) >= len(fresh),
            )
        )
    seen = Seen(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    counts = Counts(forwards=each * islands)
    draws = _weighted(seen, islands, float(np.median(efficiencies(chains))))
    jumps = []
    for half in (0, 1):
        others = np.flatnonzero(seen.islands % 2 != half)
        chosen = others[systematic_index(rng, draws.log_weights[others], settings.points)]
        jumps.append(_fit(rng, target, seen.points[chosen], chains.regions, settings))
    return Weighed(draws, tuple(jumps), counts)


def _weighted(seen: Seen, islands: int, worth: float) -> WeightedDraws:
    found = bridge(seen, islands, worth)
    log_weights = found.log_weights - (found.log_evidence if found.ess else 0)
    with np.errstate(invalid="ignore"):
        # The density that all draws together come from, for whoever reweights them.
        log_mixture = seen.log_densities - found.log_weights - np.log(len(log_weights))
    numbers = (
        log_weights,
        seen.log_densities,
        log_mixture,
        found.log_evidence,
        found.error,
        pareto_khat(log_ratios(seen.log_densities, seen.log_proposals)[~seen.chained]),
        found.ess,
    )
    return weighted_draws(seen.points, numbers, seen.islands, seen.sources)


def _fit(
    rng: np.random.Generator,
    target: Target,
    points: Float[np.ndarray, "n dim"],
    regions: Regions,
    settings: Settings,
) -> Defensive:
    """Fits a mixture to points, from the Gaussians of the regions and from a few points on.

    How many components it has depends on the dimension alone, unless there are more regions.
    """
    dim, dtype, known = target.dim, target.dtype, len(regions.means)
    number = settings.points // (settings.points_per_component * dim)
    number = int(np.clip(number, 1, settings.components))
    size = number if known <= number else max(known, settings.most_modes)
    if len(points) > settings.points:
        points = points[rng.choice(len(points), settings.points, replace=False)]
    gaps = points - points.mean(axis=0, dtype=np.float64)
    factor = shrunk_factor(gaps.T @ gaps / len(points), len(points) / 4)
    seeds = points[rng.choice(len(points), size, replace=False)]
    means, factors = seeds.astype(np.float64), np.tile(factor, (size, 1, 1))
    if known > 1:
        means[:known], factors[:known] = regions.means, regions.factors
    # What goes beyond the number of regions then only pads the shape.
    log_weights = np.where(np.arange(size) < max(known, number), 0.0, -np.inf)
    log_weights -= np.log(max(known, number))
    parts = (log_weights, means, factors)
    start = Mixture(*(to_device(part, dtype) for part in parts), degrees=_DEGREES)
    counted = np.arange(settings.points) < len(points)
    rows = to_device(padded(points, settings.points), dtype)
    return Defensive(_improved(start, rows, to_device(counted)), scale=target.scale)


@eqx.filter_jit
def _improved(start: Mixture, points: Array, counted: Array) -> Mixture:
    return fit_mixture(points, start, _ITERATIONS, counted)
