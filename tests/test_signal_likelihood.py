"""The likelihood of an error that depends on what the generator shows, against its formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import latentuq as lu
from latentuq.noise import GaussianNoise
from latentuq.operators import Blur, Gain, Mask, RandomMask
from latentuq.prior import GenerativePrior, ModelError
from latentuq.prior.architecture import VAESize
from latentuq.prior.vae import init_vae
from latentuq.problem import InverseProblem
from latentuq.signal_likelihood import fit_squared_gain
from linear_vae import curved_flow

SHAPE, PIXELS, DIM = (8, 6), 48, 3
KNOTS = np.linspace(0, 1, 9)
GAIN = np.sqrt(0.1 + 6 * KNOTS * (1 - KNOTS))  # A polynomial, squared.
STD = np.linspace(0.05, 0.2, PIXELS).reshape(SHAPE)
MASK = np.ones(SHAPE)
MASK[:, 3:] = 0
SCALED = Gain(np.linspace(0.5, 2, PIXELS).reshape(SHAPE))


def make_prior(most_data: float | None = 5.0, gain=GAIN) -> GenerativePrior:
    decoder = init_vae(
        jax.random.key(0), SHAPE, VAESize(latent=DIM, width=16, blocks=1), 0.1
    ).decoder
    gain = None if gain is None else jnp.asarray(gain, jnp.float32)
    error = ModelError(jnp.asarray(STD**2, jnp.float32), jnp.zeros((0, *SHAPE)), gain, most_data)
    return GenerativePrior(decoder, curved_flow(), error, {}, None, DIM, SHAPE)


def make_problem(operator, noise=0.0, **prior) -> InverseProblem:
    bound = operator.bind(SHAPE)
    y = np.random.default_rng(0).uniform(size=bound.output_shape)
    return InverseProblem(make_prior(**prior), bound, GaussianNoise(noise), y)


def expected(problem: InverseProblem, u, noise: float, most_data: float | None) -> float:
    """Sum of w ln N(y; a g, v) over the observed data, and ln N(u; 0, I), in float64."""
    g = np.asarray(problem.prior.generate(u), np.float64)
    seen = np.asarray(problem.observed)
    # Hidden data have no factor, and do not count.
    a = np.where(seen, np.asarray(problem.operator(np.ones(SHAPE)), np.float64), 1)
    average = noise**2 + (a * STD) ** 2
    dominated = np.sum(((a * STD) ** 2 / average)[seen])
    inflation = 1 if most_data is None else 1 + dominated / most_data
    powers = average / (noise**2 + inflation * (a * STD) ** 2)
    squares = 0.1 + 6 * g * (1 - g)
    squares = 0.5 * (squares + np.sqrt(squares**2 + 0.03**2))
    variance = noise**2 + a**2 * (squares * STD**2 + 0.05**2)
    terms = powers * norm.logpdf(np.asarray(problem.y, np.float64), a * g, np.sqrt(variance))
    return float(np.sum(terms[seen]) + np.sum(norm.logpdf(np.asarray(u, np.float64))))


@pytest.mark.parametrize("most_data", [None, 5.0])
@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize(
    "operator", [Gain(1.0), Mask(MASK), SCALED @ RandomMask(0.3, seed=2), SCALED], ids=repr
)
def test_log_density_is_the_formula(operator, noise, most_data):
    problem = make_problem(operator, noise, most_data=most_data)
    for seed in range(3):
        u = jax.random.normal(jax.random.key(seed), (DIM,))
        # Rounding of float32 in some fifty terms of up to a hundred nats.
        np.testing.assert_allclose(
            problem.log_density(u), expected(problem, u, noise, most_data), rtol=2e-5, atol=1e-3
        )
        r = problem.residual(u)
        again = problem.log_normalisation - 0.5 * jnp.sum(r**2) - 0.5 * jnp.sum(u**2)
        np.testing.assert_allclose(problem.log_density(u), again, rtol=1e-6)
    assert np.all(np.isfinite(jax.jit(jax.jacfwd(problem.residual))(u)))
    assert np.all(np.isfinite(jax.jit(jax.hessian(problem.log_density))(u)))


def test_other_data_are_those_of_a_new_problem():
    problem = make_problem(Mask(MASK))
    y = np.random.default_rng(1).uniform(size=SHAPE)
    new = InverseProblem(problem.prior, problem.operator, problem.noise, y)
    u = jnp.ones(DIM)
    np.testing.assert_allclose(problem.with_data(y).log_density(u), new.log_density(u), rtol=1e-6)


def test_data_that_the_model_error_dominates_count_for_few():
    noiseless = make_problem(Gain(1.0), 0.0).likelihood
    noisy = make_problem(Gain(1.0), 100.0).likelihood
    assert noiseless is not None
    assert noisy is not None
    assert jnp.sum(noiseless.powers) == pytest.approx(PIXELS / (1 + PIXELS / 5), rel=1e-5)
    np.testing.assert_allclose(noisy.powers, 1, rtol=1e-4)


def test_it_is_for_data_of_one_pixel_with_independent_noise_alone():
    assert make_problem(Gain(1.0)).likelihood is not None
    assert make_problem(Gain(1.0), gain=None).likelihood is None
    assert make_problem(Blur(1.0, size=3), 0.1).likelihood is None
    correlated = GaussianNoise(covariance=np.eye(PIXELS) + 0.5)
    problem = InverseProblem(make_prior(), Gain(1.0), correlated, np.zeros(SHAPE))
    assert problem.likelihood is None


def test_the_gain_of_mnist_is_nearly_a_polynomial():
    error = lu.load_prior("mnist").model_error
    assert error.gain is not None
    knots = np.linspace(-1, 1, len(error.gain))
    fitted = np.polynomial.chebyshev.chebval(knots, fit_squared_gain(error))
    # A tenth of the largest squared gain, 4.9; near black the floor is larger than the error.
    assert np.max(np.abs(fitted - np.asarray(error.gain) ** 2)) < 0.5
