import jax
import numpy as np
import pytest

from latentuq.core.errors import UserError
from latentuq.likelihood.noise import GaussianNoise

SHAPE = (2, 3)


def random_covariance(size, seed=0):
    root = np.random.RandomState(seed).randn(size, size)
    return 0.01 * (root @ root.T / size + 0.5 * np.eye(size))


@pytest.mark.parametrize(
    "noise",
    [
        GaussianNoise(0.3),
        GaussianNoise(np.linspace(0.1, 0.6, 6).reshape(SHAPE)),
        GaussianNoise(variance=0.09),
        GaussianNoise(covariance=random_covariance(6)),
    ],
    ids=repr,
)
def test_draws_have_the_stated_covariance(noise):
    n = 20_000
    draws = jax.vmap(lambda key: noise.sample(key, SHAPE))(jax.random.split(jax.random.key(0), n))
    draws = np.asarray(draws, np.float64).reshape(n, 6)
    covariance = np.diag(noise.variance(SHAPE))
    if noise.factor is not None:
        factor = np.asarray(noise.factor, np.float64)
        covariance = factor @ factor.T
    # Var(x_i x_j) = c_ii c_jj + c_ij^2; 36 entries, so 5 standard errors.
    variance = np.diag(covariance)
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
    assert np.all(np.abs(draws.T @ draws / n - covariance) < 5 * error)


def test_std_variance_and_covariance_say_the_same():
    std = np.linspace(0.1, 0.6, 6).reshape(SHAPE)
    expected = std.ravel() ** 2
    for noise in (
        GaussianNoise(std),
        GaussianNoise(variance=std**2),
        GaussianNoise(covariance=np.diag(expected)),
    ):
        noise.check(SHAPE)
        np.testing.assert_allclose(noise.variance(SHAPE), expected, rtol=1e-6)
    np.testing.assert_allclose(GaussianNoise(0.3).variance(SHAPE), 0.09, rtol=1e-6)


def test_prints_readably():
    assert repr(GaussianNoise(0.1)) == "GaussianNoise(0.1)"
    assert repr(GaussianNoise(np.ones(SHAPE))) == "GaussianNoise(std 2x3)"
    assert repr(GaussianNoise(covariance=np.eye(6))) == "GaussianNoise(covariance 6x6)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianNoise(-0.1), "-0.1"),
        (lambda: GaussianNoise(variance=[-2.0, 1.0]), "-2"),
        (lambda: GaussianNoise(np.inf), "contains inf"),
        (lambda: GaussianNoise([np.nan, 1.0]), "contains nan"),
        (lambda: GaussianNoise("loud"), "'loud'"),
        (lambda: GaussianNoise(), "not none"),
        (lambda: GaussianNoise(0.1, variance=0.01), "not std and variance"),
        (lambda: GaussianNoise(covariance=np.ones((2, 3))), r"\(2, 3\)"),
        (lambda: GaussianNoise(covariance=[[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (lambda: GaussianNoise(covariance=[[1.0, 2.0], [2.0, 1.0]]), "eigenvalue is -1"),
        (lambda: GaussianNoise(np.ones((3, 2))).check(SHAPE), r"\(3, 2\).*\(2, 3\)"),
        (lambda: GaussianNoise(covariance=np.eye(5)).check(SHAPE), "5 rows.*6 data"),
    ],
)
def test_what_cannot_be_right_is_refused_in_one_sentence(make, message):
    with pytest.raises(UserError, match=message):
        make()
