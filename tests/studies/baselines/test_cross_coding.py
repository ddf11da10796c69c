import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq import prior_from
from latentuq.forward.blur import Blur
from latentuq.forward.mask import Mask
from latentuq.likelihood.noise import GaussianNoise
from latentuq.problem.inverse import InverseProblem
from studies.baselines.cross_coding import Planar, XCoder, cross_coding
from studies.exact import exact_posterior, linear_prior

pytestmark = pytest.mark.slow

DIM, DRAWS = 4, 4000
SETTINGS = {"steps": 800, "batch": 32, "draws": DRAWS}


def run(problem, seed=0, **settings):
    return cross_coding(jax.random.key(seed), problem, **SETTINGS | settings)


@pytest.fixture(scope="module")
def linear():
    prior = linear_prior(jax.random.key(1), DIM, (5, 4))
    y = np.random.default_rng(2).normal(0.5, 0.3, (5, 4))
    return InverseProblem(prior, Blur(1.0, size=3), GaussianNoise(0.2), y)


@pytest.fixture(scope="module")
def linear_result(linear):
    return run(linear, layers=0)


def random_xcoder(layers=3):
    keys = jax.random.split(jax.random.key(0), 5)
    planar = Planar(
        jax.random.normal(keys[0], (layers, DIM)),
        2 * jax.random.normal(keys[1], (layers, DIM)),
        jax.random.normal(keys[2], (layers,)),
    )
    lower, diagonal = (
        jax.random.normal(keys[3], (DIM, DIM)),
        0.5 * jax.random.normal(keys[4], (DIM,)),
    )
    return XCoder(planar, jnp.arange(float(DIM)), lower, diagonal)


def test_density_of_the_draws_is_that_of_the_map():
    xcoder = random_xcoder()

    @jax.jit
    @jax.vmap
    def by_autodiff(noise):
        sign, log_det = jnp.linalg.slogdet(jax.jacfwd(lambda v: xcoder(v)[0])(noise))
        expected = jnp.sum(jax.scipy.stats.norm.logpdf(noise)) - log_det
        return sign, expected, xcoder(noise)[1]

    sign, expected, log_q = by_autodiff(jax.random.normal(jax.random.key(1), (20, DIM)))
    assert np.all(sign == 1)
    # Where the flow squeezes by 1e-3, single precision knows the logarithm of that to 1e-4.
    np.testing.assert_allclose(log_q, expected, atol=1e-3)


def test_a_gaussian_posterior_is_found_by_a_gaussian(linear, linear_result):
    exact = exact_posterior(linear)
    std = np.sqrt(np.diag(exact.covariance))
    draws = linear_result.draws
    assert draws.shape == (DRAWS, DIM)
    # Where q is the posterior, ln p - ln q is constant: the bound is exact but for the fit, whose
    # KL is of the order of the parameters (14) over the 32 * 800 draws behind them.
    assert linear_result.log_evidence == pytest.approx(exact.log_evidence, abs=0.01)
    assert np.all(np.abs(draws.mean(0) - exact.mean) < 4 * std / np.sqrt(DRAWS) + 0.05 * std)
    np.testing.assert_allclose(draws.std(0), std, rtol=4 / np.sqrt(2 * DRAWS) + 0.05)


def test_the_flow_bends_where_the_posterior_does():
    def decode(u):
        return jnp.stack([u[0] ** 2 / 2 + u[1], 0.1 * u[1]])

    prior = prior_from(decode, 2, (2,), 0.3)
    problem = InverseProblem(prior, Mask([1, 0]), GaussianNoise(0.0), [0.5, np.nan])
    grid = np.linspace(-7, 7, 281)
    points = jnp.asarray(np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2), jnp.float32)
    densities = np.exp(np.asarray(jax.vmap(problem.log_density)(points), np.float64))
    truth = np.log(densities.sum()) + 2 * np.log(grid[1] - grid[0])
    gaussian, flow = run(problem, layers=0), run(problem)
    # Four errors of a bound, whose terms scatter by less than 1.
    error = 4 / np.sqrt(DRAWS)
    assert gaussian.log_evidence + 0.1 < flow.log_evidence < truth + error


def test_history_climbs_and_cost_is_counted(linear_result):
    elbos = linear_result.history["elbos"]
    assert elbos.shape == (800,)
    assert elbos[-50:].mean() > elbos[:50].mean()
    assert linear_result.gradients == 800 * 32
    assert linear_result.forward_equivalents == 3 * 800 * 32 + DRAWS
    assert linear_result.seconds > 0


def test_same_key_same_answer(linear, linear_result):
    again = run(linear, layers=0)
    assert again.log_evidence == linear_result.log_evidence
    np.testing.assert_array_equal(again.draws, linear_result.draws)
