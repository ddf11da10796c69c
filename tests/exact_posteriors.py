"""Posteriors made of exact draws, which tests of what comes after the inference start from."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from latentuq.forward.mask import RandomMask
from latentuq.inference.causes import Cause
from latentuq.inference.importance import WeightedDraws, effective_sample_size
from latentuq.inference.mixture import Defensive, gaussian_mixture
from latentuq.inference.result import Counts, Diagnostics, Inference, ProbeRecord, SearchRecord
from latentuq.inference.verdict import Mark, Reason, Verdict
from latentuq.likelihood.noise import GaussianNoise
from latentuq.posterior.posterior import Posterior
from latentuq.posterior.solve import make_posterior
from latentuq.problem.inverse import InverseProblem
from studies.exact import exact_posterior, linear_prior

SHAPE = (6, 5)
DIM = 3
N = 4096
KEY = jax.random.key(7)


def make_inference(draws, log_weights, log_densities, modes, mode_log_densities, log_evidence):
    """An answer of the engine with the given draws: unit Gaussians of equal weight at the modes."""
    draws, modes = jnp.asarray(draws, jnp.float32), jnp.asarray(modes, jnp.float32)
    log_weights = jnp.asarray(log_weights, jnp.float32)
    n, (count, dim) = len(draws), modes.shape
    weights = jnp.full(count, 1 / count)
    factors = jnp.tile(jnp.eye(dim), (count, 1, 1))
    ess = effective_sample_size(log_weights)
    confirmed = {"khat": -math.inf, "limit": 0.7, "ess": ess, "error": 0.02}
    confirmed |= {"missed_mass": 0.03, "starts": 4}
    return Inference(
        modes=modes,
        log_densities=jnp.asarray(mode_log_densities, jnp.float32),
        weights=weights,
        weight_errors=jnp.full(count, 0.01),
        means=modes,
        factors=factors,
        proposal=Defensive(gaussian_mixture(weights, modes, factors)),
        membership=jnp.eye(count),
        draws=WeightedDraws(
            draws=draws,
            log_weights=log_weights,
            log_densities=jnp.asarray(log_densities, jnp.float32),
            log_proposals=jnp.zeros(n),
            log_evidence=jnp.asarray(log_evidence, jnp.float32),
            log_evidence_error=jnp.asarray(0.02),
            khat=jnp.asarray(-jnp.inf),
            ess=ess,
            islands=jnp.arange(n),
            sources=jnp.arange(n),
        ),
        search=SearchRecord(jnp.zeros(4), jnp.asarray([0, 0, -1, 0]), jnp.ones(4, int)),
        probes=ProbeRecord(draws[:2], jnp.zeros(2, int)),
        diagnostics=Diagnostics(
            khat=-math.inf,
            khat_limit=0.7,
            ess=float(ess),
            draws=n,
            el2o=(0.25,) * count,
            missed_mass=0.03,
            new_basin_chance=0.125,
            rounds=1,
            turns=2.5,
            drift=0.05,
            counts=Counts(5, 6, 7, 8),
            forward_equivalents=99,
            seconds={"search": 0.5, "fit": 1.5},
        ),
        verdict=Verdict(Mark((Reason(Cause.CONFIRMED, confirmed),))),
    )


def make_problem(operator=None, noise=0.1, model_error=0.1):
    prior = linear_prior(jax.random.key(0), DIM, SHAPE, model_error)
    bound = (operator or RandomMask(0.4, seed=1)).bind(SHAPE)
    y = bound(prior.sample(jax.random.key(1), 1)[0])
    return InverseProblem(prior, bound, GaussianNoise(noise), y)


def solve_exactly(problem, n=N):
    """A posterior made of independent draws of the exact one."""
    exact = exact_posterior(problem)
    normal = scipy.stats.multivariate_normal(exact.mean, exact.covariance, seed=3)
    draws = normal.rvs(n)
    log_densities = exact.log_evidence + normal.logpdf(draws)
    top = exact.log_evidence + normal.logpdf(exact.mean)
    inference = make_inference(
        draws, np.full(n, -np.log(n)), log_densities, [exact.mean], [top], exact.log_evidence
    )
    return make_posterior(KEY, inference, problem)


def plain_posterior(draws, weights, log_density_fn=None, log_evidence=0.0):
    """A posterior without images, as `solve_density` makes it."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.asarray(weights, float))
    draws = np.asarray(draws, float)
    inference = make_inference(
        draws, log_weights, np.zeros(len(draws)), draws[:2], [0.0, -1.0], log_evidence
    )
    return Posterior(
        inference, KEY, log_density_fn=log_density_fn, no_problem="There are no images here."
    )
