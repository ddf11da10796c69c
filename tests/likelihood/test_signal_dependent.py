"""The likelihood of an error that depends on what the generator shows, against its formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import latentuq as lu
from latentuq.forward.blur import Blur
from latentuq.forward.gain import Gain
from latentuq.forward.mask import Mask, RandomMask
from latentuq.likelihood.gaussian import GaussianLikelihood
from latentuq.likelihood.noise import GaussianNoise
from latentuq.likelihood.signal_dependent import SignalDependentLikelihood, fit_squared_gain
from latentuq.posterior.misfit import measure_chi_squared
from latentuq.prior.architecture import VAESize
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_error import ModelError
from latentuq.prior.vae import init_vae
from latentuq.problem.inverse import InverseProblem
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
@pytest.mark.slow
def test_log_density_is_the_formula(operator, noise, most_data):
    problem = make_problem(operator, noise, most_data=most_data)
    for seed in range(3):
        u = jax.random.normal(jax.random.key(seed), (DIM,))
        # Rounding of float32 in some fifty terms of up to a hundred nats.
        np.testing.assert_allclose(
            problem.log_density(u), expected(problem, u, noise, most_data), rtol=2e-5, atol=1e-3
        )
    assert np.all(np.isfinite(jax.jit(jax.jacfwd(problem.residual))(u)))
    assert np.all(np.isfinite(jax.jit(jax.hessian(problem.log_density))(u)))


def test_the_variance_of_a_datum_is_that_of_noise_and_model_error():
    problem = make_problem(SCALED, noise=0.1)
    image = jnp.linspace(0, 1, PIXELS).reshape(SHAPE)
    factors = np.linspace(0.5, 2, PIXELS)
    gain = np.interp(np.ravel(image), KNOTS, GAIN**2)
    expected_variance = 0.1**2 + factors**2 * (gain * STD.ravel() ** 2 + 0.05**2)
    # Between the knots the gain is a polynomial here, and linear there.
    np.testing.assert_allclose(problem.likelihood.variance(image), expected_variance, rtol=0.1)
    plain = make_problem(SCALED, noise=0.1, gain=None)
    expected_variance = 0.1**2 + factors**2 * STD.ravel() ** 2
    np.testing.assert_allclose(plain.likelihood.variance(image), expected_variance, rtol=1e-5)


def test_other_data_are_those_of_a_new_problem():
    problem = make_problem(Mask(MASK))
    y = np.random.default_rng(1).uniform(size=SHAPE)
    new = InverseProblem(problem.prior, problem.operator, problem.noise, y)
    u = jnp.ones(DIM)
    np.testing.assert_allclose(problem.with_data(y).log_density(u), new.log_density(u), rtol=1e-6)


def test_data_that_the_model_error_dominates_count_for_few():
    noiseless = make_problem(Gain(1.0), 0.0).likelihood
    noisy = make_problem(Gain(1.0), 100.0).likelihood
    assert jnp.sum(noiseless.powers) == pytest.approx(PIXELS / (1 + PIXELS / 5), rel=1e-5)
    np.testing.assert_allclose(noisy.powers, 1, rtol=1e-4)


def test_a_problem_knows_whether_data_count_less_than_once():
    assert make_problem(Mask(MASK)).downweighted
    assert not make_problem(Mask(MASK), most_data=None).downweighted
    assert not make_problem(Mask(MASK), gain=None).downweighted


def test_it_is_for_data_of_one_pixel_with_independent_noise_alone():
    assert type(make_problem(Gain(1.0)).likelihood) is SignalDependentLikelihood
    assert type(make_problem(Gain(1.0), gain=None).likelihood) is GaussianLikelihood
    assert type(make_problem(Blur(1.0, size=3), 0.1).likelihood) is GaussianLikelihood
    correlated = GaussianNoise(covariance=np.eye(PIXELS) + 0.5)
    problem = InverseProblem(make_prior(), Gain(1.0), correlated, np.zeros(SHAPE))
    assert type(problem.likelihood) is GaussianLikelihood


def test_the_gain_of_mnist_is_nearly_a_polynomial():
    error = lu.load_prior("mnist").model_error
    assert error.gain is not None
    knots = np.linspace(-1, 1, len(error.gain))
    fitted = np.polynomial.chebyshev.chebval(knots, fit_squared_gain(error))
    # A twentieth of the largest squared gain, 4.9; near black the floor is larger than that.
    assert np.max(np.abs(fitted - np.asarray(error.gain) ** 2)) < 0.25


def test_one_hidden_pixel_of_noiseless_data():
    mask = np.ones(SHAPE)
    mask[0, 0] = 0
    problem = make_problem(Mask(mask))
    u = jnp.ones(DIM)
    np.testing.assert_allclose(
        problem.log_density(u), expected(problem, u, 0.0, 5.0), rtol=2e-5, atol=1e-3
    )


def test_chi_squared_is_that_of_the_covariance():
    problem = make_problem(Mask(MASK), 0.1)
    u = np.random.default_rng(0).normal(size=(70, DIM)).astype(np.float32)
    plain = InverseProblem(
        make_prior(gain=None), problem.operator, problem.noise, np.nan_to_num(problem.y)
    )
    expected_ones = measure_chi_squared(plain, u)
    found = measure_chi_squared(problem, u)
    np.testing.assert_allclose(found, expected_ones, rtol=1e-3, atol=1e-3)


def test_a_gaussian_error_is_one_that_has_a_name():
    prior = lu.load_prior("mnist")
    gaussian = prior.with_gaussian_error()
    assert gaussian.model_error_name == "low-rank"
    assert make_prior().with_gaussian_error().model_error.gain is None
    assert make_prior().with_gaussian_error().model_error.most_data is None
