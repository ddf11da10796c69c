"""Refining a proposal: from its own weighted draws and from particles that move."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from densities import two_gaussians
from latentuq.inference.el2o import EL2OFit
from latentuq.inference.importance import effective_sample_size, importance_sample
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.pool import gather
from latentuq.inference.refine import (
    FIT_COMPONENTS,
    PROPOSAL_COMPONENTS,
    climb,
    lift_light_modes,
    log_responsibilities,
    replace_weakest,
    start_fit,
    widened,
)
from latentuq.inference.target import Target

DIM = 3
TARGET = Target(two_gaussians(DIM, 6.0, (0.7, 0.3)).log_prob, DIM)
# One wide component over both.
WIDE = Mixture(jnp.zeros(1), jnp.zeros((1, DIM)), 3.0 * jnp.eye(DIM)[None], 10.0)
# Each of its own.
MODES = Mixture(
    jnp.log(jnp.array([0.5, 0.5])),
    jnp.zeros((2, DIM)).at[:, 0].set(jnp.array([3.0, -3.0])),
    jnp.tile(jnp.eye(DIM), (2, 1, 1)),
    10.0,
)


def sampled(key, mixture, number=4096):
    proposal = Defensive(mixture)
    return proposal, importance_sample(key, TARGET.log_density, proposal, number)


def test_climbing_finds_places_and_widths_that_the_proposal_lacks():
    fit, key = start_fit(WIDE), jax.random.key(0)
    proposal, draws = sampled(key, widened(fit.mixture))
    pool, ess = gather(None, proposal, draws), [float(draws.ess)]
    for step in range(3):
        fit_key, draw_key = jax.random.split(jax.random.fold_in(key, step))
        fit = climb(fit_key, TARGET, fit, pool, WIDE, bouts=1)
        proposal, draws = sampled(draw_key, widened(fit.mixture))
        pool = gather(pool, proposal, draws)
        ess.append(float(draws.ess))
    assert ess[-1] > 2 * ess[0]
    assert abs(float(draws.log_evidence)) < 0.05
    assert fit.mixture.components == FIT_COMPONENTS
    assert widened(fit.mixture).components == PROPOSAL_COMPONENTS
    for mixture in (fit.mixture, widened(fit.mixture)):
        np.testing.assert_allclose(np.exp(jax.nn.logsumexp(mixture.log_weights)), 1, rtol=1e-5)


def test_places_of_earlier_climbs_are_fitted_until_a_mode_is_admitted():
    fit, key = start_fit(WIDE), jax.random.key(0)
    # So few draws that they leave room.
    pool = gather(None, *sampled(key, widened(fit.mixture), 512))
    assert fit.places.shape == (0, DIM)
    first = climb(key, TARGET, fit, pool, WIDE, bouts=1)
    second = climb(key, TARGET, first, pool, WIDE, bouts=1)
    np.testing.assert_array_equal(second.places[len(first.places) :], first.places)
    # A component that nothing but earlier places can account for.
    far = np.full((len(first.places), DIM), 9.0, np.float32) + first.places / 10
    led = climb(key, TARGET, first._replace(places=far), pool, WIDE, bouts=1)
    assert np.any(np.all(np.asarray(led.mixture.means) > 5, axis=1))
    assert not np.any(np.all(np.asarray(second.mixture.means) > 5, axis=1))
    newcomer = EL2OFit(jnp.ones(DIM), jnp.eye(DIM), jnp.zeros(()), jnp.zeros(()))
    assert len(replace_weakest(second, [newcomer], np.array([0.1])).places) == 0


def test_draws_without_any_weight_break_nothing():
    proposal, draws = sampled(jax.random.key(0), widened(start_fit(WIDE).mixture))
    nothing = jnp.full_like(draws.log_densities, -jnp.inf)
    draws = dataclasses.replace(draws, log_densities=nothing, log_weights=nothing)
    pool = gather(None, proposal, draws)
    assert effective_sample_size(pool.log_weights) == 0
    fit = climb(jax.random.key(0), TARGET, start_fit(WIDE), pool, MODES, bouts=1)
    assert np.all(np.isfinite(fit.mixture.means))


def test_every_mode_counts_for_the_root_of_its_mass():
    # Shares of nothing but zero and one, masses 0.96 and 0.04: lifted, they are as 0.98 to 0.2.
    with np.errstate(divide="ignore"):
        shares = np.log(np.repeat(np.eye(2), 50, axis=1))
    log_weights = np.log(np.repeat([0.96, 0.04], 50) / 50) + 7
    lifted = np.exp(lift_light_modes(log_weights, shares))
    expected = np.sqrt(0.04 / 0.96)
    assert lifted[50:].sum() / lifted[:50].sum() == pytest.approx(expected, rel=1e-6)
    np.testing.assert_array_equal(lift_light_modes(log_weights, shares[:1]), log_weights)
    # A mode without any draw changes nothing, and gives no NaN.
    absent = np.vstack([shares, np.full(100, -np.inf)])
    np.testing.assert_allclose(np.exp(lift_light_modes(log_weights, absent)), lifted)


def test_shares_are_the_responsibilities_of_components_with_weight():
    points = np.asarray(jax.random.normal(jax.random.key(0), (20, DIM)))
    expected = np.asarray(jax.vmap(MODES.responsibilities)(jnp.asarray(points)))
    padded = start_fit(MODES).mixture
    assert padded.components > 2
    np.testing.assert_allclose(np.exp(log_responsibilities(padded, points)), expected.T, rtol=1e-3)


def test_a_light_mode_is_not_starved():
    """It has 1 % of the mass, but almost a tenth of the particles."""
    target = Target(two_gaussians(DIM, 6.0, (0.99, 0.01)).log_prob, DIM)
    proposal = Defensive(MODES)
    draws = importance_sample(jax.random.key(0), target.log_density, proposal, 4096)
    pool = gather(None, proposal, draws)
    fit = climb(jax.random.key(1), target, start_fit(MODES), pool, MODES, bouts=2)
    light, _ = np.exp(log_responsibilities(MODES, np.asarray(fit.mixture.means)))
    weights = np.exp(np.asarray(fit.mixture.log_weights))
    lifted = np.sqrt(0.01) / (np.sqrt(0.01) + np.sqrt(0.99))
    # Of 256 particles a standard error of 0.018; each component gets a pseudo-count, too.
    assert abs(weights @ light - lifted) < 3 * 0.018
