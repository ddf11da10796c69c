import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from densities import quadratic, two_gaussians
from latentuq.inference.moves import Kernel
from latentuq.inference.population import explore, move_all, shrunk_factor
from latentuq.inference.settings import Settings
from latentuq.inference.target import Target

SETTINGS = Settings()
ISLANDS, SIZE = SETTINGS.islands, SETTINGS.chains
LOG_Z = 3.0
MEAN, COVARIANCE = np.array([1.0, -2.0, 0.5]), np.diag([0.04, 0.25, 1.0])
DENSITY = quadratic(MEAN, COVARIANCE, LOG_Z)


@pytest.fixture(scope="module")
def populations():
    target = Target(DENSITY.log_density, 3, scale=2.0)
    return [explore(jax.random.key(seed), target, SETTINGS) for seed in range(5)]


def test_the_evidence_is_that_of_a_gaussian(populations):
    logs = np.array([population.log_evidences for population in populations])
    # Particles are weighted without bias: the mean of masses is the mass, as far as the scatter of
    # 40 islands tells; four errors of that.
    masses = np.exp(logs - LOG_Z).ravel()
    assert abs(masses.mean() - 1) < 4 * masses.std(ddof=1) / np.sqrt(masses.size)
    assert masses.std() < 1


def test_particles_end_on_the_density(populations):
    for population in populations:
        assert population.points.shape == (ISLANDS, SIZE, 3)
        assert population.betas[-1] == 1
        assert np.all(np.diff(population.betas) > 0)
        assert population.counts.forwards == SETTINGS.bank
        assert population.counts.gradients >= len(population.betas) * ISLANDS * SIZE
    points = np.concatenate([population.points.reshape(-1, 3) for population in populations])
    whitened = (points - MEAN) / np.sqrt(np.diagonal(COVARIANCE))
    # 1280 particles are worth at least the 40 islands times two.
    np.testing.assert_allclose(whitened.mean(axis=0), 0, atol=4 / np.sqrt(80))
    np.testing.assert_allclose(np.cov(whitened.T), np.eye(3), atol=4 * np.sqrt(2 / 80))


def test_islands_are_independent_and_keys_matter(populations):
    first, second, *_ = populations
    assert len(np.unique(first.log_evidences)) == ISLANDS
    assert not np.any(np.isin(first.points, second.points))
    again = explore(jax.random.key(0), Target(DENSITY.log_density, 3, scale=2.0), SETTINGS)
    np.testing.assert_array_equal(again.points, first.points)


def test_both_modes_are_populated():
    mixture = two_gaussians(4, 5.0, (0.7, 0.3), (0.5, 0.5))
    population = explore(jax.random.key(0), Target(mixture.log_prob, 4, scale=1.5), SETTINGS)
    right = population.points[..., 0] > 0
    # Each island decides by chance how many of its particles go where: 32 of them in one island
    # would be known to 0.08, but ancestors are fewer.
    assert 0.1 < right.mean() < 0.5
    masses = np.exp(population.log_evidences)
    assert abs(masses.mean() - 1) < 5 * masses.std(ddof=1) / np.sqrt(ISLANDS)


class Walled(eqx.Module):
    """A round Gaussian that is not a number right of a wall."""

    wall: jax.Array

    def log_density(self, u):
        return jnp.where(u[0] < self.wall, -0.5 * u @ u, jnp.nan)


def walled(wall):
    return Target(Walled(jnp.asarray(wall)).log_density, 2)


def test_a_density_that_is_nowhere_ends_without_error():
    population = explore(jax.random.key(0), walled(-np.inf), SETTINGS)
    assert population.betas == ()
    assert np.all(np.isfinite(population.points))
    assert population.points.shape == (ISLANDS, SIZE, 2)
    np.testing.assert_array_equal(population.log_evidences, 0)


@pytest.mark.parametrize("wall", [0.0, -3.0])
def test_particles_are_where_the_density_is(wall):
    population = explore(jax.random.key(0), walled(wall), SETTINGS)
    assert population.betas[-1] == 1
    reached = population.points[np.isfinite(population.log_evidences)]
    assert len(reached) >= ISLANDS // 4
    assert np.all(reached[..., 0] < wall)


def test_a_density_in_a_corner_of_the_reference_ends_without_error():
    # Of 4096 draws some five are left of the wall: most islands have none.
    population = explore(jax.random.key(0), walled(-3.2), SETTINGS)
    assert np.all(np.isfinite(population.points))


def test_few_points_have_a_diagonal_shape():
    covariance = np.array([[4.0, 1.9], [1.9, 1.0]])
    known = shrunk_factor(covariance, 1e9)
    np.testing.assert_allclose(known @ known.T, covariance, rtol=1e-4)
    unknown = shrunk_factor(covariance, 0.0)
    np.testing.assert_allclose(unknown @ unknown.T, np.diag([4.0, 1.0]), rtol=1e-4)
    half = shrunk_factor(covariance, 2.0)
    np.testing.assert_allclose((half @ half.T)[0, 1], 0.95, rtol=1e-4)
    assert np.all(np.isfinite(shrunk_factor(np.zeros((3, 3)), 5.0)))


def test_rows_come_back_in_their_order():
    """Each particle's stops stand side by side, in its own island."""
    target = walled(np.inf)
    points = np.arange(ISLANDS * SIZE)[:, None] * np.ones(2) * 100.0
    points = points.reshape(ISLANDS, SIZE, 2)
    kernel = Kernel(np.eye(2)[None], np.array([-6.0]))
    labels = np.zeros((ISLANDS, SIZE), int)
    visited, after, counts = move_all(
        jax.random.key(0),
        target,
        (1.0, 0.0),
        points,
        labels,
        kernel,
        SETTINGS,
        0.1,
    )
    stops = SETTINGS.moves * SETTINGS.stops
    assert visited.points.shape == (ISLANDS, SIZE, stops, 2)
    # Tiny steps lead nowhere.
    np.testing.assert_allclose(visited.points, points[:, :, None] + np.zeros((stops, 1)), atol=45)
    expected = -0.5 * np.sum(visited.points.astype(float) ** 2, axis=-1)
    np.testing.assert_allclose(visited.log_densities, expected, rtol=1e-5)
    assert after.factors.shape == (1, 2, 2)
    assert after.log_steps.shape == (1,)
    assert counts.gradients % (ISLANDS * SIZE) == 0
