"""EL2O: a Gaussian fitted by matching the derivatives of its log density to the target's.

Seljak and Yu (2019, arXiv 1901.04454); Boehm, Lanusse and Seljak (2019, arXiv 1910.10046).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from latentuq.core.compilation import bounded_jit
from latentuq.inference.mixture import lower_factor, normal_draws
from latentuq.inference.target import LogDensity

# The smallest eigenvalue of a fitted precision, relative to the largest.
_FLOOR = 1e-5
# A change of the merit within this many standard errors is noise.
_SIGNIFICANT = 4.0


class EL2OFit(NamedTuple):
    """A fitted Gaussian.

    Attributes:
        mean: The mean.
        factor: The lower Cholesky factor of the covariance.
        value: The objective at the fit, orders 0 and 1 with unit weights, per term, in coordinates
            that the fit whitens: zero for a Gaussian target, dimensionless otherwise.
        log_mass: The mean <ln p - ln q> over draws of the fit, an estimate (from below) of ln of
            the mass; it is minus the paper's ln pbar. If it is -inf the density was never finite,
            and the fit is the start.
    """

    mean: Float[Array, " dim"]
    factor: Float[Array, "dim dim"]
    value: Float[Array, ""]
    log_mass: Float[Array, ""]


def el2o_update(
    draws: Float[Array, "n dim"],
    gradients: Float[Array, "n dim"],
    hessian_mean: Float[Array, "dim dim"] | None = None,
    alpha: float = 0.0,
    weights: Float[Array, " n"] | None = None,
) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
    """Finds the Gaussian with the least squared errors of gradients and Hessians on fixed draws.

    With V = cov(u), S = cov(u, grad ln p) and H the mean Hessian, its precision P solves

        (V + alpha I) P + P (V + alpha I) = -(S + S^T) - 2 alpha H

    and its mean is <u + P^-1 grad ln p>. Exact for a Gaussian target.

    Args:
        draws: The points u, more than dim of them unless alpha > 0.
        gradients: The gradients of ln p there.
        hessian_mean: The mean Hessian of ln p over the draws.
        alpha: The weight alpha_2 / alpha_1 of the Hessian residuals, summed over all i and j. With
            0 only gradients count; inf gives P = -H, the paper's update.
        weights: The weights of the draws, which sum to one; they are equal by default.

    Returns:
        The mean, and the precision with eigenvalues raised to 1e-5 of the largest where below.
    """
    if hessian_mean is None and alpha != 0:
        raise ValueError(f"el2o_update needs hessian_mean for alpha = {alpha}.")
    n, dim = draws.shape
    if weights is None:
        weights = jnp.full(n, 1 / n, draws.dtype)
    if hessian_mean is None:
        hessian_mean = jnp.zeros((dim, dim), draws.dtype)
    # Both sides divided by 1 + alpha, so that an infinite alpha is no special case.
    on_gradients = 1 / (1 + alpha)
    on_hessians = 1 - on_gradients
    centre, force = weights @ draws, weights @ gradients
    weighted = weights[:, None] * (draws - centre)
    V = weighted.T @ (draws - centre)
    S = weighted.T @ (gradients - force)
    right = -on_gradients * (S + S.T) - on_hessians * (hessian_mean + hessian_mean.T)
    # In the eigenbasis of V the equation is solved entry by entry.
    spread, basis = jnp.linalg.eigh(V)
    left = on_gradients * (spread[:, None] + spread) + 2 * on_hessians
    seen = left > dim * jnp.finfo(left.dtype).eps * jnp.max(left)
    entries = jnp.where(seen, basis.T @ right @ basis / jnp.where(seen, left, 1), 0)
    eigenvalues, vectors = jnp.linalg.eigh(basis @ entries @ basis.T)
    eigenvalues = jnp.maximum(eigenvalues, _FLOOR * jnp.max(jnp.abs(eigenvalues)))
    mean = centre + vectors @ (vectors.T @ force / eigenvalues)
    return mean, (vectors * eigenvalues) @ vectors.T


class _Evaluation(NamedTuple):
    """A Gaussian, how well it does on draws of its own, and the update those draws suggest."""

    mean: Float[Array, " dim"]
    factor: Float[Array, "dim dim"]
    log_mass: Float[Array, ""]
    log_mass_error: Float[Array, ""]
    value: Float[Array, ""]
    step: Float[Array, " dim"]
    precision: Float[Array, "dim dim"]


@bounded_jit
def fit_el2o(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    mean: Float[Array, " dim"],
    factor: Float[Array, "dim dim"],
    *,
    samples: int,
    iterations: int,
    alpha: float = 0.0,
) -> EL2OFit:
    """Fits a Gaussian to a log density by iterated EL2O updates, started at N(mean, L L^T).

    Each update is made in coordinates that the current fit whitens, on fresh draws of it. Its fixed
    points are those of <ln p - ln q>_q (the same conditions, by Stein's identity), so that is the
    merit by which a trial fit is judged: one that loses significantly is dropped and half the step
    tried. While the merit gains significantly the steps are full (exact at once for a Gaussian
    target); once it changes by noise only they shrink as 1 / t, which averages the noise away.

    Draws at which the density or a derivative is not finite are left out, and the merit is then
    that of q confined to the rest.

    Args:
        key: The randomness of the draws.
        log_density_fn: The unnormalised log density of one point.
        mean: The mean of the first fit, usually a mode.
        factor: The lower Cholesky factor of the first fit's covariance, usually Laplace's.
        samples: The number of draws per iteration, more than dim unless alpha > 0. From 2 dim on
            they are antithetic.
        iterations: The number of updates. The cost is (iterations + 2) * samples gradients.
        alpha: The weight of Hessians against gradients, see `el2o_update`. Unless it is 0 the cost
            includes as many Hessians.
    """
    dim = mean.shape[0]
    if alpha == 0 and samples <= dim:
        raise ValueError(f"Gradients alone need more than {dim} samples in {dim} dimensions.")
    zero, infinity = jnp.zeros((), mean.dtype), jnp.full((), jnp.inf, mean.dtype)
    start = _Evaluation(
        mean,
        factor,
        -infinity,
        zero,
        infinity,
        jnp.zeros_like(mean),
        jnp.eye(dim, dtype=mean.dtype),
    )

    def iterate(state, inputs):
        (best, lag), (key, last) = state, inputs
        trial_mean, trial_factor = _move(best, jnp.where(last, 0, 2 / (2 + lag)))
        trial = _evaluate(key, log_density_fn, trial_mean, trial_factor, samples, alpha)
        gain = trial.log_mass - best.log_mass
        noise = _SIGNIFICANT * best.log_mass_error
        accepted = (trial.log_mass > -jnp.inf) & ((gain >= -noise) | last)
        after_success = jnp.where(gain > noise, lag / 2, lag + 1)
        lag = jnp.where(accepted, after_success, 2 * lag + 2)
        best = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), trial, best)
        return (best, lag), None

    # The first round evaluates the start and the last one the result: the merit of the fit that
    # won the comparisons is biased upwards, that on fresh draws is not.
    rounds = iterations + 2
    inputs = (jax.random.split(key, rounds), jnp.arange(rounds) == rounds - 1)
    (best, _), _ = jax.lax.scan(iterate, (start, zero), inputs)
    return EL2OFit(best.mean, best.factor, best.value, best.log_mass)


def _move(
    fit: _Evaluation, rate: Float[Array, ""]
) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
    """Applies a fraction `rate` of the update: the precision mixes, the force is scaled."""
    eye = jnp.eye(len(fit.mean), dtype=fit.mean.dtype)
    eigenvalues, vectors = jnp.linalg.eigh((1 - rate) * eye + rate * fit.precision)
    force = rate * (fit.precision @ fit.step)
    step = vectors @ (vectors.T @ force / eigenvalues)
    root = vectors / jnp.sqrt(eigenvalues)
    return fit.mean + fit.factor @ step, lower_factor(fit.factor @ root)


def _evaluate(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    mean: Float[Array, " dim"],
    factor: Float[Array, "dim dim"],
    samples: int,
    alpha: float,
) -> _Evaluation:
    dim = mean.shape[0]

    def log_density_at(z):
        return log_density_fn(mean + factor @ z)

    draws = spread_normal_draws(key, samples, dim, mean.dtype)
    log_densities, gradients = jax.vmap(jax.value_and_grad(log_density_at))(draws)
    finite = jnp.isfinite(log_densities) & jnp.all(jnp.isfinite(gradients), axis=1)
    hessians = None
    if alpha != 0:
        hessians = jax.vmap(jax.hessian(log_density_at))(draws)
        finite &= jnp.all(jnp.isfinite(hessians), axis=(1, 2))
        hessians = jnp.where(finite[:, None, None], hessians, 0)
    gradients = jnp.where(finite[:, None], gradients, 0)
    weights = finite / jnp.maximum(jnp.sum(finite), 1).astype(mean.dtype)
    hessian_mean = None if hessians is None else jnp.tensordot(weights, hessians, 1)
    step, precision = el2o_update(draws, gradients, hessian_mean, alpha, weights)
    # ln p - ln q, with q = N(0, I) in z and the determinant of the map from z to u.
    constant = 0.5 * dim * math.log(2 * math.pi) + jnp.sum(jnp.log(jnp.diagonal(factor)))
    gaps = jnp.where(finite, log_densities + 0.5 * jnp.sum(draws**2, axis=1), 0)
    mean_gap = weights @ gaps
    variance = weights @ (gaps - mean_gap) ** 2
    mismatch = weights @ jnp.sum((gradients + draws) ** 2, axis=1)
    share = jnp.mean(finite, dtype=mean.dtype)
    return _Evaluation(
        mean=mean,
        factor=factor,
        log_mass=mean_gap + constant + jnp.log(share),
        log_mass_error=jnp.sqrt(variance / samples),
        value=jnp.where(share > 0, (variance + mismatch) / (dim + 1), jnp.inf),
        step=step,
        precision=precision,
    )


def spread_normal_draws(
    key: Key[Array, ""], n: int, dim: int, dtype: jnp.dtype
) -> Float[Array, "n dim"]:
    """Makes draws, each of law N(0, I), that share out the directions of space.

    Directions are orthogonal within every block of dim draws; when there are enough, every draw
    comes with its negative, which cancels odd terms from averages.
    """
    antithetic = n >= 2 * dim
    count = -(-n // 2) if antithetic else n
    normals = normal_draws(key, (-(-count // dim), dim, dim), dtype)
    # With the signs of R's diagonal moved into Q, Q is uniform over rotations and independent of
    # the lengths of the columns it came from, which therefore serve as its radii.
    # One block after the other: see `cores` on batches of decompositions.
    Q, R = jax.lax.map(jnp.linalg.qr, normals)
    signs = jnp.where(jnp.diagonal(R, axis1=1, axis2=2) < 0, -1, 1)
    columns = Q * (signs * jnp.linalg.norm(normals, axis=1))[:, None, :]
    draws = columns.swapaxes(1, 2).reshape(-1, dim)[:count]
    return jnp.concatenate([draws, -draws])[:n] if antithetic else draws
