"""Bridge sampling: the mass of each region, from chains on the density and draws of proposals.

Meng and Wong (1996); Shirts and Chodera (2008) for the form with weights. A region's mass Z solves

    H = sum_i c_i / (n_i exp(ln Z - l_i) + m_i),    l_i = ln p(u_i) - ln q_i(u_i),

over the draws of proposals (c = 1) and of chains (c their efficiency) in the region. The islands
are in H = 2 halves, each with a proposal q that was fitted to the other one: n is the number of
that proposal's draws in all of space, and m the sum of c over the half's chains in the region. The
terms, times Z / H, are the weights that make all draws represent the density; none exceeds Z / m H,
however bad the proposal is. Regions are weighed apart because chains need not cross between them:
how many chains a region has is of no consequence.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import brentq

from latentuq.inference.importance import log_ratios

# An island that has few chains in a region counts for at most so many times more.
_MOST_LEVELLING = 3.0


class Seen(NamedTuple):
    """Draws of chains and of proposals together.

    Attributes:
        points: The draws.
        log_densities: The values of ln p.
        log_proposals: The values of ln q, of the proposal of the draw's half of the islands.
        islands: The island of each draw; draws of proposals are divided among islands, too.
        sources: The chain of each draw; a draw of a proposal is its own source.
        regions: The region of each draw.
        chained: Whether a chain has made the draw.
    """

    points: Float[np.ndarray, "n dim"]
    log_densities: Float[np.ndarray, " n"]
    log_proposals: Float[np.ndarray, " n"]
    islands: Int[np.ndarray, " n"]
    sources: Int[np.ndarray, " n"]
    regions: Int[np.ndarray, " n"]
    chained: Bool[np.ndarray, " n"]


class Bridged(NamedTuple):
    """What comes of a bridge.

    Attributes:
        log_weights: The weights of all draws, which sum to the evidence.
        log_evidence: Ln of the integral of the density.
        error: Its standard error, from the scatter of the islands or of the sources, whichever is
            larger: that of a few islands may be small by chance.
        ess: The effective number of draws.
    """

    log_weights: Float[np.ndarray, " n"]
    log_evidence: float
    error: float
    ess: float


def bridge(seen: Seen, islands: int, efficiency: float) -> Bridged:
    """Computes the evidence, its error, and the weights of all draws."""
    gains = log_ratios(seen.log_densities, seen.log_proposals)
    counts = np.where(seen.chained, efficiency, 1.0)
    halves = seen.islands % 2
    fresh = np.bincount(halves, ~seen.chained, 2)
    log_weights = np.full(len(gains), -np.inf)
    masses, influences, levelled = [], [], log_weights.copy()
    pushes, homes = np.zeros(len(gains)), log_weights.copy()
    for region in np.unique(seen.regions):
        here = np.flatnonzero((seen.regions == region) & (gains > -np.inf))
        half = halves[here]
        chained = np.bincount(half, counts[here] * seen.chained[here], 2)
        part = _Part(gains[here], counts[here], np.log(fresh)[half], chained[half])
        log_mass = _solve(part)
        if log_mass == -np.inf:
            continue
        terms = part.terms(log_mass)
        log_weights[here] = np.log(np.maximum(terms, 1e-300)) + log_mass - np.log(2)
        masses.append(log_mass)
        where = seen.islands[here]
        influences.append(_influence(part, terms, seen.chained[here], where, islands))
        usual = np.bincount(half, terms * seen.chained[here], 2)
        usual /= np.maximum(np.bincount(half, seen.chained[here], 2), 1)
        pushes[here] = np.where(seen.chained[here], terms - usual[half], terms) / part.slope(terms)
        homes[here] = log_mass
        levelled[here] = _levelled(log_weights[here], where, influences[-1])
    if not masses:
        return Bridged(log_weights, -np.inf, np.inf, 0.0)
    log_evidence = float(np.logaddexp.reduce(masses))
    total = np.exp(np.array(masses) - log_evidence) @ np.array(influences)
    # The mean of each half of the islands is taken off already.
    error = float(np.sqrt(np.sum(total**2) / (islands * (islands - 2))))
    error = max(error, _scatter(pushes * np.exp(homes - log_evidence), seen, fresh))
    shares = np.exp(log_weights - log_evidence)
    ess = float(1 / np.sum(shares**2 / counts))
    return Bridged(levelled, log_evidence, error, ess)


class _Part(NamedTuple):
    """The draws of one region, and for each of them what it takes to compute its term.

    Attributes:
        gains: The values of ln p - ln q.
        counts: How many independent draws each is worth.
        log_fresh: Ln of the number of draws of its proposal.
        chained: The sum of the counts of the chains of its half.
    """

    gains: Float[np.ndarray, " n"]
    counts: Float[np.ndarray, " n"]
    log_fresh: Float[np.ndarray, " n"]
    chained: Float[np.ndarray, " n"]

    def terms(self, log_mass: float) -> Float[np.ndarray, " n"]:
        """The terms of the equation, whose sum is the number of halves at the solution."""
        fresh = np.exp(np.minimum(self.log_fresh + log_mass - self.gains, 700))
        return self.counts / (fresh + self.chained)

    def slope(self, terms: Float[np.ndarray, " n"]) -> float:
        """How fast the sum of the terms falls as ln Z grows."""
        return max(float(np.sum(terms * (1 - terms * self.chained / self.counts))), 1e-12)


def _solve(part: _Part) -> float:
    """Solves for ln Z; the sum of the terms falls to zero as ln Z grows.

    Where no draw of a proposal is there is nothing to weigh against, and the mass is unknown.
    """
    if not len(part.gains):
        return -np.inf

    def excess(log_mass: float) -> float:
        return float(np.sum(part.terms(log_mass))) - 2

    steps = part.gains - part.log_fresh
    low, high = float(np.min(steps)) - 30, float(np.max(steps)) + 30
    if excess(low) <= 0:
        return -np.inf
    return float(np.asarray(brentq(excess, low, high, xtol=1e-6)))


def _influence(
    part: _Part,
    terms: Float[np.ndarray, " n"],
    chained: Bool[np.ndarray, " n"],
    where: Int[np.ndarray, " n"],
    islands: int,
) -> Float[np.ndarray, " islands"]:
    """Computes how much each island alone would change ln Z, to first order.

    The number of chains that an island has in the region is no information and is divided out.
    """
    fresh = np.bincount(where, terms * ~chained, islands)
    sums = np.bincount(where, terms * chained, islands)
    numbers = np.bincount(where, chained, islands)
    change = np.zeros(islands)
    for half in (slice(0, None, 2), slice(1, None, 2)):
        number = max(float(numbers[half].sum()), 1.0)
        usual = sums[half].sum() / number
        means = np.where(numbers[half] > 0, sums[half] / np.maximum(numbers[half], 1), usual)
        change[half] = len(means) * fresh[half] - fresh[half].sum()
        change[half] += (means - usual) * number
    return 2 * change / part.slope(terms)


def _scatter(pushes: Float[np.ndarray, " n"], seen: Seen, fresh: Float[np.ndarray, " 2"]) -> float:
    """Computes the standard error of ln Z from how each source alone would change it.

    The draws of a proposal vary about their mean over all of space, where some add nothing.
    """
    sums = np.bincount(seen.sources, pushes)
    halves = np.bincount(seen.islands % 2, np.where(seen.chained, 0, pushes), 2)
    return float(np.sqrt(max(np.sum(sums**2) - np.sum(halves**2 / fresh), 0)))


def _levelled(
    log_weights: Float[np.ndarray, " n"],
    where: Int[np.ndarray, " n"],
    influence: Float[np.ndarray, " islands"],
) -> Float[np.ndarray, " n"]:
    """Gives every island the weight in a region that it alone would give to the region.

    Then the scatter of the islands tells the error of the region's mass, and not how many chains
    each of them happens to have there.
    """
    total = np.logaddexp.reduce(log_weights)
    shares = np.bincount(where, np.exp(log_weights - total), len(influence))
    wanted = np.clip(1 + influence, 1 / _MOST_LEVELLING, _MOST_LEVELLING) / len(influence)
    factors = wanted / np.maximum(shares, 1e-300)
    factors = np.clip(factors, 1 / _MOST_LEVELLING, _MOST_LEVELLING)
    changed = log_weights + np.log(factors[where])
    return changed + total - np.logaddexp.reduce(changed)
