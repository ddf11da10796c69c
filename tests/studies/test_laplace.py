from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from studies.baselines.laplace_mixture import laplace


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def test_laplace_is_exact_for_a_gaussian(double):
    root = np.random.default_rng(0).normal(size=(3, 3)) + 2 * np.eye(3)
    covariance, mean = root @ root.T, jnp.array([2.0, -1.0, 0.5])
    precision = np.linalg.inv(covariance)
    fit = jax.jit(partial(laplace, lambda u: 3.0 - 0.5 * (u - mean) @ precision @ (u - mean)))(mean)
    np.testing.assert_allclose(fit.factor @ fit.factor.T, covariance, rtol=1e-10)
    np.testing.assert_allclose(fit.factor, np.linalg.cholesky(covariance), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fit.precision, precision, rtol=1e-10)
    log_det = np.linalg.slogdet(2 * np.pi * covariance)[1]
    np.testing.assert_allclose(fit.log_mass, 3.0 + 0.5 * log_det, rtol=1e-12)
    assert not fit.repaired


@pytest.mark.parametrize(
    ("curvatures", "expected"), [([4.0, -9.0], [4.0, 9.0]), ([4.0, 0.0], [4.0, 8 * 2.0**-23])]
)
def test_laplace_repairs_and_flags_what_is_no_maximum(curvatures, expected):
    curvatures = np.array(curvatures)

    @jax.jit
    def fit_at(mode):
        return laplace(lambda u: -0.5 * u @ (curvatures * u), mode)

    fit = fit_at(jnp.zeros(2))
    assert fit.repaired
    np.testing.assert_allclose(fit.precision, np.diag(expected), rtol=1e-5)
