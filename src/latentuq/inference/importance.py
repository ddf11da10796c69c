"""Importance sampling with a certificate: Pareto-smoothed weights, evidence, error bars.

Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling, JMLR 25.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, Key
from scipy.special import softmax

from latentuq.core.batches import joined
from latentuq.core.cores import on_cores
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.target import CHUNK, LogDensity, log_densities

# Fewer weights than this in the tail say nothing about it.
_FEWEST_TAIL_WEIGHTS = 5
# Weights that agree this well have no tail: a fit would see the rounding of ln p - ln q.
_EQUAL_WITHIN = 0.01
# What a heavier tail holds beyond the largest weight is taken for that of a tail of this shape that
# reaches as far: its own mean hardly exists, and no certificate holds.
_LARGEST_SHAPE = 0.7


Proposal = Mixture | Defensive


class WeightedDraws(eqx.Module):
    """Draws of a proposal, weighted to represent the target.

    The inference works on them on the host; in its result they are arrays of the device.

    Attributes:
        draws: The points that were drawn.
        log_weights: The weights, Pareto-smoothed and normalised, so that their logsumexp is 0; all
            are -inf if the density was finite nowhere.
        log_densities: The values of ln p, -inf where it was not finite.
        log_proposals: The values of ln q.
        log_evidence: Ln of the mean of the smoothed weights before they are normalised, and of what
            their tail holds beyond the largest of them.
        log_evidence_error: Its standard error, two parts added in quadrature: the delta method's
            sqrt(1 / ESS - 1 / n) of the raw weights, because smoothing understates their spread,
            and the share of what lies beyond the largest one. Raw weights with k-hat above 0.5 have
            no variance; up to 0.7 the second part makes up for that.
        khat: The shape of the weights' tail, see `pareto_khat`.
        ess: The effective sample size of the smoothed weights.
        islands: The island of each draw; the draws of one may depend on each other. Draws that are
            all independent are islands of their own.
        sources: The chain that each draw is of; a draw that no chain has made is its own source.
    """

    draws: Float[Array | np.ndarray, "n dim"]
    log_weights: Float[Array | np.ndarray, " n"]
    log_densities: Float[Array | np.ndarray, " n"]
    log_proposals: Float[Array | np.ndarray, " n"]
    log_evidence: Float[Array | np.ndarray, ""]
    log_evidence_error: Float[Array | np.ndarray, ""]
    khat: Float[Array | np.ndarray, ""]
    ess: Float[Array | np.ndarray, ""]
    islands: Int[Array | np.ndarray, " n"]
    sources: Int[Array | np.ndarray, " n"]

    @property
    def groups(self) -> tuple[Int[Array | np.ndarray, " n"], ...]:
        """The ways to divide the draws, of which the one that shows the largest error counts.

        The scatter of a few islands may be small by chance; that of many chains may be small
        because those of an island have begun at the same place.
        """
        return (self.islands, self.sources)


def importance_sample(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    proposal: Proposal,
    n: int,
) -> WeightedDraws:
    """Makes n draws of a proposal and weights them by p / q.

    A value of ln p that is not finite counts as zero density. Everything is compiled for one number
    of draws, or for n if that is less; the weights are the host's work.
    """
    chunk = min(n, CHUNK)

    def evaluate(key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        # These are three programs because in one XLA's code took two thirds longer.
        draws = draw(key, proposal, chunk)
        values = log_densities(log_density_fn, draws)
        return draws, values, log_densities(proposal.log_prob, draws)

    parts = on_cores(evaluate, [jax.random.fold_in(key, part) for part in range(-(-n // chunk))])
    return weigh(*joined(parts, n))


@eqx.filter_jit
def draw(key: Key[Array, ""], proposal: Proposal, n: int) -> Float[Array, "n dim"]:
    """Draws from a proposal."""
    return proposal.sample(key, n)


def weigh(
    draws: Float[ArrayLike, "n dim"],
    log_densities: Float[ArrayLike, " n"],
    log_proposals: Float[ArrayLike, " n"],
) -> WeightedDraws:
    """Computes smoothed weights, the evidence and the certificate, from ln p and ln q at draws."""
    draws, log_densities, log_proposals = map(np.asarray, (draws, log_densities, log_proposals))
    n = len(draws)
    ratios = log_ratios(log_densities, log_proposals)
    tail = _find_tail(ratios)
    smoothed = ratios.copy()
    smoothed[tail.members] = tail.top + np.log(tail.quantiles)
    log_sum = float(np.logaddexp.reduce(smoothed))
    unseen = tail.unseen / (tail.unseen + math.exp(log_sum - tail.top)) if tail.unseen else 0.0
    ess = effective_sample_size(ratios)
    spread = 1 / ess - 1 / n if ess else np.inf
    numbers = (
        smoothed - (log_sum if log_sum > -np.inf else 0),
        np.where(np.isfinite(log_densities), log_densities, -np.inf),
        log_proposals,
        log_sum - math.log1p(-unseen) - math.log(n),
        math.sqrt(max(spread, 0.0) + unseen**2),
        tail.khat,
        effective_sample_size(smoothed),
    )
    return weighted_draws(draws, numbers, np.arange(n), np.arange(n))


def weighted_draws(
    draws: Float[np.ndarray, "n dim"],
    numbers: Sequence[ArrayLike],
    islands: Int[np.ndarray, " n"],
    sources: Int[np.ndarray, " n"],
) -> WeightedDraws:
    """Makes weighted draws of the numbers in the order of their attributes, in one precision."""
    parts = [np.asarray(number, draws.dtype) for number in numbers]
    return WeightedDraws(draws, *parts, islands=islands, sources=sources)


def log_ratios(
    log_densities: Float[ArrayLike, " n"], log_proposals: Float[ArrayLike, " n"]
) -> Float[np.ndarray, " n"]:
    """Returns the raw log weights ln p - ln q in double precision, -inf where not finite."""
    with np.errstate(invalid="ignore"):
        ratios = np.asarray(log_densities, np.float64) - np.asarray(log_proposals)
    return np.where(np.isfinite(ratios), ratios, -np.inf)


def effective_sample_size(log_weights: Float[np.ndarray, " n"]) -> float:
    """Computes (sum w)^2 / sum w^2, which is zero if every weight is zero."""
    weights = np.exp(log_weights - _finite_max(log_weights))
    total = float(np.sum(weights))
    return total**2 / float(np.sum(weights**2)) if total > 0 else 0.0


def systematic_index(
    rng: np.random.Generator, log_weights: Float[ArrayLike, " n"], count: int
) -> Int[np.ndarray, " count"]:
    """Chooses `count` draws, each as often as its weight says, rounded up or down."""
    shares = _shares(log_weights)
    levels = (np.arange(count) + rng.uniform()) / count
    index = np.searchsorted(np.cumsum(shares), levels, side="right")
    # Rounding may leave the last level beyond the last sum, where there is no draw.
    return np.minimum(index, np.flatnonzero(shares)[-1])


def khat_threshold(samples: int) -> float:
    """Returns the k-hat up to which S draws give usable estimates, min(1 - 1 / log10 S, 0.7)."""
    return min(1 - 1 / math.log10(samples), 0.7)


def pareto_khat(log_weights: Float[np.ndarray, " n"]) -> float:
    """Fits the shape of the generalised Pareto distribution of the largest weights.

    Moments of the weights exist up to order 1 / k. The shape is -inf if there is no tail, because
    the largest weights agree within one per cent. It is inf if there is a tail that cannot be
    fitted, because fewer than 21 weights are given or because a quarter of the largest ones vanish
    or equal the next.
    """
    return _find_tail(np.asarray(log_weights, np.float64)).khat


class _Tail(NamedTuple):
    """The largest weights, in units of the largest one.

    Attributes:
        members: The indices of these weights, the largest last; none if no tail could be fitted.
        top: Ln of the unit.
        quantiles: The quantiles of the generalised Pareto distribution that was fitted, which
            replace the weights; none is above the largest weight.
        khat: The shape of that distribution.
        unseen: What the sum of the weights lacks of the distribution's: a tail reaches farther than
            the draws of it that were made, and the heavier it is the more is missing.
    """

    members: Int[np.ndarray, " size"]
    top: float
    quantiles: Float[np.ndarray, " size"]
    khat: float
    unseen: float


def _find_tail(log_weights: Float[np.ndarray, " n"]) -> _Tail:
    """Fits a generalised Pareto distribution to the largest weights."""
    n, top = len(log_weights), _finite_max(log_weights)
    size = math.ceil(min(0.2 * n, 3 * math.sqrt(n)))
    without = _Tail(np.zeros(0, int), top, np.zeros(0), math.inf, 0.0)
    if size < _FEWEST_TAIL_WEIGHTS:
        return without
    order = np.argsort(log_weights)
    members = order[n - size :]
    cutoff = math.exp(log_weights[order[n - size - 1]] - top)
    if cutoff > 1 - _EQUAL_WITHIN:
        return without._replace(khat=-math.inf)
    k, scale = _fit_pareto(np.exp(log_weights[members] - top) - cutoff)
    if math.isinf(k):
        return without._replace(khat=k)
    quantiles = scale * _pareto_quantiles(k, size) + cutoff
    smoothed = np.minimum(quantiles, 1)
    shape, seen = min(k, _LARGEST_SHAPE), smoothed
    if k > shape:
        unit = _pareto_quantiles(shape, size)
        scale = (smoothed[-1] - cutoff) / unit[-1]
        seen = np.minimum(scale * unit + cutoff, 1)
    unseen = size * (cutoff + scale / (1 - shape)) - float(np.sum(seen))
    return _Tail(members, top, smoothed, k, max(unseen, 0.0))


def _fit_pareto(exceedances: Float[np.ndarray, " size"]) -> tuple[float, float]:
    """Fits shape k and scale of a generalised Pareto distribution to sorted exceedances.

    Following Zhang and Stephens (2009), theta = -k / scale is the posterior mean over a grid under
    a weak prior, and k = mean ln(1 - theta x); last, ten pseudo-observations of k = 1/2 are added.
    """
    size, largest = len(exceedances), exceedances[-1]
    quartile = exceedances[math.floor(size / 4 + 0.5) - 1]
    if not quartile > 0:
        return math.inf, largest
    # In units of the largest exceedance, theta < 1, and `margin` = 1 - theta > 0 is what the
    # logarithms need to full precision: 1 - theta x = (1 - x) + margin x.
    x = exceedances / largest
    points = 30 + math.floor(math.sqrt(size))
    grid = np.arange(1, points + 1) - 0.5
    margins = (np.sqrt(points / grid) - 1) / (3 * quartile / largest)

    def profile(margins):
        theta = 1 - margins
        with np.errstate(divide="ignore", invalid="ignore"):
            near, far = np.log((1 - x) + margins * x), np.log1p(-theta * x)
        k = np.mean(np.where(theta > 0.5, near, far), axis=-1)
        theta = theta[..., 0]
        # The scale tends to the mean of x as the tail tends to an exponential.
        return k, np.where(theta == 0, np.mean(x), -k / np.where(theta == 0, 1, theta))

    shapes, scales = profile(margins[:, None])
    weights = softmax(-size * (np.log(scales) + shapes + 1))
    k, scale = profile(np.atleast_1d(weights @ margins))
    return float((size * k + 10 * 0.5) / (size + 10)), float(largest * scale)


def _pareto_quantiles(k: float, size: int) -> Float[np.ndarray, " size"]:
    """Returns quantiles ((1 - p)^-k - 1) / k of unit scale at p = (i - 1/2) / size."""
    hazards = -np.log1p(-(np.arange(1, size + 1) - 0.5) / size)
    return hazards if abs(k) < 1e-15 else np.expm1(k * hazards) / k


def _finite_max(log_weights: Float[np.ndarray, " n"]) -> float:
    top = float(np.max(log_weights))
    return top if top > -np.inf else 0.0


def _shares(log_weights: Float[ArrayLike, " n"]) -> Float[np.ndarray, " n"]:
    """Returns normalised weights, or NaN if every weight is zero."""
    log_weights = np.asarray(log_weights, np.float64)
    with np.errstate(invalid="ignore"):
        return softmax(log_weights)


def expectation(
    values: Float[ArrayLike, "n ..."],
    log_weights: Float[ArrayLike, " n"],
    groups: Sequence[Int[ArrayLike, " n"]] = (),
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Computes the self-normalised mean sum_s W_s f_s and its standard error.

    The error is the delta method's, from the sums of W_s (f_s - mean) over each independent group
    of draws, and the largest of those that the given ways to divide them show; without any, all
    draws are independent. Values of zero weight may be anything, NaN included; if every weight is
    zero there is no mean, and NaN says so.
    """
    weights, values = _shares(log_weights), np.asarray(values)
    weights = weights.reshape(-1, *[1] * (values.ndim - 1))
    values = np.where(weights > 0, values, 0)
    mean = np.sum(weights * values, axis=0)
    gaps = weights * (values - mean)
    if not groups:
        return mean, np.sqrt(np.sum(gaps**2, axis=0))
    return mean, np.max([_scatter(gaps, np.asarray(each)) for each in groups], axis=0)


def _scatter(
    gaps: Float[np.ndarray, "n ..."], groups: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "..."]:
    """Computes the standard error of the sum of gaps from the sums of independent groups."""
    number = int(np.max(groups)) + 1
    sums = np.zeros((number, *gaps.shape[1:]))
    np.add.at(sums, groups, gaps)
    return np.sqrt(number / max(number - 1, 1) * np.sum(sums**2, axis=0))
