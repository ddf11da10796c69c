"""Gaussian fits to a log density: how good each is, and whether two agree."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from scipy.linalg import solve_triangular

from latentuq.core.compilation import bounded_jit
from latentuq.inference.el2o import el2o_update, fit_el2o
from latentuq.inference.mixture import Mixture
from latentuq.inference.result import Counts
from latentuq.inference.target import BATCH
from studies.baselines.laplace_mixture import laplace
from studies.baselines.result import LogDensity

LAPLACE, EL2O, HESSIANS = "laplace", "el2o", "el2o-hessians"
"""The paper's fit, ours from gradients, and the paper's update with averaged Hessians."""
TITLES = {
    LAPLACE: "Laplace (the paper's EL2O)",
    EL2O: "EL2O, gradients",
    HESSIANS: "EL2O, averaged Hessians",
    "mean-field": "mean-field SVI",
    "full-rank": "full-rank SVI",
}
"""The names of all Gaussian fits in tables and figures."""
BOUND_DRAWS = 8192
"""The number of draws from which the ELBO of a fit is estimated."""

_SAMPLES, _ITERATIONS = 128, 12
# With so many draws their noise no longer decides.
_MANY_SAMPLES, _MANY_ITERATIONS = 2048, 30


class Gaussian(NamedTuple):
    """N(mean, factor factor^T), with a lower factor."""

    mean: Float[np.ndarray, " dim"]
    factor: Float[np.ndarray, "dim dim"]

    @property
    def precision(self) -> Float[np.ndarray, "dim dim"]:
        root = solve_triangular(self.factor, np.eye(len(self.mean)), lower=True)
        return root.T @ root

    @property
    def std(self) -> Float[np.ndarray, " dim"]:
        return np.sqrt(np.sum(self.factor**2, axis=1))

    def log_prob(self, us: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Ln of the density at each row."""
        whitened = solve_triangular(self.factor, (us - self.mean).T, lower=True)
        log_det = np.sum(np.log(np.diagonal(self.factor)))
        dim = len(self.mean)
        return -0.5 * (np.sum(whitened**2, axis=0) + dim * np.log(2 * np.pi)) - log_det


def read_gaussian(cell: Mapping[str, Any]) -> Gaussian:
    """A fit as a cell holds it."""
    return Gaussian(np.array(cell["mean"]), np.array(cell["factor"]))


def gaussian_kl(a: Gaussian, b: Gaussian) -> float:
    """KL(a | b) in nats, in closed form."""
    root = solve_triangular(b.factor, a.factor, lower=True)
    gap = solve_triangular(b.factor, b.mean - a.mean, lower=True)
    log_ratio = np.sum(np.log(np.diagonal(b.factor))) - np.sum(np.log(np.diagonal(a.factor)))
    return float(0.5 * (np.sum(root**2) + gap @ gap - len(gap)) + log_ratio)


def distance(
    a: Float[np.ndarray, " dim"], b: Float[np.ndarray, " dim"], std: Float[np.ndarray, " dim"]
) -> float:
    """Root mean square over the dimensions of the gap in units of `std`."""
    return float(np.sqrt(np.mean(((np.asarray(a) - b) / std) ** 2)))


@bounded_jit
def _gaps(
    key: Key[Array, ""], log_density_fn: LogDensity, q: Mixture, n: int
) -> Float[Array, " n"]:
    """Ln p - ln q at draws of q."""
    u = q.sample(key, n)
    return jax.lax.map(lambda v: log_density_fn(v) - q.log_prob(v), u, batch_size=min(BATCH, n))


def describe_fit(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    mean: Float[Array, " dim"],
    factor: Float[Array, "dim dim"],
    n: int = BOUND_DRAWS,
) -> dict[str, Any]:
    """A fit as a cell, with its ELBO and the standard error of the ELBO's estimate.

    The ELBO is <ln p - ln q>_q = ln evidence - KL(q | p).
    """
    parts = [jnp.asarray(part, float) for part in (mean, factor)]
    q = Mixture(jnp.zeros(1), *(part[None] for part in parts))
    gaps = np.asarray(_gaps(key, log_density_fn, q, n), np.float64)
    return {
        "mean": parts[0].tolist(),
        "factor": parts[1].tolist(),
        "elbo": float(np.mean(gaps)),
        "elbo_error": float(np.std(gaps, ddof=1) / np.sqrt(n)),
    }


def fit_gaussians(
    key: Key[Array, ""], log_density_fn: LogDensity, mode: Float[np.ndarray, " dim"]
) -> dict[str, Any]:
    """Laplace's Gaussian at a mode and two kinds of EL2O from there (`fits`), with ELBO and cost.

    "el2o" matches gradients; "el2o-hessians" averages Hessians, as the paper's update does. Both
    draw from the current fit.
    """
    start = bounded_jit(laplace)(log_density_fn, jnp.asarray(mode, float))
    spent = _SAMPLES * (_ITERATIONS + 2)
    found: dict[str, tuple[Any, Counts]] = {LAPLACE: (start, Counts(hessians=1))}
    settings = {"samples": _SAMPLES, "iterations": _ITERATIONS}
    for name, alpha, counts in (
        (EL2O, 0.0, Counts(gradients=spent)),
        (HESSIANS, float("inf"), Counts(hessians=spent)),
    ):
        fit_key = jax.random.fold_in(key, len(found))
        fit = fit_el2o(fit_key, log_density_fn, start.mean, start.factor, **settings, alpha=alpha)
        found[name] = (fit, counts)
    bound_key = jax.random.fold_in(key, 99)
    fits = {
        name: describe_fit(bound_key, log_density_fn, fit.mean, fit.factor)
        | {"forward_equivalents": counts.forward_equivalents(len(mode))}
        for name, (fit, counts) in found.items()
    }
    return {"fits": fits}


def continue_el2o(
    key: Key[Array, ""], log_density_fn: LogDensity, start: Gaussian
) -> dict[str, Any]:
    """EL2O from another method's fit on many draws: where it stays, the two agree."""
    fit_key, bound_key = jax.random.split(key)
    mean, factor = (jnp.asarray(part, float) for part in start)
    settings = {"samples": _MANY_SAMPLES, "iterations": _MANY_ITERATIONS}
    fit = fit_el2o(fit_key, log_density_fn, mean, factor, **settings)
    return describe_fit(bound_key, log_density_fn, fit.mean, fit.factor) | settings


def measure_step_noise(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    exact: Gaussian,
    samples: int = 32,
    repeats: int = 64,
) -> dict[str, float]:
    """How far random draws alone move a fit that is exact already, for a Gaussian target.

    With u ~ q = p = N(mean, S), two estimates of the step of the mean from the same draws:

        plain  S <grad ln p>                   stochastic KL minimisation
        el2o   <u + S grad ln p> - mean        the paper's update

    Returns:
        The root mean square of each in standard deviations of the posterior, and the largest
        KL(fit | exact) of one EL2O update from draws of a Gaussian that is one standard deviation
        off and half as wide again.
    """
    mean, factor = (jnp.asarray(part, jnp.float32) for part in exact)
    gradient = jax.jit(jax.vmap(jax.grad(log_density_fn)))
    plain, el2o, divergences = [], [], []
    for repeat_key in jax.random.split(key, repeats):
        noise = jax.random.normal(repeat_key, (samples, len(mean)))
        # factor^T grad ln p is S grad ln p in standard deviations.
        pull = np.asarray(gradient(mean + noise @ factor.T) @ factor, np.float64)
        plain.append(np.mean(pull, axis=0))
        el2o.append(np.mean(pull + np.asarray(noise, np.float64), axis=0))
        off = mean + factor @ jnp.ones_like(mean) + 1.5 * noise @ factor.T
        new_mean, precision = el2o_update(off, gradient(off))
        covariance = np.linalg.inv(np.asarray(precision, np.float64))
        fit = Gaussian(np.asarray(new_mean, np.float64), np.linalg.cholesky(covariance))
        divergences.append(gaussian_kl(fit, exact))
    return {
        "plain": float(np.sqrt(np.mean(np.square(plain)))),
        "el2o": float(np.sqrt(np.mean(np.square(el2o)))),
        "el2o_kl": max(divergences),
        "samples": samples,
        "repeats": repeats,
    }


def measure_slices(
    log_density_fn: LogDensity,
    centre: Float[np.ndarray, " dim"],
    std: Float[np.ndarray, " dim"],
    fits: Mapping[str, Gaussian],
    directions: list[int],
    points: int = 61,
) -> list[dict[str, Any]]:
    """-ln p through a mode along some coordinates, and the fits as the paper plots them.

    Each fit is drawn through its own mean: its curve along coordinate i is -ln p(mean) plus
    (t - mean_i)^2 P_ii / 2, so that it touches the exact curve only if its mean is the mode.
    Everything is relative to -ln p at the mode.
    """
    evaluate = jax.jit(jax.vmap(lambda u: -log_density_fn(u)))

    def heights(us):
        return np.asarray(evaluate(jnp.asarray(us, jnp.float32)), np.float64)

    base = heights(centre[None])[0]
    found = []
    for i in directions:
        steps = centre[i] + np.linspace(-4 * std[i], 4 * std[i], points)
        us = np.tile(centre, (points, 1))
        us[:, i] = steps
        curves = {}
        for name, q in fits.items():
            above = heights(q.mean[None])[0] - base
            curve = above + 0.5 * q.precision[i, i] * (steps - q.mean[i]) ** 2
            curves[name] = np.round(curve, 3).tolist()
        exact = np.round(heights(us) - base, 3).tolist()
        steps = np.round(steps, 4).tolist()
        found.append({"direction": i, "steps": steps, "exact": exact, "fits": curves})
    return found
