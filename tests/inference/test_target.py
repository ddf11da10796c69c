import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from latentuq.core.errors import UserError
from latentuq.inference.target import BATCH, Target, log_densities


def half(u):
    return jnp.where(u[0] > 0, -jnp.sum(u**2), jnp.nan)


def test_what_is_not_finite_has_no_density():
    target = Target(half, 2)
    assert target.log_density(jnp.array([1.0, 2.0])) == -5
    assert target.log_density(jnp.array([-1.0, 2.0])) == -jnp.inf
    assert Target(lambda u: jnp.inf + u[0], 2).log_density(jnp.ones(2)) == -jnp.inf


def test_the_reference_is_a_normal_of_the_given_scale():
    target = Target(half, 3, scale=2.5)
    u = np.array([0.3, -1.0, 4.0])
    expected = scipy.stats.norm.logpdf(u, scale=2.5).sum()
    np.testing.assert_allclose(target.log_reference(jnp.asarray(u)), expected, rtol=1e-5)
    draws = np.asarray(target.sample_reference(jax.random.key(0), 4000))
    # Five standard errors of a standard deviation from 12000 normal numbers.
    assert abs(draws.std() / 2.5 - 1) < 5 / np.sqrt(2 * draws.size)


def test_many_points_in_batches_equal_one_by_one():
    target = Target(half, 2)
    points = jax.random.normal(jax.random.key(0), (BATCH + 3, 2))
    values = log_densities(target.log_density, points)
    np.testing.assert_allclose(values, jax.vmap(target.log_density)(points), rtol=1e-6)
    assert np.isneginf(values).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3.0, 2), "function of u, not 3.0"),
        ((half, 0), "positive whole number, not 0"),
        ((half, 2.5), "positive whole number, not 2.5"),
        ((half, True), "positive whole number, not True"),
        ((half, 2, 1.0), "residual must be a function"),
        ((half, 2, None, 0.0), "scale must be a positive number, not 0.0"),
        ((half, 2, None, np.inf), "scale must be a positive number, not inf"),
        ((lambda u: u, 2), r"number, not of shape \(2,\)"),
        ((lambda u: u @ jnp.ones(3), 2), r"one point of shape \(2,\)"),
        ((lambda u: u[0] if u[1] > 0 else u[1], 2), r"fails on one point [^\n]*$"),
        ((half, 2, lambda u: u[0]), r"vector, not of shape \(\)"),
        ((half, "a"), "positive whole number, not 'a'"),
        ((half, np.nan), "positive whole number, not nan"),
        ((half, 2, None, "wide"), "scale must be a positive number, not 'wide'"),
        ((lambda u: u[0] + 1j, 2), "log density must be made of real numbers, not of complex"),
        ((lambda u: u[0] > 0, 2), "log density must be made of real numbers, not of bool"),
        ((half, 2, lambda u: None), "residual fails on one point"),
        ((lambda u: jax.lax.while_loop(lambda v: v < 1, lambda v: v + 1, u[0]), 2), "fails on"),
    ],
)
def test_what_does_not_fit_is_said_at_once(arguments, message):
    with pytest.raises(UserError, match=message):
        Target(*arguments)
