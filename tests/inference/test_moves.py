import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq.inference.moves import Kernel, Pace, move
from latentuq.inference.target import Target

N = 4096
MEAN = np.array([1.0, -0.5])
PRECISION = np.array([[4.0, 1.0], [1.0, 1.0]])
COVARIANCE = np.linalg.inv(PRECISION)
SCALE = 1.5
# Not the best preconditioner, so that trajectories are inexact and rejections matter.
EYE = np.eye(2)


class Gaussian(eqx.Module):
    """A Gaussian that is NaN right of a wall."""

    wall: jax.Array

    def log_density(self, u):
        gap = u - MEAN
        return jnp.where(u[0] < self.wall, -0.5 * gap @ PRECISION @ gap, jnp.nan)


class Round(eqx.Module):
    """A standard normal."""

    def log_density(self, u):
        return -0.5 * u @ u


def tempered(beta):
    """Mean and covariance of the Gaussian^beta reference^(1 - beta), in closed form."""
    covariance = np.linalg.inv(beta * PRECISION + (1 - beta) * np.eye(2) / SCALE**2)
    return covariance @ (beta * PRECISION @ MEAN), covariance


def draws_of(mean, covariance, seed=0):
    return np.random.RandomState(seed).multivariate_normal(mean, covariance, N)


def assert_gaussian(points, mean, covariance):
    """Particles are independent: four standard errors of their number.

    In the density's own coordinates these are 1 / sqrt(n) for the mean and sqrt(2 / n) for the
    covariance.
    """
    n = len(points)
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (np.asarray(points) - mean).T)
    np.testing.assert_allclose(whitened.mean(axis=1), 0, atol=4 / np.sqrt(n))
    np.testing.assert_allclose(np.cov(whitened), np.eye(2), atol=4 * np.sqrt(2 / n))


def pace(moves=6, stops=1, length=3.2, most_leaps=20.0, octaves=2.0):
    return Pace(moves, stops, *map(jnp.asarray, (length, most_leaps, 0.75, octaves)))


def moved(
    points,
    wall=np.inf,
    key=0,
    powers=(1.0, 0.0),
    regions=None,
    factors=(EYE,),
    steps=(0.8,),
    density=None,
    **changes,
):
    density = Gaussian(jnp.asarray(wall)) if density is None else density
    return move(
        jax.random.key(key),
        Target(density.log_density, 2, scale=SCALE),
        jnp.asarray(powers),
        jnp.asarray(points, jnp.float32),
        jnp.zeros(len(points), int) if regions is None else jnp.asarray(regions),
        Kernel(jnp.asarray(np.array(factors), jnp.float32), jnp.log(jnp.asarray(steps))),
        pace(**changes),
    )


@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_the_density_is_left_as_it_is(beta):
    mean, covariance = tempered(beta)
    draws = draws_of(mean, covariance)
    result = moved(draws, powers=(beta, 1 - beta))
    assert_gaussian(result.points[-1], mean, covariance)
    # They moved, and some of the moves were rejected: the test is not empty.
    assert 0.3 < result.acceptance < 0.95
    root = np.linalg.cholesky(covariance)
    before, after = (
        np.linalg.solve(root, (np.asarray(each) - mean).T) for each in (draws, result.points[-1])
    )
    assert np.all(np.abs(np.mean(before * after, axis=1)) < 0.3)


@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_particles_forget_a_wrong_start(beta):
    points = draws_of(MEAN + 0.5, 2 * COVARIANCE, 1)
    for bout in range(6):
        points = moved(points, key=bout, powers=(beta, 1 - beta)).points[-1]
    assert_gaussian(points, *tempered(beta))


def test_a_power_of_the_density_alone_knows_no_reference():
    # p^(1/4) of a Gaussian has four times its covariance.
    points = draws_of(MEAN, COVARIANCE, 5)
    for bout in range(6):
        points = moved(points, key=bout, powers=(0.25, 0.0), steps=(1.6,)).points[-1]
    assert_gaussian(points, MEAN, 4 * COVARIANCE)


def test_every_stop_is_a_place_of_the_density():
    draws = draws_of(MEAN, COVARIANCE, 2).astype(np.float32)
    result = moved(draws, stops=2)
    assert result.points.shape == (12, N, 2)
    for places, densities in zip(result.points, result.log_densities, strict=True):
        assert_gaussian(places, MEAN, COVARIANCE)
        gaps = np.asarray(places, np.float64) - MEAN
        expected = -0.5 * np.einsum("ni,ij,nj->n", gaps, PRECISION, gaps)
        np.testing.assert_allclose(densities, expected, atol=1e-3)
    # A stop half-way is refused or accepted on its own: particles are at one of the two, or both.
    before, half, end = draws, *np.asarray(result.points)[:2]
    stayed = np.all(half == before, axis=1)
    left = np.any(end != before, axis=1)
    assert np.any(stayed & left)
    assert np.any(~stayed & ~left)
    # The next move begins at the end: who refuses it stays there, not half-way.
    third, fourth = np.asarray(result.points)[2:4]
    refused = np.all(third == fourth, axis=1)
    assert np.any(refused & np.any(half != end, axis=1))
    np.testing.assert_array_equal(third[refused], end[refused])


def test_values_of_a_tempered_density_are_those_of_the_density():
    result = moved(draws_of(*tempered(0.5)), powers=(0.5, 0.5), stops=2)
    gaps = np.asarray(result.points, np.float64) - MEAN
    expected = -0.5 * np.einsum("sni,ij,snj->sn", gaps, PRECISION, gaps)
    np.testing.assert_allclose(result.log_densities, expected, atol=1e-3)


def test_regions_move_by_shapes_and_steps_of_their_own():
    # Who belongs where has nothing to do with the place: each keeps its kernel wherever it goes.
    regions = np.random.RandomState(3).randint(2, size=N)
    factors = (2 * EYE, np.linalg.cholesky(COVARIANCE))
    result = moved(
        draws_of(MEAN, COVARIANCE), regions=regions, factors=factors, steps=(0.2, 0.9), stops=2
    )
    for region in (0, 1):
        assert_gaussian(result.points[-1][regions == region], MEAN, COVARIANCE)
    # The mean over 12 stops of independent particles: the wrong factor would show.
    assert_gaussian(np.asarray(result.points[-1]), MEAN, COVARIANCE)


def test_the_factor_makes_a_gaussian_round():
    root = np.linalg.cholesky(COVARIANCE)
    starts = np.random.RandomState(4).randn(64, 2)
    here = moved(MEAN + starts @ root.T, factors=(root,), moves=3).points[-1]
    there = moved(starts, density=Round(), moves=3).points[-1]
    np.testing.assert_allclose(here, MEAN + there @ root.T, atol=1e-3)


def test_steps_follow_the_acceptance_of_their_region():
    draws, regions = draws_of(MEAN, COVARIANCE), np.arange(N) % 2
    one = moved(draws, moves=1)
    np.testing.assert_allclose(one.log_steps, np.log(0.8) + one.acceptance - 0.75, rtol=1e-4)
    # Region 0 takes steps that are too large, region 1 such that are too small; 2 is empty.
    steps = np.array([3.0, 0.05, 0.8])
    result = moved(draws, regions=regions, factors=(EYE,) * 3, steps=steps, moves=1)
    change = np.asarray(result.log_steps) - np.log(steps)
    assert -0.75 <= change[0] < -0.3
    np.testing.assert_allclose(change[1], 0.25, atol=0.02)
    assert change[2] == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(change[:2].mean() + 0.75, result.acceptance, rtol=1e-4)


@pytest.mark.parametrize(
    ("length", "stops", "step", "leaps"),
    [(1.6, 1, 0.4, 4), (1.6, 2, 0.4, 2), (1.6, 2, 0.1, 8), (1.6, 2, 3.0, 2), (1.6, 2, 1e-3, 20)],
)
def test_the_number_of_leaps_follows_the_length(length, stops, step, leaps):
    result = moved(
        draws_of(MEAN, COVARIANCE)[:64], steps=(step,), moves=1, stops=stops, length=length
    )
    # One more gradient where particles begin.
    assert result.gradients == stops * leaps + 1


def test_the_smallest_step_of_those_who_are_there_counts():
    points, regions = draws_of(MEAN, COVARIANCE)[:64], np.arange(64) % 2
    kernel = {"factors": (EYE,) * 3, "steps": (0.8, 0.2, 1e-3), "moves": 1, "length": 1.6}
    assert moved(points, regions=regions, **kernel).gradients == 8 + 1


def test_nobody_enters_where_the_density_is_not_a_number():
    draws = draws_of(MEAN - [2.0, 0.0], np.eye(2) / 4)
    draws[:, 0] = np.minimum(draws[:, 0], 0.9)
    result = moved(draws, wall=1.0, stops=2)
    assert np.all(np.isfinite(result.points))
    assert np.all(np.isfinite(result.log_densities))
    assert np.all(result.points[..., 0] < 1.0)
    assert np.mean(np.any(np.asarray(result.points[-1]) != draws, axis=1)) > 0.5


def test_who_is_where_the_density_is_not_a_number_stays():
    result = moved(np.full((64, 2), 2.0), wall=1.0)
    np.testing.assert_array_equal(result.points, 2.0)
    assert np.all(np.asarray(result.log_densities) == -np.inf)
