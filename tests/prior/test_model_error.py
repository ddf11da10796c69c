import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from latentuq.core.errors import UserError
from latentuq.prior.model_error import ModelError, make_model_error
from latentuq.prior.training.residuals import (
    estimate_gain,
    estimate_model_errors,
    mean_log_prob,
    with_signal_dependence,
)

SHAPE = (3, 4)


def dense(error: ModelError) -> np.ndarray:
    factors = np.asarray(error.factors).reshape(error.rank, error.variance.size)
    return np.diag(np.asarray(error.variance).ravel()) + factors.T @ factors


def random_covariance(seed: int) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(12, 12))
    return root @ root.T / 12 + 0.1 * np.eye(12)


@pytest.mark.parametrize(
    "value", [0.3, np.linspace(0.1, 0.5, 12).reshape(SHAPE), random_covariance(0)]
)
def test_what_is_given_is_what_is_used(value):
    error = make_model_error(value, SHAPE)
    value = np.asarray(value)
    expected = (
        value if value.shape == (12, 12) else np.diag(np.broadcast_to(value**2, SHAPE).ravel())
    )
    np.testing.assert_allclose(dense(error), expected, rtol=1e-5, atol=1e-6)
    x = jax.random.normal(jax.random.key(0), SHAPE)
    np.testing.assert_allclose(error.apply(x).ravel(), expected @ x.ravel(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(error.std.ravel() ** 2, np.diag(expected), rtol=1e-5)


def test_samples_have_the_covariance():
    error = make_model_error(random_covariance(1), SHAPE)
    n = 40_000
    draws = jax.vmap(error.sample)(jax.random.split(jax.random.key(0), n)).reshape(n, -1)
    expected = dense(error)
    # Var of a sample covariance entry: (S_ij^2 + S_ii S_jj) / n; six standard errors.
    diagonal = np.diag(expected)
    tolerance = 6 * np.sqrt((expected**2 + np.outer(diagonal, diagonal)) / n)
    assert np.all(np.abs(np.cov(draws.T) - expected) < tolerance)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "positive"),
        (-1.0, "positive"),
        (np.nan, "finite"),
        (np.ones((2, 2)), "neither"),
        (-np.eye(12), "positive definite"),
        (np.triu(np.ones((12, 12))) + np.eye(12), "symmetric"),
    ],
)
def test_what_cannot_be_right_is_refused(value, words):
    with pytest.raises(UserError, match=words):
        make_model_error(value, SHAPE)


def test_mean_log_prob_equals_scipy():
    rng = np.random.default_rng(0)
    variance, factors = rng.uniform(0.1, 1, 12), rng.normal(size=(3, 12))
    rows = rng.normal(size=(7, 12))
    covariance = np.diag(variance) + factors.T @ factors
    expected = stats.multivariate_normal(np.zeros(12), covariance).logpdf(rows).mean()
    np.testing.assert_allclose(mean_log_prob(rows, variance, factors), expected, rtol=1e-10)


def test_estimates_recover_a_known_covariance_and_choose_it():
    rng = np.random.default_rng(0)
    n = 20_000
    variance, factors = rng.uniform(0.05, 0.2, 12) ** 2, 0.3 * rng.normal(size=(2, 12))

    def residuals(n):
        return np.sqrt(variance) * rng.normal(size=(n, 12)) + rng.normal(size=(n, 2)) @ factors

    errors = estimate_model_errors(
        residuals(n).reshape(n, *SHAPE), residuals(2000).reshape(-1, *SHAPE), 0.01, 2
    )
    assert errors.default == "low-rank"
    assert set(errors.estimates) == {"scalar", "per-pixel", "low-rank"}
    truth = np.diag(variance) + factors.T @ factors
    diagonal = np.diag(truth)
    tolerance = 6 * np.sqrt((truth**2 + np.outer(diagonal, diagonal)) / n)
    assert np.all(np.abs(dense(errors.estimates["low-rank"]) - truth) < tolerance)
    np.testing.assert_allclose(
        np.asarray(errors.estimates["per-pixel"].variance).ravel(),
        diagonal,
        rtol=6 * np.sqrt(2 / n),
    )
    np.testing.assert_allclose(errors.estimates["scalar"].variance, diagonal.mean(), rtol=0.1)


def test_the_floor_holds_where_pixels_never_vary():
    residuals = np.zeros((50, *SHAPE))
    residuals[:, 0, 0] = np.random.default_rng(0).normal(size=50)
    errors = estimate_model_errors(residuals, residuals, 0.02, 3)
    for error in errors.estimates.values():
        assert float(jnp.min(error.std)) >= 0.02 * (1 - 1e-6)


def test_more_pixels_than_the_dense_solver_takes():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(1, 1600))
    residuals = rng.normal(size=(60, 1)) @ factor + 0.1 * rng.normal(size=(60, 1600))
    error = estimate_model_errors(
        residuals.reshape(-1, 40, 40), residuals.reshape(-1, 40, 40), 0.02, 1
    ).estimates["low-rank"]
    direction = np.asarray(error.factors).ravel()
    cosine = abs(direction @ factor[0]) / np.linalg.norm(direction) / np.linalg.norm(factor)
    assert cosine > 0.99


def test_the_gain_is_linear_between_its_knots():
    error = make_model_error(0.3, SHAPE)
    decoded = jnp.array([-1.0, 0.0, 0.25, 0.5, 1.0, 2.0])
    np.testing.assert_array_equal(error.gain_at(decoded), 1.0)
    error = ModelError(error.variance, error.factors, jnp.array([0.5, 2.0, 1.0]))
    np.testing.assert_allclose(error.gain_at(decoded), [0.5, 0.5, 1.25, 2.0, 1.0, 1.0], rtol=1e-6)


def test_estimates_recover_a_known_gain():
    rng = np.random.default_rng(0)
    decoded = rng.uniform(size=(5000, *SHAPE))
    residuals = 0.1 * (0.5 + decoded) * rng.normal(size=decoded.shape)
    errors = estimate_model_errors(residuals, residuals, 0.01, 2)
    error = errors.estimates["low-rank"]
    gain = estimate_gain(error, residuals, decoded)
    knots = np.linspace(0, 1, len(gain))
    expected = 0.1 * (0.5 + knots) / float(jnp.sqrt(jnp.mean(error.std**2)))
    # At the ends half as many pixels count, and the hundred that speak for 1 weigh more.
    np.testing.assert_allclose(gain[1:-1], expected[1:-1], rtol=0.1)
    np.testing.assert_allclose(gain, expected, rtol=0.3)
    both = with_signal_dependence(errors._replace(default="low-rank"), residuals, decoded, 50.0)
    assert both.default == "signal-dependent"
    dependent = both.estimates["signal-dependent"]
    np.testing.assert_allclose(dependent.gain, gain, rtol=1e-5)
    np.testing.assert_array_equal(dependent.std, error.std)
    assert dependent.most_data == 50
    other = with_signal_dependence(errors._replace(default="scalar"), residuals, decoded, 50.0)
    assert other.default == "scalar"


@pytest.mark.parametrize("gain", [None, jnp.array([0.5, 2.0, 1.0])])
def test_many_data_count_as_few(gain):
    error = ModelError(jnp.full(SHAPE, 0.01), jnp.full((1, *SHAPE), 0.2), gain, 50.0)
    assert error.inflated(0.0) is error
    inflated = error.inflated(150.0)  # They count as 150 / 4.
    np.testing.assert_allclose(inflated.std, 2 * error.std, rtol=1e-6)
    assert inflated.gain is None  # The gain is for images.
    unlimited = ModelError(error.variance, error.factors, gain)
    assert unlimited.inflated(150.0) is unlimited


def test_a_gain_without_data_is_one():
    error = make_model_error(0.3, SHAPE)
    np.testing.assert_array_equal(estimate_gain(error, np.zeros((0, *SHAPE)), np.zeros(0)), 1.0)
