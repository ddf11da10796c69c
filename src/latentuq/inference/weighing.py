"""Weighing chains: proposals are fitted to half of the islands and bridged to the other half."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key

from latentuq.core.randomness import host_generator
from latentuq.inference.bridge import Seen, bridge
from latentuq.inference.chains import Chains
from latentuq.inference.importance import (
    WeightedDraws,
    draw,
    log_ratios,
    pareto_khat,
    weighted_draws,
)
from latentuq.inference.mixture import Defensive
from latentuq.inference.proposals import fit_halves
from latentuq.inference.settings import Settings
from latentuq.inference.target import Counts, Target, log_densities_at

# The lightest draws are dropped as far as they hold less than this share of the mass together; a
# multiple of so many is kept, so that little is compiled twice.
_NEGLIGIBLE, _KEPT = 1e-4, 4096


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
    key: Key[Array, ""],
    target: Target,
    chains: Chains,
    fresh: int,
    efficiency: float,
    settings: Settings,
) -> Weighed:
    """Bridges each half of the islands to draws of a proposal that is fitted to the other half.

    So many fresh draws are made, and a place of a chain is worth `efficiency` independent draws.
    """
    points = chains.settled.points
    proposals = fit_halves(host_generator(key), target, points, chains.regions, settings)
    parts = [
        _see(jax.random.fold_in(key, half), target, chains, half, proposal, fresh // 2)
        for half, proposal in enumerate(proposals)
    ]
    # No source is in both halves.
    parts[1] = parts[1]._replace(sources=parts[1].sources + np.max(parts[0].sources) + 1)
    seen = Seen(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    draws = _weighted(seen, len(points), efficiency)
    return Weighed(draws, proposals, Counts(forwards=fresh))


def _see(
    key: Key[Array, ""], target: Target, chains: Chains, half: int, proposal: Defensive, fresh: int
) -> Seen:
    """Joins the settled chains of one half of the islands with draws of their proposal."""
    settled, islands = chains.settled, np.arange(half, len(chains.begun), 2)
    moved, values = settled.points[half::2], settled.log_densities[half::2].ravel()
    _, size, stops, dim = moved.shape
    drawn = np.asarray(draw(key, proposal, fresh))
    points = np.concatenate([drawn, moved.reshape(-1, dim).astype(drawn.dtype)])
    values = np.concatenate([log_densities_at(target.log_density, drawn), values])
    chain = np.arange(len(islands) * size)
    return Seen(
        points,
        values.astype(np.float64),
        log_densities_at(proposal.log_prob, points).astype(np.float64),
        np.concatenate([np.resize(islands, fresh), np.repeat(islands, size * stops)]),
        np.concatenate([len(chain) + np.arange(fresh), np.repeat(chain, stops)]),
        chains.regions.of(points.astype(np.float64)),
        np.arange(len(points)) >= fresh,
    )


def _weighted(seen: Seen, islands: int, efficiency: float) -> WeightedDraws:
    """Weighs all draws, and keeps those that have some weight."""
    found = bridge(seen, islands, efficiency)
    number, order = _KEPT, np.argsort(found.log_weights)
    if found.ess:
        light = np.cumsum(np.exp(found.log_weights[order] - found.log_evidence)) < _NEGLIGIBLE
        number *= -(-np.count_nonzero(~light) // _KEPT)
    kept = np.sort(order[-number:])
    log_weights, log_densities = found.log_weights[kept], seen.log_densities[kept]
    with np.errstate(invalid="ignore"):
        # The density that all kept draws together come from, for whoever reweights them.
        log_mixture = log_densities - log_weights - np.log(len(kept))
    numbers = (
        log_weights - (np.logaddexp.reduce(log_weights) if found.ess else 0),
        log_densities,
        log_mixture,
        found.log_evidence,
        found.error,
        pareto_khat(log_ratios(seen.log_densities, seen.log_proposals)[~seen.chained]),
        found.ess,
    )
    return weighted_draws(seen.points[kept], numbers, seen.islands[kept], seen.sources[kept])
