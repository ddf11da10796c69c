"""Bridge sampling: the mass of each region, from chains on the density and draws of proposals.

Meng and Wong (1996); Shirts and Chodera (2008) for the form with weights. A region's mass Z solves

    1 = sum_i c_i / (n_q exp(ln Z - l_i) + n_p),    l_i = ln p(u_i) - ln q(u_i),

over the n draws of the proposal (c = 1, n_q of them in all of space) and the draws of the chains
(c their efficiency, n_p the sum of these) in the region. The terms, times Z, are the weights that
make all draws represent the density: no weight can exceed Z / n_p, however bad the proposal is.
Regions are weighed apart because chains need not cross between them: how many chains a region has
is of no consequence. The proposal of each half of the islands is fitted to the other half.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import brentq

# An island that has few chains in a region counts for at most so many times more.
_MOST_LEVELLING = 3.0


class Seen(NamedTuple):
    """Draws of chains and of proposals together.

    Attributes:
        points: The draws.
        log_densities: The values of ln p.
        log_proposals: The values of ln q, of the proposal of the draw's half of the islands.
        islands: The island of each draw; draws of proposals are divided among islands, too.
        regions: The region of each draw.
        chained: Whether a chain has made the draw.
    """

    points: Float[np.ndarray, "n dim"]
    log_densities: Float[np.ndarray, " n"]
    log_proposals: Float[np.ndarray, " n"]
    islands: Int[np.ndarray, " n"]
    regions: Int[np.ndarray, " n"]
    chained: Bool[np.ndarray, " n"]


class Bridged(NamedTuple):
    """What comes of a bridge.

    Attributes:
        log_weights: The weights of all draws, which sum to the evidence.
        log_evidence: Ln of the integral of the density.
        error: Its standard error, from the scatter of the islands.
        ess: The effective number of draws.
    """

    log_weights: Float[np.ndarray, " n"]
    log_evidence: float
    error: float
    ess: float


def bridge(seen: Seen, islands: int, efficiency: float) -> Bridged:
    """Computes the evidence, its error, and the weights of all draws."""
    gains = seen.log_densities - seen.log_proposals
    gains = np.where(np.isfinite(gains), gains, -np.inf)
    counts = np.where(seen.chained, efficiency, 1.0)
    fresh = np.log(max(int(np.sum(~seen.chained)), 1))
    log_weights = np.full(len(gains), -np.inf)
    masses, influences, levelled = [], [], log_weights.copy()
    for region in np.unique(seen.regions):
        here = np.flatnonzero((seen.regions == region) & (gains > -np.inf))
        if not len(here):
            continue
        chained = float(np.sum(counts[here][seen.chained[here]]))
        log_mass = _solve(gains[here], counts[here], fresh, chained)
        if log_mass == -np.inf:
            continue
        terms = _terms(log_mass, gains[here], counts[here], fresh, chained)
        log_weights[here] = np.log(np.maximum(terms, 1e-300)) + log_mass
        masses.append(log_mass)
        where = seen.islands[here]
        influences.append(_influence(terms, counts[here], seen.chained[here], where, islands))
        levelled[here] = _levelled(log_weights[here], where, influences[-1])
    if not masses:
        return Bridged(log_weights, -np.inf, np.inf, 0.0)
    log_evidence = float(np.logaddexp.reduce(masses))
    shares = np.exp(np.array(masses) - log_evidence)
    total = shares @ np.array(influences)
    error = float(np.sqrt(np.sum((total - total.mean()) ** 2) / (islands * (islands - 1))))
    shares = np.exp(log_weights - log_evidence)
    ess = float(1 / np.sum(shares**2 / counts))
    return Bridged(levelled, log_evidence, error, ess)


def _terms(
    log_mass: float,
    gains: Float[np.ndarray, " n"],
    counts: Float[np.ndarray, " n"],
    log_fresh: float,
    chained: float,
) -> Float[np.ndarray, " n"]:
    """The terms of the equation, whose sum is one at the solution."""
    return counts / (np.exp(np.minimum(log_fresh + log_mass - gains, 700)) + chained)


def _solve(
    gains: Float[np.ndarray, " n"],
    counts: Float[np.ndarray, " n"],
    log_fresh: float,
    chained: float,
) -> float:
    """Solves for ln Z; the sum of the terms falls from above one to zero as ln Z grows."""
    importance = float(np.logaddexp.reduce(gains)) - log_fresh
    if not chained:
        return importance

    def excess(log_mass: float) -> float:
        return float(np.sum(_terms(log_mass, gains, counts, log_fresh, chained))) - 1

    low, high = float(np.min(gains)) - log_fresh - 30, float(np.max(gains)) + 30
    if excess(low) <= 0:  # No draw of the proposal came here: there is nothing to weigh against.
        return -np.inf
    return float(np.asarray(brentq(excess, low, high, xtol=1e-6)))


def _influence(
    terms: Float[np.ndarray, " n"],
    counts: Float[np.ndarray, " n"],
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
    number = max(float(numbers.sum()), 1.0)
    means = np.where(numbers > 0, sums / np.maximum(numbers, 1), sums.sum() / number)
    change = islands * fresh - fresh.sum() + means * number - sums.sum()
    slope = np.sum(terms * (1 - terms * np.sum(counts[chained]) / counts))
    return change / max(float(slope), 1e-12)


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
