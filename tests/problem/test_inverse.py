import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from example_operators import example_operators
from latentuq import prior_from
from latentuq.core.errors import UserError
from latentuq.forward.blur import Blur
from latentuq.forward.downsample import Downsample
from latentuq.forward.gain import Gain
from latentuq.forward.linear import LinearOperator
from latentuq.forward.mask import Mask, RandomMask, RegionMask
from latentuq.forward.operator import to_matrix
from latentuq.forward.stacked import stack
from latentuq.likelihood.noise import GaussianNoise
from latentuq.likelihood.whitening import DenseWhitening, LowRankWhitening
from latentuq.prior.model_error import ModelError
from latentuq.problem.inverse import InverseProblem
from studies.exact import exact_conditional_image, exact_log_density

SHAPE = (8, 6)
DIM = 4
EXAMPLES = example_operators(SHAPE)
OPERATOR_CASES = {
    **EXAMPLES,
    "masked blur": EXAMPLES["mask"] @ EXAMPLES["blur"],
    "stack": stack(EXAMPLES["mask"], EXAMPLES["downsample"]),
}


class Decoder(eqx.Module):
    """A smooth generator with values in (0, 1)."""

    weights: jax.Array

    def __call__(self, u):
        return jax.nn.sigmoid(jnp.tensordot(u, self.weights, 1) - 0.5 * jnp.sin(jnp.sum(u)))


def make_prior(model_error=0.1, shape=SHAPE, dim=DIM):
    weights = np.random.RandomState(0).randn(dim, *shape)
    decoder = Decoder(jnp.asarray(weights, jnp.float32))
    if not isinstance(model_error, ModelError):
        return prior_from(decoder, dim, shape, model_error)
    return dataclasses.replace(prior_from(decoder, dim, shape, 1.0), model_error=model_error)


def low_rank(rank, shape=SHAPE):
    rng = np.random.RandomState(1)
    variance = 0.003 * (0.5 + rng.rand(*shape))
    factors = 0.05 * rng.randn(rank, *shape)
    return ModelError(jnp.asarray(variance, jnp.float32), jnp.asarray(factors, jnp.float32))


def random_covariance(size, seed=2):
    root = np.random.RandomState(seed).randn(size, size)
    return 0.01 * (root @ root.T / size + 0.3 * np.eye(size))


NOISES = {
    "one level": lambda shape: GaussianNoise(0.07),
    "map": lambda shape: GaussianNoise(0.05 + 0.1 * np.random.RandomState(3).rand(*shape)),
    "covariance": lambda shape: GaussianNoise(covariance=random_covariance(int(np.prod(shape)))),
}
MODEL_ERRORS = {
    "scalar": 0.1,
    "map": 0.05 + 0.1 * np.random.RandomState(4).rand(*SHAPE),
    "low rank": low_rank(3),
    "full": random_covariance(48),
}


def observe(prior, operator, noise, seed=0):
    """A problem with data drawn from the model, and the u behind them."""
    u_key, x_key, noise_key = jax.random.split(jax.random.key(seed), 3)
    u = jax.random.normal(u_key, (prior.dim,))
    x = prior.decode(u) + prior.model_error.sample(x_key)
    y = operator(x)
    return InverseProblem(prior, operator, noise, y + noise.sample(noise_key, y.shape)), u


def reference(problem, u):
    """The log density from explicit matrices and SciPy, in float64 from the generator on."""
    A = to_matrix(problem.operator)
    error = problem.prior.model_error
    factors = np.asarray(error.factors, np.float64).reshape(error.rank, A.shape[1])
    S_model = np.diag(np.asarray(error.variance, np.float64).ravel()) + factors.T @ factors
    if problem.noise.factor is None:
        std = np.broadcast_to(np.asarray(problem.noise.std, np.float64), problem.y.shape)
        S_noise = np.diag(std.ravel() ** 2)
    else:
        factor = np.asarray(problem.noise.factor, np.float64)
        S_noise = factor @ factor.T
    C = S_noise + A @ S_model @ A.T
    seen = ~np.isnan(np.asarray(problem.y)).ravel()
    mean = A @ np.asarray(problem.prior.decode(u), np.float64).ravel()
    y = np.asarray(problem.y, np.float64).ravel()
    lower = scipy.linalg.cholesky(C[np.ix_(seen, seen)], lower=True)
    r = scipy.linalg.solve_triangular(lower, (y - mean)[seen], lower=True)
    likelihood = scipy.stats.norm.logpdf(r).sum() - np.log(np.diag(lower)).sum()
    return likelihood + scipy.stats.norm.logpdf(np.asarray(u, np.float64)).sum()


def assert_matches_reference(problem, *us):
    for u in us:
        expected = reference(problem, u)
        assert abs(problem.log_density(u) - expected) < 1e-3 + 1e-5 * abs(expected)


@pytest.mark.parametrize("model_error", MODEL_ERRORS.values(), ids=MODEL_ERRORS.keys())
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
@pytest.mark.parametrize("operator", OPERATOR_CASES.values(), ids=OPERATOR_CASES.keys())
def test_log_density_matches_scipy(operator, noise, model_error):
    problem, u = observe(make_prior(model_error), operator, noise(operator.output_shape))
    assert_matches_reference(problem, u, u + 1.0)


@pytest.mark.parametrize(
    ("operator", "std", "model_error"),
    [
        (RegionMask(columns=(10, 23)), 0.0, 0.02),
        (RandomMask(0.5), 0.01, low_rank(16, (28, 28))),
        (Blur(3.0, size=11), 0.05, 0.1),
        (Blur(3.0, size=11), 0.001, low_rank(16, (28, 28))),
    ],
    ids=["solid mask", "sparse", "blur", "sharp blur"],
)
def test_log_density_matches_scipy_when_it_is_thousands_of_nats(operator, std, model_error):
    prior = make_prior(model_error, (28, 28), dim=10)
    problem, u = observe(prior, operator, GaussianNoise(std))
    assert_matches_reference(problem, u, u + 0.3)
    assert abs(problem.log_density(u)) > 500


@pytest.mark.slow
def test_a_dense_operator_on_64x64_pixels():
    # C is factored over the few data that are seen; the operator's matrix has all 4096 rows.
    prior = make_prior(low_rank(4, (64, 64)), (64, 64))
    operator = RandomMask(0.95) @ Blur(2.0, size=9)
    problem, u = observe(prior, operator, GaussianNoise(0.05))
    assert type(problem.likelihood.whitening) is DenseWhitening
    expected = exact_log_density(problem, u)
    assert abs(problem.log_density(u) - expected) < 1e-3 + 1e-5 * abs(expected)


@pytest.mark.parametrize(
    ("operator", "noise", "model_error", "form"),
    [
        ("mask", "map", "map", LowRankWhitening),
        ("gain", "one level", "scalar", LowRankWhitening),
        ("downsample", "one level", "scalar", LowRankWhitening),
        ("mask", "map", "low rank", LowRankWhitening),
        ("mask", "one level", "full", DenseWhitening),
        ("mask", "covariance", "scalar", DenseWhitening),
        ("blur", "one level", "scalar", DenseWhitening),
        ("stack", "one level", "scalar", DenseWhitening),
    ],
)
def test_the_cheapest_exact_form_is_used(operator, noise, model_error, form):
    operator = OPERATOR_CASES[operator]
    prior = make_prior(MODEL_ERRORS[model_error])
    problem, _ = observe(prior, operator, NOISES[noise](operator.output_shape))
    assert type(problem.likelihood.whitening) is form


@pytest.mark.parametrize("model_error", ["scalar", "low rank", "full"])
@pytest.mark.parametrize("noise", sorted(NOISES))
@pytest.mark.parametrize("operator", ["mask", "blur"])
def test_data_that_the_model_error_dominates_count_less(operator, noise, model_error):
    operator = OPERATOR_CASES[operator]
    noise = NOISES[noise](operator.output_shape)
    plain, u = observe(make_prior(MODEL_ERRORS[model_error]), operator, noise)
    seen = np.asarray(plain.observed).ravel()
    matrix, error = to_matrix(operator)[seen], plain.likelihood.error
    factors = np.asarray(error.factors, np.float64).reshape(error.rank, error.variance.size)
    half = np.vstack([np.diag(np.sqrt(np.ravel(error.variance))), factors]) @ matrix.T
    part = half.T @ half
    noise_part = np.diag(noise.variance(operator.output_shape))
    if noise.factor is not None:
        noise_part = np.asarray(noise.factor) @ np.asarray(noise.factor).T
    noise_part = noise_part[np.ix_(seen, seen)]
    dominated = np.trace(np.linalg.solve(part + noise_part, part))
    limited = dataclasses.replace(error, most_data=3.0)
    problem = InverseProblem(make_prior(limited), operator, noise, plain.y)
    inflation = problem.likelihood.error.std / error.std
    np.testing.assert_allclose(inflation, np.sqrt(1 + dominated / 3), rtol=1e-4)
    expected = exact_log_density(problem, u)
    assert abs(problem.log_density(u) - expected) < 1e-3 + 1e-5 * abs(expected)
    # Images are drawn with the error as it was.
    np.testing.assert_array_equal(problem.likelihood.image_error.std, error.std)
    decoded, zeros = problem.prior.generate(u), jnp.zeros_like(problem.likelihood.data.y)
    mean = decoded + problem.likelihood.correction(decoded, zeros, jnp.ones(SHAPE))
    expected, covariance = exact_conditional_image(problem, u)
    # What conjugate gradients leave is small beside the spread of the images.
    tolerance = 1e-4 + 0.02 * np.sqrt(np.diag(covariance).max())
    np.testing.assert_allclose(np.ravel(mean), expected, atol=tolerance)


@st.composite
def chains(draw):
    """A random composition of up to three examples, perhaps stacked with another."""
    shape, chain = SHAPE, None
    for _ in range(draw(st.integers(1, 3))):
        # Examples are made for 2-D images with even sides; other data are rescaled.
        fits = len(shape) == 2 and min(shape) >= 6 and not any(n % 2 for n in shape)
        name = draw(st.sampled_from(sorted(EXAMPLES))) if fits else None
        operator = Gain(1.5).bind(shape) if name is None else example_operators(shape)[name]
        chain = operator if chain is None else operator @ chain
        shape = chain.output_shape
    if draw(st.booleans()):
        chain = stack(chain, EXAMPLES[draw(st.sampled_from(sorted(EXAMPLES)))])
    return chain


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    operator=chains(),
    noise=st.sampled_from(sorted(NOISES)),
    model_error=st.sampled_from(sorted(MODEL_ERRORS)),
)
@pytest.mark.slow
def test_random_compositions(operator, noise, model_error):
    assert operator.input_shape == SHAPE
    rng = np.random.RandomState(5)
    x = rng.randn(*SHAPE).astype(np.float32)
    y = rng.randn(*operator.output_shape).astype(np.float32)
    forward, back = np.asarray(operator(x), np.float64), np.asarray(operator.adjoint(y), np.float64)
    assert forward.shape == operator.output_shape
    scale = max(
        np.linalg.norm(forward) * np.linalg.norm(y), np.linalg.norm(back) * np.linalg.norm(x)
    )
    assert abs(np.vdot(forward, y) - np.vdot(x, back)) <= 1e-5 * scale
    prior = make_prior(MODEL_ERRORS[model_error])
    problem, u = observe(prior, operator, NOISES[noise](operator.output_shape))
    assert_matches_reference(problem, u)


def test_log_density_is_residual_and_prior_up_to_a_constant():
    problem, u = observe(make_prior(), EXAMPLES["mask"], GaussianNoise(0.1))
    for point in (u, u + 1.0):
        r = problem.residual(point)
        rest = problem.log_density(point) + 0.5 * jnp.sum(r**2) + 0.5 * jnp.sum(point**2)
        constant = problem.likelihood.log_normalisation - 0.5 * DIM * np.log(2 * np.pi)
        assert abs(rest - constant) < 1e-3
        assert abs(problem.chi_squared(point) - jnp.sum(r**2)) < 1e-3


@pytest.mark.parametrize("operator", ["mask", "blur"])
def test_residual_is_prediction_minus_data_and_zero_where_unobserved(operator):
    prior = make_prior()
    operator = EXAMPLES["mask"] if operator == "mask" else EXAMPLES["mask"] @ EXAMPLES["blur"]
    problem, u = observe(prior, operator, GaussianNoise(0.1))
    counted = problem.likelihood.data.counted
    assert np.all(np.asarray(problem.residual(u))[~np.asarray(counted)] == 0)
    above = problem.with_data(jnp.where(problem.observed, problem.operator(prior.decode(u)) - 1, 0))
    # With data one below the prediction, every unwhitened residual is +1, in units of its row.
    expected = problem.likelihood.whitening.whiten(counted / problem.likelihood.data.units)
    np.testing.assert_allclose(above.residual(u), expected, atol=1e-4)


@pytest.mark.parametrize("operator", ["mask", "blur"])
def test_nan_in_y_is_the_same_as_a_mask(operator):
    problem, u = observe(make_prior(), EXAMPLES[operator], GaussianNoise(0.1))
    y = np.array(problem.y)
    y[2:4, 1] = np.nan
    hidden = InverseProblem(problem.prior, problem.operator, problem.noise, y)
    mask = Mask(~np.isnan(y))
    masked = InverseProblem(
        problem.prior, mask @ EXAMPLES[operator], problem.noise, np.nan_to_num(y, nan=7.0)
    )
    assert_matches_reference(hidden, u)
    np.testing.assert_allclose(hidden.log_density(u), masked.log_density(u), rtol=1e-6)


def test_data_under_the_mask_do_not_matter():
    problem, u = observe(make_prior(), EXAMPLES["mask"], GaussianNoise(0.1))
    y = np.where(problem.observed, problem.y, np.inf)
    other = InverseProblem(problem.prior, problem.operator, problem.noise, y)
    assert other.log_density(u) == problem.log_density(u)


def test_nothing_observed_is_the_prior_with_a_warning():
    with pytest.warns(UserWarning, match="the posterior is the prior"):
        problem = InverseProblem(
            make_prior(), Mask(np.zeros(SHAPE)), GaussianNoise(0.1), np.zeros(SHAPE)
        )
    u = jnp.arange(DIM) / 2.0
    expected = scipy.stats.norm.logpdf(np.asarray(u)).sum()
    assert abs(problem.log_density(u) - expected) < 1e-5
    assert "the posterior is the prior" in problem.explain()


def test_new_data_mask_noise_and_blur_do_not_retrace():
    prior = make_prior(low_rank(3))
    traces = []

    @eqx.filter_jit
    def evaluate(problem, us):
        traces.append(problem)
        return jax.vmap(problem.log_density)(us)

    def some(rng):
        return rng.permutation(48).reshape(SHAPE) < rng.randint(1, 48)

    us = jax.random.normal(jax.random.key(0), (5, DIM))
    makers = (
        lambda rng: Mask(some(rng)),
        lambda rng: Mask(some(rng)) @ Blur(0.5 + rng.rand(), size=5),
    )
    for count, make in enumerate(makers, start=1):
        for seed in range(3):
            rng = np.random.RandomState(seed)
            y = rng.rand(*SHAPE)
            y[seed, seed] = np.nan
            evaluate(InverseProblem(prior, make(rng), GaussianNoise(rng.rand()), y), us)
        assert len(traces) == count


def test_methods_can_be_compiled_as_they_are():
    problem, u = observe(make_prior(), EXAMPLES["mask"], GaussianNoise(0.1))
    compiled = jax.jit(problem.log_density)
    np.testing.assert_allclose(compiled(u), problem.log_density(u), rtol=1e-6)
    np.testing.assert_allclose(compiled(u + 1), problem.log_density(u + 1), rtol=1e-6)
    assert jax.jit(jax.vmap(problem.residual))(jnp.stack([u, u])).shape == (2, 48)


def in_float64(problem):
    def widen(leaf):
        return leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf

    return jax.tree.map(widen, problem)


@pytest.mark.parametrize(
    ("operator", "model_error"), [("mask", "scalar"), ("mask", "low rank"), ("blur", "scalar")]
)
def test_gradient_and_hessian_equal_finite_differences(operator, model_error):
    operator = OPERATOR_CASES[operator]
    problem, u = observe(make_prior(MODEL_ERRORS[model_error]), operator, GaussianNoise(0.1))
    with jax.enable_x64(True):
        problem, u = in_float64(problem), u.astype(jnp.float64)
        step = 1e-5
        shifts = step * jnp.concatenate([jnp.eye(DIM), -jnp.eye(DIM)])
        evaluate = jax.jit(jax.vmap(jax.value_and_grad(problem.log_density)))
        values, gradients = evaluate(u + shifts)
        # Central differences err by step^2 |f'''| / 6 + 1e-16 |f| / step: about 1e-8 of 1e3.
        np.testing.assert_allclose(
            evaluate(u[None])[1][0],
            (values[:DIM] - values[DIM:]) / (2 * step),
            rtol=1e-6,
            atol=1e-5,
        )
        np.testing.assert_allclose(
            jax.jit(jax.hessian(problem.log_density))(u),
            (gradients[:DIM] - gradients[DIM:]) / (2 * step),
            rtol=1e-6,
            atol=1e-4,
        )


def test_simulations_have_the_stated_covariance():
    operator = OPERATOR_CASES["masked blur"]
    problem, _ = observe(make_prior(low_rank(3)), operator, GaussianNoise(0.1))
    n = 2000
    draws = jax.jit(jax.vmap(problem.simulate))(jax.random.split(jax.random.key(1), n))
    assert np.array_equal(np.isnan(draws.y[0]), ~problem.observed)
    residual_fn = jax.jit(jax.vmap(lambda u, y: problem.with_data(y).residual(u)))
    residuals = residual_fn(draws.u, draws.y)
    residuals = np.asarray(residuals, np.float64)
    # W^T W = C^-1 makes all residuals jointly standard normal: their squares sum to
    # chi-squared with `seen` degrees, of variance 2 seen.
    seen = int(problem.observed.sum())
    chi_squared = np.sum(residuals**2, axis=1)
    assert abs(chi_squared.mean() - seen) < 5 * np.sqrt(2 * seen / n)
    assert np.all(np.abs(residuals.mean(axis=0)) < 5 / np.sqrt(n))
    # x | u has mean g(u) and the model error's variance.
    errors = np.asarray(draws.x - problem.prior.decode(draws.u), np.float64)
    variance = np.asarray(problem.prior.model_error.std, np.float64) ** 2
    assert np.all(np.abs(errors.var(axis=0) / variance - 1) < 5 * np.sqrt(2 / n))


def test_other_data_reuse_the_factors():
    problem, u = observe(make_prior(), EXAMPLES["blur"], GaussianNoise(0.1))
    y = problem.simulate(jax.random.key(2)).y
    fresh = InverseProblem(problem.prior, problem.operator, problem.noise, y)
    np.testing.assert_allclose(problem.with_data(y).log_density(u), fresh.log_density(u), rtol=1e-5)
    with pytest.raises(UserError, match="new InverseProblem"):
        problem.with_data(jnp.where(jnp.arange(6) == 2, jnp.nan, y))
    with pytest.raises(UserError, match=r"\(6,\)"):
        problem.with_data(np.zeros(6))


def test_a_noiseless_wide_blur_asks_for_a_noise_level_that_works():
    prior = make_prior(0.1, (14, 14))
    y = 0.3 * np.ones((14, 14))
    with pytest.raises(UserError, match=r"singular.*deviation of 0\.01\."):
        InverseProblem(prior, Blur(2.0, size=11), GaussianNoise(0.0), y)
    InverseProblem(prior, Blur(2.0, size=11), GaussianNoise(0.01), y)
    # The level follows the units of the data.
    with pytest.raises(UserError, match=r"deviation of 5\."):
        InverseProblem(prior, Gain(500.0) @ Blur(2.0, size=11), GaussianNoise(0.0), 500 * y)
    # A narrow blur loses nothing: it needs no noise.
    InverseProblem(prior, Blur(0.4, size=5), GaussianNoise(0.0), y)


def test_an_outlier_in_y_makes_no_covariance_singular():
    y = np.zeros(SHAPE)
    y[0, 0] = 1e6
    problem = InverseProblem(make_prior(), Gain(1.0), GaussianNoise(0.1), y)
    assert_matches_reference(problem, jnp.zeros(DIM))


def test_low_rank_errors_without_a_diagonal_are_exact_too():
    # Pixels that only the factors disturb: Woodbury would divide by zero.
    error = low_rank(3)
    error = ModelError(error.variance.at[0, :2].set(0.0), error.factors)
    problem, u = observe(make_prior(error), EXAMPLES["gain"], GaussianNoise(0.0))
    assert type(problem.likelihood.whitening) is DenseWhitening
    assert_matches_reference(problem, u)


def test_the_same_pixel_seen_twice_without_noise_is_singular():
    mask = EXAMPLES["mask"]
    with pytest.raises(UserError, match="singular"):
        InverseProblem(make_prior(), stack(mask, mask), GaussianNoise(0.0), np.zeros(96))
    with pytest.raises(UserError, match="singular"):
        InverseProblem(make_prior(), Gain(np.zeros(SHAPE)), GaussianNoise(0.0), np.zeros(SHAPE))


def test_singular_is_judged_datum_by_datum():
    # Differences around a circle sum to zero, and those of a constant image are all zero.
    differences = LinearOperator(lambda x: x - jnp.roll(x, 1, axis=0), SHAPE)
    with pytest.raises(UserError, match=r"singular.*deviation of 0\.02\."):
        InverseProblem(make_prior(), differences, GaussianNoise(0.0), np.zeros(SHAPE))
    # Two instruments, one of which counts in millionths.
    both = stack(Gain(1e6).bind(SHAPE), Gain(1.0))
    problem, u = observe(make_prior(), both, GaussianNoise(both.join(1e4, 0.1)))
    assert_matches_reference(problem, u)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": np.zeros((6, 8))}, r"y has shape \(6, 8\).*\(8, 6\)"),
        ({"y": np.where(np.eye(8, 6) > 0, np.inf, 0)}, r"infinite at \(0, 0\)"),
        ({"noise": GaussianNoise(np.ones(3))}, r"\(3,\)"),
        ({"noise": 0.1}, "must be of type GaussianNoise, not 0.1"),
        ({"operator": np.ones(SHAPE)}, "must be of type Operator"),
        ({"prior": "mnist"}, "must be of type GenerativePrior, not 'mnist'"),
        ({"operator": Mask(np.ones((3, 3)))}, r"\(3, 3\), not \(8, 6\)"),
        ({"operator": Blur(4.0)}, "larger than the image"),
        ({"y": "image.png"}, "y must be made of real numbers, not 'image.png'"),
        ({"y": 1j * np.ones(SHAPE)}, "real numbers"),
    ],
)
def test_what_cannot_be_right_is_refused_in_one_sentence(arguments, message):
    good = {
        "prior": make_prior(),
        "operator": Gain(np.ones(SHAPE)),
        "noise": GaussianNoise(0.1),
        "y": np.zeros(SHAPE),
    }
    with pytest.raises(UserError, match=message):
        InverseProblem(**(good | arguments))


def test_a_point_of_the_wrong_shape_is_refused():
    problem, u = observe(make_prior(), EXAMPLES["mask"], GaussianNoise(0.1))
    for wrong in (u[:2], jnp.stack([u, u])):
        with pytest.raises(UserError, match=r"map over many with jax\.vmap"):
            problem.log_density(wrong)


def test_explains_itself():
    mask = np.ones(SHAPE)
    mask[:, :3] = 0
    y = np.linspace(0, 1, 48).reshape(SHAPE)
    problem = InverseProblem(make_prior(0.1), Mask(mask), GaussianNoise(0.2), y)
    text = problem.explain()
    assert "8 x 6 pixels" in text
    assert "24 of 48 data" in text
    assert "independent noise of standard deviation 0.2" in text
    # 0.01 of 0.01 + 0.04.
    assert "20% of the variance" in text
    assert "\n" not in text
    assert "is seen through Mask(" in text
    direct = InverseProblem(make_prior(0.1), Gain(1.0), GaussianNoise(0.2), y).explain()
    assert "is observed as a whole: 48 of 48 data" in direct
    levels = InverseProblem(make_prior(0.1), Mask(mask), GaussianNoise(0.1 + y), y).explain()
    assert "standard deviation 0.164 to 1.1." in levels
    silent = InverseProblem(make_prior(0.1), Mask(mask), GaussianNoise(0.0), y).explain()
    assert "and no noise." in silent
    assert "100% of the variance" in silent
    assert repr(problem).startswith("InverseProblem(GenerativePrior(")


def test_evidences_of_two_noise_levels_can_be_compared():
    # The constant contains ln det C: with data at the prediction, halving the total standard
    # deviation of all 48 data raises the density by 48 ln 2.
    prior = make_prior(0.03)
    u = jnp.zeros(DIM)
    y = prior.decode(u)
    low, high = (
        InverseProblem(prior, Downsample(1), GaussianNoise(variance=v - 0.0009), y).log_density(u)
        for v in (0.01, 0.04)
    )
    assert abs(low - high - 48 * np.log(2)) < 1e-3
