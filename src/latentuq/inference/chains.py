"""Many short chains on the density, in independent islands, each with the shape of its region."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from latentuq.core.randomness import host_generator
from latentuq.inference.jumps import jump
from latentuq.inference.mixture import Defensive
from latentuq.inference.moves import Kernel
from latentuq.inference.population import move_all, shrunk_factor
from latentuq.inference.regions import Regions
from latentuq.inference.settings import Settings
from latentuq.inference.spreading import spread
from latentuq.inference.target import Counts, Target

# A region has at least so many chains in each island.
_FEWEST_CHAINS = 2


class Chains(NamedTuple):
    """Chains and where they have been.

    Attributes:
        regions: The regions that chains began in, and draws are sorted into.
        begun: The region of each chain's kernel.
        kernel: How the chains of each region move.
        points: The places of every round, the last one at the end.
        log_densities: The values of ln p there.
        proposals: What the chains of each half of the islands may jump to, fitted without them.
        rounds: The number of rounds.
        reach: The length of moves, in that of the settings; chains that do not come round get
            longer ones.
        burn_in: The share of their places that does not count.
    """

    regions: Regions
    begun: Int[np.ndarray, "islands chains"]
    kernel: Kernel
    points: Float[np.ndarray, "islands chains stops dim"]
    log_densities: Float[np.ndarray, "islands chains stops"]
    proposals: tuple[Defensive, Defensive]
    rounds: int = 0
    reach: float = 1.0
    burn_in: float = 0.5

    @property
    def settled(self) -> "Chains":
        """What the chains have seen since they forgot where they began: what they stand for."""
        first = int(self.burn_in * self.points.shape[2])
        return self._replace(
            points=self.points[:, :, first:], log_densities=self.log_densities[:, :, first:]
        )

    @property
    def sound(self) -> Bool[np.ndarray, "islands chains"]:
        """Which chains are where the density is; one that began elsewhere can only jump."""
        return np.all(np.isfinite(self.log_densities), axis=2)


def begin(
    key: Key[Array, ""],
    target: Target,
    regions: Regions,
    points: Float[np.ndarray, "islands chains dim"],
    log_step: float,
    proposal: Defensive,
    settings: Settings,
) -> tuple[Chains, Counts]:
    """Starts chains where the particles are; half of them first spread out on p^hot.

    Regions with few chains get draws of their Gaussians. There are as many chains as particles, or
    twice, three times... as many, until every region may have its own in every island.
    """
    rng, number = host_generator(key), len(regions.means)
    points = np.tile(points, (1, -(-_FEWEST_CHAINS * number // points.shape[1]), 1))
    kernel = Kernel(np.array(regions.factors), np.full(number, log_step))
    proposals, counts = (proposal, proposal), Counts()
    if settings.hot_rounds:
        points[:, ::2], proposals, counts = spread(
            key, target, regions, points[:, ::2], kernel, settings
        )
    islands, size, dim = points.shape
    begun = regions.of(points.reshape(-1, dim)).reshape(islands, size)
    for island in range(islands):
        count = np.bincount(begun[island], minlength=number)
        for region in np.repeat(np.arange(number), np.maximum(_FEWEST_CHAINS - count, 0)):
            where = rng.choice(np.flatnonzero(begun[island] == np.argmax(count)))
            points[island, where] = regions.sample(rng, int(region))
            begun[island, where] = region
            count = np.bincount(begun[island], minlength=number)
    # Until the first round the only places are those of the starts, whose density nobody asks for.
    places, values = points[:, :, None], np.zeros((islands, size, 1))
    chains = Chains(regions, begun, kernel, places, values, proposals, burn_in=settings.burn_in)
    return chains, counts


def advance(
    key: Key[Array, ""], target: Target, chains: Chains, settings: Settings
) -> tuple[Chains, Counts]:
    """Moves every chain by one round and lets it jump; shapes are learnt after the first two."""
    if 0 < chains.rounds <= 2:
        chains = chains._replace(kernel=_learned(chains))
    move_key, jump_key = jax.random.split(key)
    visited, kernel, counts = move_all(
        move_key,
        target,
        (1.0, 0.0),
        chains.points[:, :, -1],
        chains.begun,
        chains.kernel,
        settings,
        chains.reach,
    )
    points, log_densities = visited
    points[:, :, -1], log_densities[:, :, -1], jumps = jump(
        jump_key,
        target,
        chains.proposals,
        chains.regions,
        chains.begun,
        points[:, :, -1],
        log_densities[:, :, -1],
        settings.offers,
    )
    if chains.rounds:
        points = np.concatenate([chains.points, points], axis=2)
        log_densities = np.concatenate([chains.log_densities, log_densities], axis=2)
    chains = chains._replace(
        kernel=kernel, points=points, log_densities=log_densities, rounds=chains.rounds + 1
    )
    return chains, counts + jumps


def _learned(chains: Chains) -> Kernel:
    """The kernel with the covariances that the chains of each region have shown so far."""
    factors = []
    for region, factor in enumerate(chains.kernel.factors):
        mine = chains.begun == region
        points = chains.points[mine].reshape(-1, chains.points.shape[-1]).astype(np.float64)
        worth = float(np.count_nonzero(mine))
        if worth > 4:
            gaps = points - points.mean(axis=0)
            factor = shrunk_factor(gaps.T @ gaps / len(points), worth)
        factors.append(factor)
    return chains.kernel._replace(factors=np.array(factors))


def drift(chains: Chains) -> tuple[float, float]:
    """Measures how far ln p has shifted from the first to the second half of the settled chains.

    Returns:
        The shift in standard deviations of ln p, and in its own standard errors, which the islands
        tell.
    """
    settled = chains.settled
    islands = zip(settled.log_densities, settled.sound, strict=True)
    values = [island[sound] for island, sound in islands if np.any(sound)]
    if len(values) < 2:
        return np.inf, np.inf
    half = settled.log_densities.shape[2] // 2
    shifts = [np.mean(island[:, half:]) - np.mean(island[:, :half]) for island in values]
    spread = np.std(np.concatenate(values))
    error = np.std(shifts, ddof=1) / np.sqrt(len(shifts))
    shift = abs(float(np.mean(shifts)))
    return shift / max(float(spread), 1e-30), shift / max(float(error), 1e-30)


def efficiencies(chains: Chains) -> Float[np.ndarray, " statistics"]:
    """Estimates how many independent draws each settled draw of the chains is worth.

    The means of chains of n draws vary as much as those of n times the efficiency independent ones,
    for ln p, for every coordinate and for its square, which tells more of the tails. Each is taken
    apart from its mean in the region where the draw is: which regions a chain visits does not
    matter. A chain that stays where it began makes one draw.
    """
    settled = chains.settled
    dim, stops = settled.points.shape[-1], settled.points.shape[2]
    seen = np.concatenate([settled.points, settled.log_densities[..., None]], axis=-1)
    seen = seen[settled.sound].reshape(-1, dim + 1).astype(np.float64)
    if len(seen) < 2 * stops:
        return np.full(2 * dim + 1, 1 / stops)
    regions = chains.regions.of(seen[:, :dim])
    seen = _centred(seen, regions)
    seen = np.concatenate([seen, _centred(seen[:, :dim] ** 2, regions)], axis=1)
    by_chain = seen.reshape(-1, stops, 2 * dim + 1)
    inside = np.var(by_chain, axis=(0, 1))
    between = np.var(np.mean(by_chain, axis=1), axis=0, ddof=1)
    # What does not vary is known.
    worth = np.where(inside > 0, inside / np.maximum(between * stops, 1e-30), 1.0)
    return np.clip(worth, 1 / stops, 1.0)


def _centred(
    values: Float[np.ndarray, "n statistics"], regions: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n statistics"]:
    """Takes the mean of its region off each value."""
    centred = values.copy()
    for region in np.unique(regions):
        centred[regions == region] -= np.mean(values[regions == region], axis=0)
    return centred
