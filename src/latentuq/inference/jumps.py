"""Jumps of chains to draws of a proposal, by independence Metropolis-Hastings.

Where the proposal resembles the density, a chain is soon as good as an independent draw, whatever
arms or tails lie between. Where it does not, jumps are refused and the chain is none the worse.
"""

from collections.abc import Iterator

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from latentuq.core.randomness import host_generator
from latentuq.inference.importance import draw
from latentuq.inference.mixture import Defensive
from latentuq.inference.regions import Regions
from latentuq.inference.target import Counts, Target, log_densities_at


def jump(
    key: Key[Array, ""],
    target: Target,
    proposals: tuple[Defensive, Defensive],
    regions: Regions,
    begun: Int[np.ndarray, "islands chains"],
    points: Float[np.ndarray, "islands chains dim"],
    log_densities: Float[np.ndarray, "islands chains"],
    offers: int,
    power: float = 1.0,
) -> tuple[Float[np.ndarray, "islands chains dim"], Float[np.ndarray, "islands chains"], Counts]:
    """Offers the chains draws of proposals, on average so many to each, and lets them jump there.

    The chains are on p^power, and each half of the islands has a proposal of its own. A chain jumps
    inside the region of its kernel alone, so that its kernel suits it afterwards. The draws in a
    region are divided among its chains, each of which is offered one after the other.

    Returns:
        Where the chains are afterwards, the values of ln p there, and the evaluations.
    """
    points, log_densities = points.copy(), log_densities.copy()
    for half, proposal in enumerate(proposals):
        half_key, mine = jax.random.fold_in(key, half), np.s_[half::2]
        number = begun[mine].size
        there, values = _jump_half(
            half_key,
            target,
            proposal,
            regions,
            begun[mine].ravel(),
            points[mine].reshape(number, -1),
            log_densities[mine].ravel(),
            offers,
            power,
        )
        points[mine] = there.reshape(points[mine].shape)
        log_densities[mine] = values.reshape(log_densities[mine].shape)
    return points, log_densities, Counts(forwards=offers * begun.size)


def _jump_half(
    key: Key[Array, ""],
    target: Target,
    proposal: Defensive,
    regions: Regions,
    begun: Int[np.ndarray, " chains"],
    points: Float[np.ndarray, "chains dim"],
    log_densities: Float[np.ndarray, " chains"],
    offers: int,
    power: float,
) -> tuple[Float[np.ndarray, "chains dim"], Float[np.ndarray, " chains"]]:
    rng, points, log_densities = host_generator(key), points.copy(), log_densities.copy()
    fresh = np.asarray(draw(key, proposal, offers * len(points)))
    values = log_densities_at(target.log_density, fresh)
    gains = _gains(power * values, log_densities_at(proposal.log_prob, fresh))
    here = _gains(power * log_densities, log_densities_at(proposal.log_prob, points))
    at_home = regions.of(points) == begun
    for chains, offered in _offers(rng, begun, at_home, regions.of(fresh)):
        with np.errstate(invalid="ignore"):  # From nowhere to nowhere.
            odds = gains[offered] - here[chains]
        taken = np.log(rng.uniform(size=len(chains))) < np.where(np.isnan(odds), -np.inf, odds)
        chains, offered = chains[taken], offered[taken]
        points[chains], log_densities[chains] = fresh[offered], values[offered]
        here[chains] = gains[offered]
    return points, log_densities


def _gains(
    log_densities: Float[np.ndarray, " n"], log_proposals: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    with np.errstate(invalid="ignore"):
        return log_densities.astype(np.float64) - log_proposals


def _offers(
    rng: np.random.Generator,
    begun: Int[np.ndarray, " chains"],
    at_home: Bool[np.ndarray, " chains"],
    regions: Int[np.ndarray, " n"],
) -> Iterator[tuple[Int[np.ndarray, " some"], Int[np.ndarray, " some"]]]:
    """Pairs chains with draws of their own region, each draw once, in rounds of distinct chains."""
    for region in np.unique(begun):
        chains = rng.permutation(np.flatnonzero((begun == region) & at_home))
        offered = np.flatnonzero(regions == region)
        if not len(chains):
            continue
        for first in range(0, len(offered), len(chains)):
            some = offered[first : first + len(chains)]
            yield chains[: len(some)], some
