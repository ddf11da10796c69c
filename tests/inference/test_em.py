import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq.inference.em import fit_mixture
from latentuq.inference.mixture import Mixture

N = 8000
TRUTH = Mixture(
    jnp.log(jnp.array([0.7, 0.3])),
    jnp.array([[-2.0, 0.0], [2.0, 1.0]]),
    jnp.array([[[1.0, 0.0], [0.5, 0.6]], [[0.5, 0.0], [0.0, 0.8]]]),
    10.0,
)


def fitted(iterations=30):
    # The third component only pads the shape.
    start = Mixture(
        jnp.log(jnp.array([0.5, 0.5, 0.0])),
        jnp.array([[-1.0, 0.5], [1.0, 0.5], [0.0, 0.0]]),
        jnp.tile(jnp.eye(2), (3, 1, 1)),
        10.0,
    )
    return fit_mixture(TRUTH.sample(jax.random.key(0), N), start, iterations)


def test_a_mixture_of_two_is_recovered():
    fit = fitted()
    weights = np.exp(fit.log_weights)
    assert weights[2] == 0
    # Four standard errors of n points: sqrt(w (1 - w) / n) of a weight (+1/3 for the overlap of
    # the components), and with n_k = w n for a component, 1 / sqrt(n_k) widths of its mean and
    # sqrt(2 / n_k) of the entries of its scale matrix (x (1 + 4 / nu) for the Student-t's
    # kurtosis).
    np.testing.assert_allclose(weights[:2], [0.7, 0.3], atol=4 * np.sqrt(0.21 / N) * 4 / 3)
    for k, count in enumerate([0.7 * N, 0.3 * N]):
        root = np.asarray(TRUTH.factors[k])
        gap = np.linalg.solve(root, np.asarray(fit.means[k] - TRUTH.means[k]))
        assert np.all(np.abs(gap) < 4 / np.sqrt(count) * 1.1)
        ratio = np.linalg.solve(root, np.asarray(fit.factors[k]))
        np.testing.assert_allclose(ratio @ ratio.T, np.eye(2), atol=4 * np.sqrt(2 / count) * 1.4)


def test_a_component_of_few_points_is_as_wide_as_a_typical_one():
    points = jnp.concatenate([TRUTH.sample(jax.random.key(1), 500), jnp.full((3, 2), 9.0)])
    start = Mixture(
        jnp.log(jnp.array([0.9, 0.1])),
        jnp.array([[0.0, 0.0], [9.0, 9.0]]),
        jnp.tile(jnp.eye(2), (2, 1, 1)),
        10.0,
    )
    fit = fit_mixture(points, start, 5)
    # 3 points without any scatter against 2 (1 - 3 / 16) pseudo-points of the pooled shape, which
    # is what 500 of 503 points say; the other component borrows nothing.
    covariances = np.asarray(fit.factors @ fit.factors.swapaxes(1, 2))
    ratio = np.linalg.det(covariances[1]) / np.linalg.det(covariances[0])
    np.testing.assert_allclose(ratio, (1.625 / 4.625 * 500 / 503) ** 2, rtol=1e-3)
    np.testing.assert_allclose(fit.means[1], [9.0, 9.0], atol=0.01)
    np.testing.assert_allclose(np.exp(fit.log_weights[1]), 4 / 505, rtol=1e-3)


@pytest.mark.parametrize(("number", "borrows"), [(15, True), (16, False), (40, False)])
def test_a_component_of_enough_points_keeps_its_own_shape(number, borrows):
    # A thin arm far from a wide component: whatever is pooled is far too wide for it.
    thin = 0.01 * jax.random.normal(jax.random.key(2), (number, 2)) * jnp.array([10.0, 1.0])
    wide = TRUTH.sample(jax.random.key(3), 500)
    start = Mixture(
        jnp.log(jnp.array([0.9, 0.1])),
        jnp.array([[0.0, 0.0], [50.0, 50.0]]),
        jnp.tile(jnp.eye(2), (2, 1, 1)),
        10.0,
    )
    both = fit_mixture(jnp.concatenate([wide, 50 + thin]), start, 30)
    alone = fit_mixture(
        thin, Mixture(jnp.zeros(1), jnp.zeros((1, 2)), 0.05 * jnp.eye(2)[None], 10.0), 30
    )
    ratio = np.linalg.slogdet(both.factors[1])[1] - np.linalg.slogdet(alone.factors[0])[1]
    if borrows:
        # An eighth of a pseudo-point of a shape ten times wider.
        assert ratio > 1
    else:
        # What keeps Cholesky from failing is a millionth of the pooled variance, 1 % of 0.01^2.
        assert abs(ratio) < 0.05


def test_far_from_the_origin_nothing_cancels():
    points = 0.02 * jax.random.normal(jax.random.key(0), (2000, 3)) * jnp.array([1.0, 1.0, 0.01])
    start = Mixture(jnp.zeros(1), jnp.zeros((1, 3)), jnp.eye(3)[None], 10.0)
    near = fit_mixture(points, start, 5)
    moved = fit_mixture(
        points + 50, Mixture(start.log_weights, start.means + 50, start.factors, 10.0), 5
    )
    np.testing.assert_allclose(moved.means[0] - 50, near.means[0], atol=1e-4)
    np.testing.assert_allclose(moved.factors[0], near.factors[0], rtol=0.05, atol=2e-5)
