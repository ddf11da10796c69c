"""The level of the noise that a linear Gaussian problem tells: the evidence is known exactly."""

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import latentuq as lu

DIM, SHAPE = 3, (6, 5)
BASIS = jax.random.normal(jax.random.key(0), (30, DIM)) / 2


def linear_prior(model_error):
    return lu.prior_from(lambda u: (BASIS @ u).reshape(SHAPE), DIM, SHAPE, model_error)


def observe(std, model_error, seed=1):
    rng = np.random.default_rng(seed)
    clean = np.asarray(BASIS) @ rng.normal(size=DIM) + model_error * rng.normal(size=30)
    return (clean + std * rng.normal(size=30)).reshape(SHAPE)


def exact_log_evidence(y, std, model_error):
    covariance = np.asarray(BASIS @ BASIS.T) + (std**2 + model_error**2) * np.eye(30)
    return multivariate_normal.logpdf(y.ravel(), cov=covariance)


@pytest.mark.slow
def test_it_is_where_the_exact_evidence_says():
    y = observe(0.3, 0.05)
    level = lu.estimate_noise(jax.random.key(0), linear_prior(0.05), lu.Gain(1.0), y)
    grid = np.linspace(np.log(level.levels[0]), np.log(level.levels[-1]), 2001)
    logs = np.array([exact_log_evidence(y, np.exp(each), 0.05) for each in grid])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    spread = np.sqrt(weights @ (grid - mean) ** 2)
    assert np.log(level.std) == pytest.approx(mean, abs=0.3 * spread)
    assert np.log(level.high / level.low) / 2 == pytest.approx(spread, rel=0.3)
    assert level.low < 0.3 < level.high or abs(np.log(level.std / 0.3)) < 3 * spread
    exact = [exact_log_evidence(y, std, 0.05) for std in level.levels]
    np.testing.assert_allclose(level.log_evidences, exact, atol=0.1)


@pytest.mark.parametrize("std", [0.2, 0.26])
@pytest.mark.slow
def test_many_data_have_a_narrow_peak(std):
    """Far narrower than the distance between the first levels, wherever it lies between them."""
    basis = jax.random.normal(jax.random.key(1), (784, DIM)) / 4
    prior = lu.prior_from(lambda u: (basis @ u).reshape(28, 28), DIM, (28, 28), 0.01)
    rng = np.random.default_rng(0)
    y = (np.asarray(basis) @ rng.normal(size=DIM) + std * rng.normal(size=784)).reshape(28, 28)
    level = lu.estimate_noise(jax.random.key(0), prior, lu.Gain(1.0), y)
    spread = 1 / np.sqrt(2 * 784)
    residual = y.ravel() - np.asarray(basis) @ np.linalg.lstsq(basis, y.ravel())[0]
    best = np.sqrt(np.sum(residual**2) / (784 - DIM))
    assert np.log(level.std / best) == pytest.approx(0, abs=0.5 * spread)
    assert np.log(level.high / level.low) / 2 == pytest.approx(spread, rel=0.3)


@pytest.mark.slow
def test_data_without_noise_only_bound_it():
    y = observe(0.0, 0.2)
    level = lu.estimate_noise(jax.random.key(0), linear_prior(0.2), lu.Gain(1.0), y)
    assert level.is_bound
    assert level.std == level.levels[0]
    assert "no noise at all explains the data as well" in str(level)


@pytest.mark.parametrize(
    ("y", "message"), [(np.full(SHAPE, 0.5), "do not vary"), ("dark", "y must be made of real")]
)
def test_data_that_say_nothing_are_refused(y, message):
    with pytest.raises(lu.UserError, match=message):
        lu.estimate_noise(jax.random.key(0), linear_prior(0.1), lu.Gain(1.0), y)
