"""Importance sampling with a certificate: Pareto-smoothed weights, evidence, error bars.

Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling, JMLR 25.
"""

import math
from collections.abc import Callable
from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, Key

# Fewer weights than this in the tail say nothing about it.
_FEWEST_TAIL = 5
# Weights that agree this well have no tail: a fit would see the rounding of ln p - ln q.
_EQUAL = 0.01


class Proposal(Protocol):
    """What importance sampling needs of a distribution."""

    def sample(self, key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
        """Independent draws."""
        ...

    def log_prob(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Normalised log density of one point."""
        ...


class WeightedDraws(eqx.Module):
    """Draws of a proposal, weighted to represent the target.

    Attributes:
        draws: Points.
        log_weights: Pareto-smoothed and normalised, logsumexp = 0; all -inf if the density was
            finite nowhere.
        log_densities: Ln p, -inf where it was not finite.
        log_proposals: Ln q.
        log_evidence: Ln of the mean of the smoothed weights before they are normalised.
        log_evidence_error: Its standard error by the delta method, sqrt(1 / ESS - 1 / n), from the
            weights before smoothing: smoothing caps the largest, and would understate the spread.
        khat: Shape of the weights' tail, see `pareto_khat`.
        ess: Effective sample size of the smoothed weights.
    """

    draws: Float[Array, "n dim"]
    log_weights: Float[Array, " n"]
    log_densities: Float[Array, " n"]
    log_proposals: Float[Array, " n"]
    log_evidence: Float[Array, ""]
    log_evidence_error: Float[Array, ""]
    khat: Float[Array, ""]
    ess: Float[Array, ""]


@eqx.filter_jit
def importance_sample(
    key: Key[Array, ""],
    log_density_fn: Callable[[Float[Array, " dim"]], Float[Array, ""]],
    proposal: Proposal,
    n: int,
    batch: int = 1024,
) -> WeightedDraws:
    """Draws from a proposal and weights the draws by p / q.

    Args:
        key: Randomness of the draws.
        log_density_fn: Unnormalised log density of one point; not finite counts as zero density.
        proposal: Where the draws come from.
        n: How many. A multiple of `batch` compiles the density once, anything else twice.
        batch: Draws at which the density is evaluated at once, which bounds the memory.
    """
    draws = proposal.sample(key, n)
    # Two maps: in one, XLA's code for both together took half as long again.
    log_densities = jax.lax.map(log_density_fn, draws, batch_size=min(batch, n))
    log_proposals = jax.lax.map(proposal.log_prob, draws, batch_size=min(batch, n))
    log_densities = jnp.where(jnp.isfinite(log_densities), log_densities, -jnp.inf)
    ratios = log_densities - log_proposals
    ratios = jnp.where(jnp.isfinite(ratios), ratios, -jnp.inf)
    smoothed, khat = smooth_weights(ratios)
    log_sum = logsumexp(smoothed)
    spread = 1 / effective_sample_size(ratios) - 1 / n
    return WeightedDraws(
        draws=draws,
        log_weights=smoothed - jnp.where(log_sum > -jnp.inf, log_sum, 0),
        log_densities=log_densities,
        log_proposals=log_proposals,
        log_evidence=log_sum - math.log(n),
        log_evidence_error=jnp.sqrt(jnp.maximum(spread, 0)),
        khat=khat,
        ess=effective_sample_size(smoothed),
    )


def effective_sample_size(log_weights: Float[Array, " n"]) -> Float[Array, ""]:
    """(sum w)^2 / sum w^2; zero if every weight is zero."""
    weights = jnp.exp(log_weights - _finite_max(log_weights))
    total = jnp.sum(weights)
    return jnp.where(total > 0, total**2 / jnp.where(total > 0, jnp.sum(weights**2), 1), 0)


def systematic_index(
    key: Key[Array, ""], log_weights: Float[Array, " n"], count: int
) -> Int[Array, " count"]:
    """Indices of `count` draws, each as often as its weight says, rounded up or down."""
    levels = (jnp.arange(count) + jax.random.uniform(key)) / count
    index = jnp.searchsorted(jnp.cumsum(jax.nn.softmax(log_weights)), levels)
    return jnp.minimum(index, len(log_weights) - 1)


def khat_threshold(samples: int) -> float:
    """The k-hat up to which that many draws give usable estimates: min(1 - 1 / log10 S, 0.7)."""
    return min(1 - 1 / math.log10(samples), 0.7)


def pareto_khat(log_weights: Float[Array, " n"]) -> Float[Array, ""]:
    """Shape of the generalised Pareto distribution of the largest weights.

    Moments of the weights exist up to order 1 / k. -inf: the largest weights agree within one per
    cent, there is no tail. inf: there is one that cannot be fitted, because fewer than 21 weights
    are given or because a quarter of the largest ones vanish or equal the next.
    """
    return smooth_weights(log_weights)[1]


def smooth_weights(
    log_weights: Float[Array, " n"],
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """Replaces the largest weights by the quantiles of a generalised Pareto distribution.

    The tail is the min(n / 5, 3 sqrt n) largest. No weight ends above the largest raw one; where
    no tail could be fitted the weights come back as they were.

    Returns:
        Log weights, on the scale of the given ones, and k-hat.
    """
    n = log_weights.shape[0]
    size = math.ceil(min(0.2 * n, 3 * math.sqrt(n)))
    if size < _FEWEST_TAIL:
        return log_weights, jnp.full((), jnp.inf, log_weights.dtype)
    order = jnp.argsort(log_weights)
    tail = order[n - size :]
    top = _finite_max(log_weights)
    cutoff = jnp.exp(log_weights[order[n - size - 1]] - top)
    exceedances = jnp.exp(log_weights[tail] - top) - cutoff
    k, scale = _fit_pareto(exceedances)
    k = jnp.where(cutoff > 1 - _EQUAL, -jnp.inf, k)
    quantiles = scale * _pareto_quantiles(k, size) + cutoff
    replaced = top + jnp.minimum(jnp.log(quantiles), 0)
    smoothed = jnp.where(jnp.isfinite(k), replaced, log_weights[tail])
    return log_weights.at[tail].set(smoothed), k


def _fit_pareto(
    exceedances: Float[Array, " size"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Shape k and scale of a generalised Pareto distribution, from sorted exceedances.

    Zhang and Stephens (2009): the posterior mean of theta = -k / scale over a grid under a weak
    prior, then k = mean ln(1 - theta x); last, ten pseudo-observations of k = 1/2.
    """
    size = exceedances.shape[0]
    largest = exceedances[-1]
    quartile = exceedances[math.floor(size / 4 + 0.5) - 1]
    fits = quartile > 0
    # In units of the largest exceedance, theta < 1, and `margin` = 1 - theta > 0 is what the
    # logarithms need to full precision: 1 - theta x = (1 - x) + margin x.
    x = exceedances / jnp.where(fits, largest, 1)
    points = 30 + math.floor(math.sqrt(size))
    grid = jnp.arange(1, points + 1, dtype=x.dtype) - 0.5
    star = jnp.where(fits, x[math.floor(size / 4 + 0.5) - 1], 1)
    margins = (jnp.sqrt(points / grid) - 1) / (3 * star)

    def profile(margin):
        theta = 1 - margin
        near, far = jnp.log((1 - x) + margin * x), jnp.log1p(-theta * x)
        k = jnp.mean(jnp.where(theta > 0.5, near, far))
        # The scale tends to the mean of x as the tail tends to an exponential.
        scale = jnp.where(theta == 0, jnp.mean(x), -k / jnp.where(theta == 0, 1, theta))
        return k, scale

    shapes, scales = jax.vmap(profile)(margins)
    weights = jax.nn.softmax(-size * (jnp.log(scales) + shapes + 1))
    k, scale = profile(weights @ margins)
    corrected = (size * k + 10 * 0.5) / (size + 10)
    return jnp.where(fits, corrected, jnp.inf), largest * scale


def _pareto_quantiles(k: Float[Array, ""], size: int) -> Float[Array, " size"]:
    """Quantiles ((1 - p)^-k - 1) / k of the unit-scale distribution at p = (i - 1/2) / size."""
    levels = (jnp.arange(1, size + 1, dtype=k.dtype) - 0.5) / size
    hazards = -jnp.log1p(-levels)
    exponential = jnp.abs(k) < 10 * jnp.finfo(k.dtype).eps
    safe = jnp.where(exponential, 1, k)
    return jnp.where(exponential, hazards, jnp.expm1(safe * hazards) / safe)


def _finite_max(log_weights: Float[Array, " n"]) -> Float[Array, ""]:
    top = jnp.max(log_weights)
    return jnp.where(top > -jnp.inf, top, 0)


def expectation(
    values: Float[Array, "n ..."], log_weights: Float[Array, " n"]
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Self-normalised mean sum_s W_s f_s and its standard error.

    The error is the delta method's, sqrt(sum_s W_s^2 (f_s - mean)^2). Values of zero weight may be
    anything, NaN included; if every weight is zero there is no mean, and NaN says so.
    """
    weights = jax.nn.softmax(log_weights)
    weights = weights.reshape(-1, *[1] * (values.ndim - 1))
    values = jnp.where(weights > 0, values, 0)
    mean = jnp.sum(weights * values, axis=0)
    return mean, jnp.sqrt(jnp.sum((weights * (values - mean)) ** 2, axis=0))


def mode_weights(
    draws: WeightedDraws, responsibilities: Float[Array, "n components"]
) -> tuple[Float[Array, " components"], Float[Array, " components"]]:
    """Posterior mass of each mode, sum_s W_s rho_k(u_s), and its standard error."""
    return expectation(responsibilities, draws.log_weights)
