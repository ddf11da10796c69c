import jax
import numpy as np
import pytest
import scipy.stats

from latentuq.core.errors import UserError
from latentuq.forward.blur import Blur
from latentuq.forward.mask import Mask, RegionMask
from linear_vae import DIM, SHAPE, curved_flow, exact_problem, linear_vae, make_problem
from studies.baselines.miwae import miwae
from studies.exact import exact_posterior, linear_prior

pytestmark = pytest.mark.slow

DRAWS, PROPOSALS = 2000, 20_000
HALF = RegionMask(columns=(2, 3))


def run(problem, seed=0, **settings):
    settings = {"draws": DRAWS, "proposals": PROPOSALS} | settings
    return miwae(jax.random.key(seed), problem, **settings)


@pytest.fixture(scope="module")
def problem():
    # The encoder sees zeros where pixels are hidden; half again as wide, it covers the posterior.
    return make_problem(linear_vae(curved_flow(), width=1.5), HALF)


@pytest.fixture(scope="module")
def result(problem):
    return run(problem)


def test_linear_gaussian_is_exact(problem, result):
    exact = exact_posterior(exact_problem(problem))
    assert result.draws.shape == (DRAWS, DIM)
    assert abs(result.log_evidence - exact.log_evidence) < 4 * result.log_evidence_error
    assert result.log_evidence_error < 0.03
    (ess,), (khat,) = result.history["ess"], result.history["khat"]
    assert khat < 0.7
    # The errors of the weighted proposals and of the draws from them add.
    std = np.sqrt(np.diag(exact.covariance))
    draws = 1 / (1 / ess + 1 / DRAWS)
    assert np.all(np.abs(result.draws.mean(0) - exact.mean) < 4 * std / np.sqrt(draws))
    np.testing.assert_allclose(result.draws.std(0), std, rtol=4 / np.sqrt(2 * draws))


def test_an_exact_encoder_leaves_only_the_tails_to_the_weights():
    # Whole image, no noise: q is p(z | y) but for being Student-t, so weights are N / t, each
    # dimension with E[w^2] / E[w]^2 = int N^2 / t.
    result = run(make_problem(linear_vae(), Mask(np.ones(SHAPE)), noise=0.0))
    grid = np.linspace(-12, 12, 20_001)
    squares = scipy.stats.norm.pdf(grid) ** 2 / scipy.stats.t.pdf(grid, 3)
    share = (np.sum(squares) * (grid[1] - grid[0])) ** -DIM
    # w^2 scatters by about its mean, over 20,000 proposals.
    assert result.history["ess"][0] / PROPOSALS == pytest.approx(share, rel=5 / PROPOSALS**0.5)


def test_tails_are_as_heavy_as_asked():
    problem = make_problem(linear_vae(width=0.5), HALF)
    heavy, light = run(problem), run(problem, degrees=30)
    assert heavy.history["khat"][0] < light.history["khat"][0]


def test_cost_is_counted(result):
    assert result.gradients == 0
    assert result.forward_equivalents == PROPOSALS + 1
    assert result.seconds > 0


def test_same_key_same_answer(problem, result):
    again = run(problem)
    assert again.log_evidence == result.log_evidence
    np.testing.assert_array_equal(again.draws, result.draws)


def test_an_encoder_is_needed():
    problem = make_problem(linear_prior(jax.random.key(0), DIM, SHAPE), HALF)
    with pytest.raises(UserError, match="has no encoder"):
        run(problem)


def test_only_masks_make_data_that_can_be_encoded():
    with pytest.raises(UserError, match="must be a mask, not Blur"):
        run(make_problem(linear_vae(), Blur(1.0, size=3)))
