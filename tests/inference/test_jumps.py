"""Chains that are exact draws stay exact draws, whatever they are offered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from densities import quadratic, two_gaussians
from latentuq.inference.jumps import jump
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.regions import Regions
from latentuq.inference.target import Target, log_densities_at

ISLANDS, SIZE = 8, 512
N = ISLANDS * SIZE
MEAN, COVARIANCE = np.array([0.7, -0.4]), np.array([[1.0, 0.6], [0.6, 0.5]])
TARGET = Target(quadratic(MEAN, COVARIANCE, 2.0).log_density, 2)
WHOLE = Regions(np.zeros(1), np.zeros((1, 2)), np.eye(2)[None])
BEGUN = np.zeros((ISLANDS, SIZE), int)


def proposal_at(*means, width=1.0):
    """A Student-t mixture of equal weights, with 5 % of the reference."""
    number = len(means)
    factors = jnp.tile(width * jnp.eye(2), (number, 1, 1))
    weights = jnp.full(number, -np.log(number))
    return Defensive(Mixture(weights, jnp.asarray(means, float), factors, 10.0))


# Off, and neither as wide nor as narrow as the density.
WRONG = proposal_at([0.0, 0.0])


def draws_of(seed, covariance=COVARIANCE):
    root = np.linalg.cholesky(covariance)
    noise = np.random.default_rng(seed).standard_normal((ISLANDS, SIZE, 2))
    return (MEAN + noise @ root.T).astype(np.float32)


def jumped(points, target=TARGET, proposals=(WRONG, WRONG), regions=WHOLE, begun=BEGUN, **known):
    values = log_densities_at(target.log_density, points.reshape(-1, 2)).reshape(points.shape[:2])
    settings = {"offers": 4, "power": 1.0} | known
    key = jax.random.key(0)
    return jump(key, target, proposals, regions, begun, points, values, **settings)


def assert_exact(points, covariance=COVARIANCE):
    """Chains do not depend on each other: four errors of the mean and of the covariance."""
    root = np.linalg.cholesky(covariance)
    white = np.linalg.solve(root, (points.reshape(-1, 2).astype(float) - MEAN).T)
    n = white.shape[1]
    np.testing.assert_allclose(white.mean(axis=1), 0, atol=4 / np.sqrt(n))
    np.testing.assert_allclose(np.cov(white), np.eye(2), atol=4 * np.sqrt(2 / n))


@pytest.mark.parametrize("power", [1.0, 0.25])
def test_exact_draws_stay_exact_draws(power):
    # p^power of a Gaussian is one with its covariance divided by the power.
    covariance = COVARIANCE / power
    points = draws_of(1, covariance)
    after, values, counts = jumped(points, power=power)
    assert_exact(after, covariance)
    moved = np.any(after != points, axis=2)
    assert 0.5 < moved.mean() < 0.99
    # The values are those of ln p, whatever the power.
    expected = log_densities_at(TARGET.log_density, after.reshape(-1, 2))
    np.testing.assert_allclose(values.ravel(), expected, atol=1e-5)
    assert counts.forwards == 4 * N
    assert counts.gradients == 0


def test_chains_forget_a_wrong_start():
    # Of 64 offers a chain takes some tens.
    assert_exact(jumped(np.full((ISLANDS, SIZE, 2), 3.0, np.float32), offers=64)[0])


def test_no_two_chains_jump_to_the_same_draw():
    points = draws_of(2)
    after = jumped(points)[0].reshape(-1, 2)
    assert len(np.unique(after, axis=0)) == N
    # What was given is not overwritten.
    np.testing.assert_array_equal(points, draws_of(2))


def test_each_half_of_the_islands_has_a_proposal_of_its_own():
    # Nothing of the density is where the second one is.
    lost = Defensive(proposal_at([500.0, 0.0]).mixture, share=1e-12)
    points = draws_of(3)
    after, _, _ = jumped(points, proposals=(WRONG, lost))
    moved = np.any(after != points, axis=2)
    assert np.all(moved[::2].mean(axis=1) > 0.5)
    assert not np.any(moved[1::2])
    after, _, _ = jumped(points, proposals=(lost, WRONG))
    moved = np.any(after != points, axis=2)
    assert np.all(moved[1::2].mean(axis=1) > 0.5)
    assert not np.any(moved[::2])


MIXTURE = two_gaussians(2, 6.0)
APART = Regions(
    np.log([0.5, 0.5]), np.array([[-3.0, 0.0], [3.0, 0.0]]), np.tile(np.eye(2), (2, 1, 1))
)


def test_chains_never_leave_their_region():
    # A quarter of the chains are where half of the mass is, and stay a quarter.
    begun = np.tile(np.arange(SIZE) % 4 == 0, (ISLANDS, 1)).astype(int)
    points = np.random.default_rng(4).standard_normal((ISLANDS, SIZE, 2)).astype(np.float32)
    points[..., 0] += np.where(begun, 3.0, -3.0)
    target, proposal = Target(MIXTURE.log_prob, 2), proposal_at([-2.0, 0.0], [4.0, 0.0])
    at_home = APART.of(points.reshape(-1, 2)).reshape(begun.shape) == begun
    after, _, _ = jumped(points, target, (proposal, proposal), APART, begun)
    moved = np.any(after != points, axis=2)
    regions = APART.of(after.reshape(-1, 2)).reshape(begun.shape)
    np.testing.assert_array_equal(regions[at_home], begun[at_home])
    assert 0.3 < moved[at_home].mean() < 0.99
    # Those whose moves have led them beyond the border wait for moves to lead them back.
    assert np.any(~at_home)
    assert not np.any(moved[~at_home])
    # In its region each is still an exact draw: the border is three widths away, which cuts off
    # 0.13 % and shifts the mean by 0.004 at most.
    for region, side in enumerate((-3.0, 3.0)):
        mine = after[begun == region]
        error = 1 / np.sqrt(len(mine))
        np.testing.assert_allclose(mine.mean(axis=0), [side, 0], atol=4 * error + 0.004)
        np.testing.assert_allclose(mine.var(axis=0), 1, atol=4 * np.sqrt(2) * error + 0.02)


@pytest.mark.parametrize("beyond", [np.nan, -np.inf, np.inf])
def test_draws_of_zero_density_are_refused(beyond):
    def half(u):
        return jnp.where(u[0] < MEAN[0], TARGET.log_density_fn(u), beyond)

    target, points = Target(half, 2), draws_of(5)
    points[..., 0] = MEAN[0] - np.abs(points[..., 0] - MEAN[0])
    after, values, _ = jumped(points, target)
    assert np.all(after[..., 0] < MEAN[0])
    assert np.all(np.isfinite(values))
    assert np.mean(np.any(after != points, axis=2)) > 0.3


def test_a_chain_where_the_density_is_not_takes_any_place_where_it_is():
    def half(u):
        return jnp.where(u[0] < 0, -0.5 * u @ u, jnp.nan)

    lost = np.full((ISLANDS, SIZE, 2), 2.0, np.float32)
    after, values, _ = jumped(lost, Target(half, 2), offers=1)
    found = np.any(after != lost, axis=2)
    np.testing.assert_array_equal(found, np.isfinite(values))
    # Half of what is offered has any density.
    assert abs(found.mean() - 0.5) < 4 * np.sqrt(0.25 / N)
    # Nowhere is no better than nowhere.
    after, values, _ = jumped(lost, Target(lambda u: jnp.nan * u[0], 2))
    np.testing.assert_array_equal(after, lost)
    assert np.all(values == -np.inf)
