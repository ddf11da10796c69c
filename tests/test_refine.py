"""Refining a proposal: from its own weighted draws and from particles that move."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from densities import two_gaussians
from latentuq.inference.importance import importance_sample
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.pool import add_batch, first_batch
from latentuq.inference.refine import COMPONENTS, PROPOSED, begin, climb, widened
from latentuq.inference.target import Target

DIM = 3
TARGET = Target(two_gaussians(DIM, 6.0, (0.7, 0.3)).log_prob, DIM)
# One wide component over both.
WIDE = Mixture(jnp.zeros(1), jnp.zeros((1, DIM)), 3.0 * jnp.eye(DIM)[None], 10.0)


def sampled(key, mixture):
    proposal = Defensive(mixture)
    return proposal, importance_sample(key, TARGET.log_density, proposal, 4096)


def test_climbing_finds_places_and_widths_that_the_proposal_lacks():
    fit, key = begin(WIDE), jax.random.key(0)
    proposal, draws = sampled(key, widened(fit.mixture))
    pool, ess = first_batch(proposal, draws), [float(draws.ess)]
    for step in range(3):
        fit_key, draw_key = jax.random.split(jax.random.fold_in(key, step))
        fit = climb(fit_key, TARGET, fit, pool, bouts=1)
        proposal, draws = sampled(draw_key, widened(fit.mixture))
        pool = add_batch(pool, proposal, draws)
        ess.append(float(draws.ess))
    assert ess[-1] > 2 * ess[0]
    assert abs(float(draws.log_evidence)) < 0.05
    assert fit.mixture.components == COMPONENTS
    assert widened(fit.mixture).components == PROPOSED
    for mixture in (fit.mixture, widened(fit.mixture)):
        np.testing.assert_allclose(np.exp(jax.nn.logsumexp(mixture.log_weights)), 1, rtol=1e-5)


def test_draws_without_any_weight_break_nothing():
    proposal, draws = sampled(jax.random.key(0), widened(begin(WIDE).mixture))
    nothing = jnp.full_like(draws.log_densities, -jnp.inf)
    draws = dataclasses.replace(draws, log_densities=nothing, log_weights=nothing)
    pool = first_batch(proposal, draws)
    assert pool.ess == 0
    fit = climb(jax.random.key(0), TARGET, begin(WIDE), pool, bouts=1)
    assert np.all(np.isfinite(fit.mixture.means))
