import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq.core.errors import UserError
from latentuq.forward.blur import Blur
from latentuq.forward.mask import RegionMask
from linear_vae import DIM, SHAPE, curved_flow, exact_problem, linear_vae, make_problem
from studies.baselines.gibbs import metropolis_within_gibbs, pseudo_gibbs
from studies.exact import exact_posterior, linear_prior

pytestmark = pytest.mark.slow

CHAINS, STEPS, BURN_IN = 400, 40, 40
HALF = RegionMask(columns=(2, 3))
METHODS = [pseudo_gibbs, metropolis_within_gibbs]


def run(method, problem, seed=0, **settings):
    settings = {"chains": CHAINS, "steps": STEPS, "burn_in": BURN_IN} | settings
    return method(jax.random.key(seed), problem, **settings)


def z_scores(result, problem):
    """Errors of means and variances, in units of the error that the spread of the chains shows."""
    exact = exact_posterior(exact_problem(problem))
    gaps = result.draws.reshape(CHAINS, STEPS, DIM) - exact.mean
    means, squares = gaps.mean(1), (gaps**2).mean(1) - np.diag(exact.covariance)
    every = np.concatenate([means, squares], axis=1)
    return every.mean(0) / every.std(0, ddof=1) * np.sqrt(CHAINS)


@pytest.fixture(scope="module")
def problem():
    return make_problem(linear_vae(), HALF)


@pytest.fixture(scope="module")
def pseudo(problem):
    return run(pseudo_gibbs, problem)


def test_an_exact_encoder_gives_the_exact_posterior(problem, pseudo):
    assert pseudo.draws.shape == (CHAINS * STEPS, DIM)
    assert pseudo.log_evidence is None
    assert np.all(np.abs(z_scores(pseudo, problem)) < 4)


def test_an_exact_encoder_is_always_accepted_for_any_operator():
    blurred = make_problem(linear_vae(), Blur(1.0, size=3))
    result = run(metropolis_within_gibbs, blurred, warm_up=0)
    # Rounding of log densities of about 10 to 1e-6.
    assert np.all(result.history["acceptances"] > 0.999)
    assert np.all(np.abs(z_scores(result, blurred)) < 4)


def test_metropolis_corrects_an_encoder_that_is_wrong():
    problem = make_problem(linear_vae(curved_flow(), width=1.3), HALF)
    steps = STEPS + BURN_IN
    pseudo = run(pseudo_gibbs, problem)
    # A warm-up of as many steps is compiled already.
    result = run(metropolis_within_gibbs, problem, warm_up=steps)
    assert np.max(np.abs(z_scores(pseudo, problem))) > 8
    assert 0.3 < np.mean(result.history["acceptances"]) < 0.95
    assert np.all(np.abs(z_scores(result, problem)) < 4)
    # The cost of both: the start, the warm-up, and the steps.
    assert pseudo.forward_equivalents == CHAINS * (1 + 2 * steps)
    assert result.forward_equivalents == CHAINS * (1 + 2 * steps + 4 * steps)
    assert result.history["acceptances"].shape == (steps,)
    assert (pseudo.gradients, result.gradients) == (0, 0)
    assert result.seconds > 0


def test_a_gain_of_images_changes_nothing(problem, pseudo):
    prior = problem.prior
    error = dataclasses.replace(prior.model_error, gain=jnp.array([0.5, 2.0]))
    gained = make_problem(dataclasses.replace(prior, model_error=error), HALF)
    np.testing.assert_allclose(run(pseudo_gibbs, gained).draws, pseudo.draws, atol=1e-4)


def test_same_key_same_answer(problem, pseudo):
    np.testing.assert_array_equal(run(pseudo_gibbs, problem).draws, pseudo.draws)


@pytest.mark.parametrize("method", METHODS)
def test_an_encoder_is_needed(method):
    problem = make_problem(linear_prior(jax.random.key(0), DIM, SHAPE), HALF)
    with pytest.raises(UserError, match="has no encoder"):
        run(method, problem)
