import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentuq.inference.moves import move
from latentuq.inference.target import Target

N = 4096
MEAN = np.array([1.0, -0.5])
PRECISION = np.array([[4.0, 1.0], [1.0, 1.0]])
COVARIANCE = np.linalg.inv(PRECISION)


class Gaussian(eqx.Module):
    """A Gaussian that is NaN right of a wall."""

    wall: jax.Array

    def log_density(self, u):
        gap = u - MEAN
        return jnp.where(u[0] < self.wall, -0.5 * gap @ PRECISION @ gap, jnp.nan)


def moved(points, wall=np.inf, key=0, stops=1, leaps=4):
    target = Target(Gaussian(jnp.asarray(wall)).log_density, 2)
    points = jnp.asarray(points, jnp.float32)
    return move(
        jax.random.key(key),
        target,
        points,
        # Not the best preconditioner, so that trajectories are inexact and rejections matter.
        jnp.eye(2),
        moves=6,
        stops=stops,
        leaps=leaps,
        step=0.8,
    )


def test_the_density_is_left_as_it_is():
    draws = np.random.RandomState(0).multivariate_normal(MEAN, COVARIANCE, N)
    result = moved(draws)
    # Particles are independent of each other: four standard errors of N draws, in the density's
    # own coordinates, 1 / sqrt(N) for the mean and sqrt(2 / N) for the covariance.
    root = np.linalg.cholesky(COVARIANCE)
    whitened = np.linalg.solve(root, (np.asarray(result.last) - MEAN).T)
    np.testing.assert_allclose(whitened.mean(axis=1), 0, atol=4 / np.sqrt(N))
    np.testing.assert_allclose(np.cov(whitened), np.eye(2), atol=4 * np.sqrt(2 / N))
    # They moved, and some of the moves were rejected: the test is not empty.
    assert np.all((result.acceptance > 0.3) & (result.acceptance < 0.95))
    before = np.linalg.solve(root, (draws - MEAN).T)
    assert np.all(np.abs(np.mean(before * whitened, axis=1)) < 0.2)


def test_every_stop_is_a_place_of_the_density():
    draws = np.random.RandomState(2).multivariate_normal(MEAN, COVARIANCE, N)
    result = moved(draws, stops=2, leaps=2)
    assert result.points.shape == (12, N, 2)
    root = np.linalg.cholesky(COVARIANCE)
    for places in np.asarray(result.points):
        whitened = np.linalg.solve(root, (places - MEAN).T)
        np.testing.assert_allclose(whitened.mean(axis=1), 0, atol=4 / np.sqrt(N))
        np.testing.assert_allclose(np.cov(whitened), np.eye(2), atol=4 * np.sqrt(2 / N))
    # A stop half-way is refused or accepted on its own: particles are at one of the two, or both.
    before, half, end = draws, *np.asarray(result.points)[:2]
    stayed = np.all(np.isclose(half, before, atol=1e-6), axis=1)
    left = np.any(~np.isclose(end, before, atol=1e-6), axis=1)
    assert np.any(stayed & left)
    assert np.any(~stayed & ~left)
    # The next move begins at the end: who refuses it stays there, not half-way.
    third, fourth = np.asarray(result.points)[2:4]
    refused = np.all(third == fourth, axis=1)
    assert np.any(refused & np.any(half != end, axis=1))
    np.testing.assert_array_equal(third[refused], end[refused])


def test_the_factor_makes_a_gaussian_round():
    root = jnp.asarray(np.linalg.cholesky(COVARIANCE), jnp.float32)
    starts = jax.random.normal(jax.random.key(3), (64, 2))
    skewed = Target(Gaussian(jnp.asarray(np.inf)).log_density, 2)
    rounded = Target(lambda u: -0.5 * u @ u, 2)
    settings = {"moves": 3, "stops": 1, "leaps": 4, "step": 0.5}
    here = move(jax.random.key(4), skewed, MEAN + starts @ root.T, root, **settings).last
    there = move(jax.random.key(4), rounded, starts, jnp.eye(2), **settings).last
    np.testing.assert_allclose(here, MEAN + there @ root.T, atol=1e-4)


def test_particles_forget_a_wrong_start():
    points = np.random.RandomState(1).multivariate_normal(MEAN + 0.5, 2 * COVARIANCE, N)
    for bout in range(4):
        points = moved(points, key=bout).last
    whitened = np.linalg.solve(np.linalg.cholesky(COVARIANCE), (np.asarray(points) - MEAN).T)
    np.testing.assert_allclose(whitened.mean(axis=1), 0, atol=4 / np.sqrt(N))
    np.testing.assert_allclose(np.cov(whitened), np.eye(2), atol=4 * np.sqrt(2 / N))


def test_the_step_follows_the_acceptance():
    draws = np.random.RandomState(0).multivariate_normal(MEAN, COVARIANCE, N)
    result = moved(draws)
    expected = 0.8 * np.exp(np.sum(np.asarray(result.acceptance) - 0.75))
    np.testing.assert_allclose(result.step, expected, rtol=1e-4)


def test_nobody_enters_where_the_density_is_not_a_number():
    draws = np.random.RandomState(0).multivariate_normal(MEAN - [2.0, 0.0], np.eye(2) / 4, N)
    draws[:, 0] = np.minimum(draws[:, 0], 0.9)
    result = moved(draws, wall=1.0, stops=2, leaps=2)
    assert np.all(np.isfinite(result.points))
    assert np.all(result.points[..., 0] < 1.0)
    assert np.mean(np.any(np.asarray(result.last) != draws, axis=1)) > 0.5
