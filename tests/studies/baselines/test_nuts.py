import jax
import jax.numpy as jnp
import numpy as np
import pytest

from densities import quadratic
from latentuq.core.errors import UserError
from studies.baselines.nuts import nuts, split_rhat

pytestmark = pytest.mark.slow

DIM, CHAINS, WARMUP, DRAWS = 3, 4, 200, 300
MEAN = np.array([1.0, -2.0, 0.5])
COVARIANCE = np.array([[1.0, 0.6, 0.0], [0.6, 0.5, 0.1], [0.0, 0.1, 0.3]])
GAUSSIAN = quadratic(MEAN, COVARIANCE)


def run(seed=0, log_density_fn=GAUSSIAN.log_density, **options):
    options = {"chains": CHAINS, "warmup": WARMUP, "draws": DRAWS} | options
    return nuts(jax.random.key(seed), log_density_fn, DIM, **options)


@pytest.fixture(scope="module")
def result():
    return run()


def test_gaussian_draws(result):
    # Trajectories that turn leave states hardly correlated; a third as many independent draws is a
    # cautious count.
    n = CHAINS * DRAWS / 3
    std = np.sqrt(np.diag(COVARIANCE))
    assert result.draws.shape == (CHAINS * DRAWS, DIM)
    assert np.all(np.abs(result.draws.mean(0) - MEAN) < 4 * std / np.sqrt(n))
    error = np.sqrt((np.outer(std, std) ** 2 + COVARIANCE**2) / n)
    assert np.all(np.abs(np.cov(result.draws.T) - COVARIANCE) < 4 * error)


def test_there_is_no_evidence(result):
    assert result.log_evidence is None
    assert result.log_evidence_error is None


def test_diagnostics(result):
    assert all(isinstance(values, np.ndarray) for values in result.history.values())
    assert result.history["rhat"].shape == (DIM,)
    assert np.all(result.history["rhat"] < 1.03)
    assert result.history["divergences"].tolist() == [0.0] * CHAINS


def test_cost_is_counted(result):
    gradients = result.history["gradients"]
    assert result.gradients == gradients.sum()
    # Every step takes at least one leapfrog and, on a Gaussian of width 0.3 to 1, few doublings.
    steps = WARMUP + DRAWS
    assert np.all(gradients >= 1 + steps)
    assert np.all(gradients < 16 * steps)
    # The density is checked once where each chain starts.
    assert result.forward_equivalents == 3 * result.gradients + CHAINS
    assert result.seconds > 0
    assert result.compile_seconds > 0


def test_same_key_same_answer(result):
    np.testing.assert_array_equal(run().draws, result.draws)


def test_chains_take_the_starts_in_turn():
    first, second = np.array([[1.0, -2.0, 0.5], [2.0, -1.0, 0.0]])
    short = run(starts=[first, second])
    np.testing.assert_array_equal(short.draws, run(starts=[first, second] * 2).draws)
    other = run(starts=[second, first]).draws
    assert np.all(np.any(short.draws != other, axis=1))


def test_split_rhat_by_hand():
    # Halves (0, 2), (4, 6) and (0, 2), (0, 2): within 2, means 1, 5, 1, 1 with variance 4.
    chains = jnp.array([[0.0, 2, 4, 6], [0, 2, 0, 2]])[..., None]
    assert split_rhat(chains) == pytest.approx(np.sqrt(0.5 + 4 / 2))


def test_a_chain_outside_the_density_is_refused():
    nowhere = quadratic(MEAN, jnp.nan * COVARIANCE).log_density
    with pytest.raises(UserError, match="not finite"):
        run(log_density_fn=nowhere)
