"""Refining a proposal without moves: from its own weighted draws."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from densities import two_gaussians
from latentuq.inference.importance import importance_sample
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.refine import LADDER, begin, reweigh
from latentuq.inference.target import Target

DIM = 3
TARGET = Target(two_gaussians(DIM, 6.0, (0.7, 0.3)).log_prob, DIM)
# One wide component over both.
WIDE = Mixture(jnp.zeros(1), jnp.zeros((1, DIM)), 3.0 * jnp.eye(DIM)[None], 10.0)


def first_draws():
    proposal = Defensive(begin(WIDE).mixture)
    return importance_sample(jax.random.key(0), TARGET.log_density, proposal, 4096)


def test_reweighing_finds_places_and_widths_that_the_proposal_lacks():
    target, ladder, key = TARGET, begin(WIDE), jax.random.key(0)
    ess = []
    for step in range(3):
        draw_key, fit_key = jax.random.split(jax.random.fold_in(key, step))
        proposal = Defensive(ladder.mixture)
        draws = importance_sample(draw_key, target.log_density, proposal, 4096)
        ess.append(float(draws.ess))
        ladder = reweigh(fit_key, target, ladder, draws)
    assert ess[-1] > 2 * ess[0]
    assert abs(float(draws.log_evidence)) < 0.1
    used = [int(np.sum(fit.log_weights > -jnp.inf)) for fit in ladder.fits]
    assert used == [rung.components for rung in LADDER]
    assert ladder.mixture.components == sum(used)
    for fit in ladder.fits:
        np.testing.assert_allclose(np.exp(jax.nn.logsumexp(fit.log_weights)), 1, rtol=1e-5)


def test_draws_without_any_weight_break_nothing():
    target, ladder, draws = TARGET, begin(WIDE), first_draws()
    nothing = jnp.full_like(draws.log_densities, -jnp.inf)
    draws = dataclasses.replace(draws, log_densities=nothing, log_weights=nothing)
    ladder = reweigh(jax.random.key(0), target, ladder, draws)
    assert np.all(np.isfinite(ladder.mixture.means))
