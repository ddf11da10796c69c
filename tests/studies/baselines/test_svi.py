import jax
import jax.numpy as jnp
import numpy as np
import pytest

from densities import quadratic
from studies.baselines.svi import FAST, PAPER, Settings, svi

pytestmark = pytest.mark.slow

DIM, DRAWS, LOG_EVIDENCE = 3, 4000, 3.0
MEAN = np.array([1.0, -2.0, 0.5])
COVARIANCE = np.array([[1.0, 0.6, 0.0], [0.6, 0.5, 0.1], [0.0, 0.1, 0.3]])
GAUSSIAN = quadratic(MEAN, COVARIANCE, LOG_EVIDENCE)
FEW = Settings(16, (1000, 2000, 1000), (5e-2, 1e-2, 1e-3))


def run(seed=0, log_density_fn=GAUSSIAN.log_density, **options):
    options = {"settings": FEW, "draws": DRAWS} | options
    return svi(jax.random.key(seed), log_density_fn, DIM, **options)


@pytest.fixture(scope="module")
def full():
    return run()


@pytest.fixture(scope="module")
def diagonal():
    return run(family="mean-field")


def test_full_rank_recovers_a_correlated_gaussian(full):
    # Path gradients have no noise at the optimum: what is left is rounding, in ln p - ln q too.
    assert full.log_evidence == pytest.approx(LOG_EVIDENCE, abs=1e-5)
    assert full.log_evidence_error < 1e-5
    std = np.sqrt(np.diag(COVARIANCE))
    assert np.all(np.abs(full.draws.mean(0) - MEAN) < 4 * std / np.sqrt(DRAWS))
    # The sample covariance of n draws has variance (S_ii S_jj + S_ij^2) / n.
    error = np.sqrt((np.outer(std, std) ** 2 + COVARIANCE**2) / DRAWS)
    assert np.all(np.abs(np.cov(full.draws.T) - COVARIANCE) < 4 * error)


def test_mean_field_has_the_precision_for_its_variance(diagonal):
    # KL(q | p) is least at variances 1 / precision_ii, below the true ones.
    precision = np.linalg.inv(COVARIANCE)
    variances = 1 / np.diag(precision)
    assert np.all(variances <= np.diag(COVARIANCE))
    assert np.all(np.abs(diagonal.draws.mean(0) - MEAN) < 4 * np.sqrt(variances / DRAWS) + 0.01)
    # Here gradients stay noisy: a last rate of 1e-3 leaves ln std within about one per cent.
    rtol = 4 * np.sqrt(2 / DRAWS) + 0.02
    np.testing.assert_allclose(diagonal.draws.var(0), variances, rtol=rtol)
    np.testing.assert_allclose(np.corrcoef(diagonal.draws.T), np.eye(3), atol=4 / np.sqrt(DRAWS))


def test_the_bound_is_low_by_the_divergence(diagonal):
    # KL = (ln det S + sum ln P_ii) / 2 at the best diagonal Gaussian.
    precision = np.linalg.inv(COVARIANCE)
    gap = 0.5 * (np.log(np.linalg.det(COVARIANCE)) + np.sum(np.log(np.diag(precision))))
    assert gap > 0.5
    expected = LOG_EVIDENCE - gap
    assert abs(diagonal.log_evidence - expected) < 4 * diagonal.log_evidence_error + 0.01


def test_history_climbs_to_the_bound(full):
    elbo = full.history["elbo"]
    assert elbo.shape == (sum(FEW.steps),)
    assert elbo[0] < elbo[-1] - 1
    np.testing.assert_allclose(elbo[-10:], LOG_EVIDENCE, atol=1e-4)
    np.testing.assert_allclose(full.history["mean"], MEAN, atol=1e-3)
    factor = full.history["factor"]
    np.testing.assert_allclose(factor @ factor.T, COVARIANCE, atol=1e-3)


def test_cost_is_counted(full):
    assert full.gradients == FEW.samples * sum(FEW.steps)
    assert full.forward_equivalents == 3 * full.gradients + DRAWS
    assert full.seconds > 0
    assert full.compile_seconds > 0


def test_same_key_same_answer(full):
    again = run()
    assert again.log_evidence == full.log_evidence
    np.testing.assert_array_equal(again.draws, full.draws)
    assert np.all(run(1).draws != full.draws)


def test_the_start_is_the_prior():
    # A step of 1e-9 moves nothing, so the draws are those of N(0, scale^2 I).
    settings = Settings(16, FEW.steps, (1e-9, 1e-9, 1e-9))
    for family, scale in (("full-rank", 3.0), ("mean-field", 3.0)):
        draws = run(family=family, settings=settings, scale=scale).draws
        np.testing.assert_allclose(np.cov(draws.T), 9 * np.eye(3), atol=4 * 9 * np.sqrt(2 / DRAWS))


def test_nowhere_finite_is_a_value():
    result = run(log_density_fn=quadratic(MEAN, jnp.nan * COVARIANCE).log_density)
    assert np.isnan(result.log_evidence)


def test_the_paper_took_512_draws_and_about_8000_steps():
    for settings in PAPER.values():
        assert settings.samples == 512
        assert 7000 <= sum(settings.steps) <= 10000
    assert FAST.samples * sum(FAST.steps) < 50000
