import jax
import jax.numpy as jnp
import numpy as np
import pytest

from densities import two_gaussians
from latentuq.core.errors import UserError
from latentuq.inference.mixture import Mixture, gaussian_mixture
from studies.baselines.pathfinder import pathfinder

pytestmark = pytest.mark.slow

DIM, PATHS, DRAWS, PROPOSALS, ITERATIONS = 3, 6, 1000, 2048, 20
MEAN = np.array([1.0, -2.0, 0.5])
COVARIANCE = np.array([[1.0, 0.6, 0.0], [0.6, 0.5, 0.1], [0.0, 0.1, 0.3]])
# Twice half a Gaussian, so that one compilation serves all; the weights hold the evidence, e^3.
TWICE = gaussian_mixture(
    jnp.asarray((0.5, 0.5)),
    jnp.asarray(np.float32([MEAN, MEAN])),
    jnp.asarray(np.float32([COVARIANCE, COVARIANCE])),
)
GAUSSIAN = Mixture(TWICE.log_weights + 3.0, TWICE.means, TWICE.factors)
# The light mode has the wider basin.
MIXTURE = two_gaussians(DIM, 10.0, (0.8, 0.2), (0.5, 1.0))


def run(seed=0, log_density_fn=GAUSSIAN.log_prob, **options):
    sizes = {"paths": PATHS, "draws": DRAWS, "proposals": PROPOSALS, "iterations": ITERATIONS}
    sizes["scale"] = 4.0
    return pathfinder(jax.random.key(seed), log_density_fn, DIM, **(sizes | options))


@pytest.fixture(scope="module")
def gaussian():
    return run()


@pytest.fixture(scope="module")
def mixture():
    return run(0, MIXTURE.log_prob)


def test_gaussian(gaussian):
    # L-BFGS knows a quadratic's inverse Hessian after dim exact steps, and nearly so here; what it
    # misses, the weights make good.
    assert abs(gaussian.log_evidence - 3.0) < 4 * gaussian.log_evidence_error
    assert gaussian.log_evidence_error < 0.03
    n = gaussian.history["ess"][0] / (1 + PROPOSALS / DRAWS)
    std = np.sqrt(np.diag(COVARIANCE))
    assert gaussian.draws.shape == (DRAWS, DIM)
    assert np.all(np.abs(gaussian.draws.mean(0) - MEAN) < 4 * std / np.sqrt(n))
    error = np.sqrt((np.outer(std, std) ** 2 + COVARIANCE**2) / n)
    assert np.all(np.abs(np.cov(gaussian.draws.T) - COVARIANCE) < 4 * error)


def test_paths_reach_the_bound(gaussian):
    # A path's best Gaussian is close to the density; its ELBO cannot exceed ln evidence but by the
    # noise of its few draws.
    elbos = gaussian.history["elbos"]
    assert elbos.shape == (PATHS,)
    assert np.all(np.abs(elbos - 3.0) < 0.3)
    assert gaussian.history["khat"][0] < 0.7


def test_weights_do_not_count_paths(mixture):
    # The share of a basin's paths cancels: the weights p / q see the mean density of all paths.
    share = np.mean(mixture.draws[:, 0] < 0)
    n = mixture.history["ess"][0]
    assert abs(share - 0.8) < 4 * np.sqrt(0.16 / n)
    assert abs(mixture.log_evidence) < 4 * mixture.log_evidence_error
    assert mixture.log_evidence_error < 0.05


def test_cost_is_counted(gaussian):
    taken = gaussian.history["iterations"]
    assert np.all((taken >= 2) & (taken <= ITERATIONS))
    assert gaussian.gradients == np.sum(1 + 2 * taken)
    # 25 draws for each ELBO, and blackjax's own one.
    forwards = PATHS * (ITERATIONS + 1) * 26 + PROPOSALS
    assert gaussian.forward_equivalents == 3 * gaussian.gradients + forwards
    assert gaussian.seconds > 0
    assert gaussian.compile_seconds > 0


def test_same_key_same_answer(gaussian):
    again = run()
    assert again.log_evidence == gaussian.log_evidence
    np.testing.assert_array_equal(again.draws, gaussian.draws)


def test_nowhere_finite_is_said():
    with pytest.raises(UserError, match="None of 6 paths"):
        run(log_density_fn=two_gaussians(DIM, np.nan).log_prob)
