import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from latentuq import prior_from
from latentuq.core.errors import UserError
from latentuq.forward.blur import Blur
from latentuq.forward.downsample import Downsample
from latentuq.forward.mask import Mask, RandomMask
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior.model_error import ModelError
from latentuq.problem.inverse import InverseProblem
from studies.exact import exact_conditional_image, exact_posterior, linear_prior

SHAPE = (6, 5)
DIM = 3


def low_rank_error(rank=2):
    rng = np.random.RandomState(0)
    variance = 0.01 * (0.5 + rng.rand(*SHAPE))
    return ModelError(jnp.asarray(variance), jnp.asarray(0.1 * rng.randn(rank, *SHAPE)))


def make_problem(operator, noise, model_error):
    prior = linear_prior(jax.random.key(0), DIM, SHAPE, model_error)
    bound = operator.bind(SHAPE)
    y = bound(prior.sample(jax.random.key(1), 1)[0])
    y = y + noise.sample(jax.random.key(2), y.shape)
    return InverseProblem(prior, bound, noise, y)


PROBLEMS = {
    "masked": make_problem(RandomMask(0.4, seed=1), GaussianNoise(0.1), 0.1),
    "masked, correlated error": make_problem(
        RandomMask(0.4, seed=1), GaussianNoise(0.1), low_rank_error()
    ),
    "noiseless mask": make_problem(RandomMask(0.4, seed=1), GaussianNoise(0.0), low_rank_error()),
    "blurred": make_problem(Blur(0.8, size=5), GaussianNoise(0.05), low_rank_error()),
    "masked blur": make_problem(
        RandomMask(0.3, seed=2) @ Blur(0.8, size=3), GaussianNoise(0.05), 0.1
    ),
}
over_problems = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())


@over_problems
def test_log_density_is_the_exact_posterior_times_the_exact_evidence(problem):
    # ln p(u, y) = ln p(y) + ln N(u; mean, covariance) holds at every u.
    exact = exact_posterior(problem)
    posterior = scipy.stats.multivariate_normal(exact.mean, exact.covariance)
    for seed in range(5):
        u = 2 * np.random.RandomState(seed).randn(DIM).astype(np.float32)
        expected = exact.log_evidence + posterior.logpdf(u)
        assert abs(problem.log_density(jnp.asarray(u)) - expected) < 1e-3 + 1e-5 * abs(expected)


curvature = eqx.filter_jit(lambda problem, u: jax.hessian(problem.log_density)(u))
slope = eqx.filter_jit(lambda problem, u: jax.grad(problem.log_density)(u))


@over_problems
def test_log_density_has_the_exact_mean_and_covariance(problem):
    exact = exact_posterior(problem)
    precision = -curvature(problem, jnp.zeros(DIM))
    step = np.linalg.solve(precision, slope(problem, jnp.zeros(DIM)))
    # Float32 sums of 30 terms whose size is the precision, then a well-conditioned solve.
    np.testing.assert_allclose(precision, np.linalg.inv(exact.covariance), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(step, exact.mean, atol=1e-4)


def assert_moments(draws, mean, covariance):
    """Sample moments within 5 standard errors; there are about 500 of them."""
    n = len(draws)
    draws = np.asarray(draws, np.float64).reshape(n, -1)
    # Pixels known without noise have a variance of zero up to rounding, of either sign.
    variance = np.diag(covariance).clip(min=0)
    # Float32 images of size 1 carry rounding errors of about 1e-6.
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / n) + 1e-5)
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * error + 1e-7)


@eqx.filter_jit
def draw_images(problem, keys, us):
    return jax.vmap(problem.conditional_images)(keys, us)


@over_problems
def test_conditional_images_have_the_exact_distribution(problem):
    n = 8000
    keys = jax.random.split(jax.random.key(3), n)
    u = jnp.asarray([0.5, -1.0, 2.0])
    given_u = draw_images(problem, keys, jnp.tile(u, (n, 1)))
    assert_moments(given_u, *exact_conditional_image(problem, u))
    exact = exact_posterior(problem)
    us = np.random.RandomState(4).multivariate_normal(exact.mean, exact.covariance, n)
    of_posterior = draw_images(problem, keys, jnp.asarray(us, jnp.float32))
    assert_moments(of_posterior, exact.image_mean, exact.image_covariance)


def test_noiseless_pixels_are_reproduced():
    problem = PROBLEMS["noiseless mask"]
    x = problem.conditional_images(jax.random.key(6), jnp.ones(DIM))
    seen = np.asarray(problem.observed)
    np.testing.assert_allclose(np.asarray(x)[seen], np.asarray(problem.y)[seen], atol=1e-5)


def test_evidence_is_the_integral_of_the_joint_density():
    problem = make_problem(Downsample(1), GaussianNoise(0.5), 0.3)
    exact = exact_posterior(problem)
    # Importance sampling from the exact posterior widened by 1.2: its weights are bounded.
    wide = scipy.stats.multivariate_normal(exact.mean, 1.44 * exact.covariance, seed=7)
    us = wide.rvs(4000)
    log_densities = jax.vmap(problem.log_density)(jnp.asarray(us, jnp.float32))
    weights = np.exp(np.asarray(log_densities, np.float64) - wide.logpdf(us) - exact.log_evidence)
    assert abs(weights.mean() - 1) < 5 * weights.std() / np.sqrt(weights.size) + 1e-3


def test_a_generator_that_is_not_linear_has_no_exact_answer():
    prior = prior_from(lambda u: jnp.full(SHAPE, jnp.sum(u**2)), DIM, SHAPE, 0.1)
    problem = InverseProblem(prior, Mask(np.ones(SHAPE)), GaussianNoise(0.1), np.zeros(SHAPE))
    with pytest.raises(UserError, match="not linear"):
        exact_posterior(problem)
