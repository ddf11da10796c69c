"""Thousands of descents by gradients meet what a few dozen do not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from densities import quadratic
from latentuq.inference.mixture import gaussian_mixture
from latentuq.inference.modes import empty_search
from latentuq.inference.search import ROUND_STARTS, search
from latentuq.inference.sweep import sweep
from latentuq.inference.target import Target

NUMBER = 4096
NEEDLE, WIDTH = np.array([2.8, 0.0]), 0.1
MIXTURE = gaussian_mixture(
    jnp.array([0.5, 0.5]),
    jnp.array([[0.0, 0.0], NEEDLE]),
    jnp.stack([jnp.eye(2), WIDTH**2 * jnp.eye(2)]),
)
TARGET = Target(MIXTURE.log_prob, 2)
NOWHERE = np.zeros((0, 2))
ONE_PLACE = np.zeros((1, 2))


@pytest.fixture(scope="module")
def swept():
    return sweep(jax.random.key(0), TARGET, empty_search(), NOWHERE, NUMBER)


@pytest.mark.slow
def test_a_mode_that_attracts_one_start_in_500_is_found(swept):
    # A round of 64 descents, half of them from the reference, misses it 15 times in 16.
    plain = search(jax.random.key(0), TARGET, empty_search(), ONE_PLACE)
    assert len(plain.modes) == 1
    assert len(swept.modes) == 2
    order = np.argsort([mode.point[0] for mode in swept.modes])
    points = np.array([swept.modes[index].point for index in order])
    np.testing.assert_allclose(points, [[0, 0], NEEDLE], atol=0.01)
    # Laplace's masses of components that hardly overlap are their weights.
    np.testing.assert_allclose([mode.log_mass for mode in swept.modes], np.log(0.5), atol=0.02)
    # The needle is the denser one within a radius of 0.43, which holds one draw in 550; descents
    # are drawn in from a little farther. The rate of so few hits is known to a factor of two.
    hits = np.count_nonzero(swept.basins == order[1])
    assert NUMBER / 1100 < hits < NUMBER / 225


@pytest.mark.slow
def test_every_start_is_on_record(swept):
    assert len(swept.values) == len(swept.basins) == len(swept.independent) == NUMBER
    assert np.all(swept.independent)
    assert np.mean(swept.basins >= 0) > 0.99
    for index, (mode, first) in enumerate(zip(swept.modes, swept.found_at, strict=True)):
        here = np.flatnonzero(swept.basins == index)
        assert here[0] == first
        # A descent arrives when a thousandth of a nat is left to be had.
        assert np.quantile(swept.values[here] - mode.value, 0.9) < 0.01
    # Each start takes a gradient where it begins and one in each step, of which there are 60 at
    # most; Newton's method polishes the modes alone.
    assert 2 * NUMBER <= swept.counts.gradients <= 61 * NUMBER
    assert swept.counts.hessians < 20 * ROUND_STARTS


@pytest.mark.slow
def test_a_later_sweep_adds_to_what_is_known(swept):
    again = sweep(jax.random.key(1), TARGET, swept, NOWHERE, NUMBER)
    assert again.modes == swept.modes
    assert again.found_at == swept.found_at
    np.testing.assert_array_equal(again.basins[:NUMBER], swept.basins)
    assert len(again.values) == 2 * NUMBER
    assert again.counts.gradients > swept.counts.gradients
    assert again.counts.hessians == swept.counts.hessians
    # The first search finds what the other has: places are counted on from those before.
    plain = search(jax.random.key(0), TARGET, empty_search(), ONE_PLACE)
    after = sweep(jax.random.key(0), TARGET, plain, NOWHERE, NUMBER)
    assert len(after.modes) == 2
    assert after.found_at[1] >= ROUND_STARTS
    assert after.basins[after.found_at[1]] == 1


@pytest.mark.slow
def test_likely_places_are_no_independent_starts():
    # None of the reference comes near.
    far = gaussian_mixture(
        jnp.array([0.5, 0.5]), jnp.array([[0.0, 0.0], [30.0, 0.0]]), jnp.tile(jnp.eye(2), (2, 1, 1))
    )
    likely = np.tile([30.0, 0.5], (100, 1))
    found = sweep(jax.random.key(0), Target(far.log_prob, 2), empty_search(), likely, 412)
    assert len(found.modes) == 2
    assert len(found.values) == 512
    assert np.count_nonzero(found.independent) == 412
    there = next(index for index, mode in enumerate(found.modes) if mode.point[0] > 15)
    np.testing.assert_array_equal(found.basins == there, ~found.independent)
    # Starts are in no order: which came first says nothing of where from.
    assert np.any(np.diff(found.independent.astype(int)) > 0)


@pytest.mark.parametrize("dim", [2, 32])
@pytest.mark.slow
def test_a_narrow_gaussian_is_one_mode(dim):
    # Widths from 0.03 to 1: steepest descent alone would take thousands of steps.
    widths = np.geomspace(0.03, 1, dim)
    density = quadratic(np.full(dim, 0.5), np.diag(widths**2), 3.0)
    found = sweep(
        jax.random.key(0), Target(density.log_density, dim), empty_search(), np.zeros((0, dim)), 512
    )
    (mode,) = found.modes
    np.testing.assert_allclose((mode.point - 0.5) / widths, 0, atol=0.1)
    assert mode.log_mass == pytest.approx(3.0, abs=0.01)
    assert np.mean(found.basins == 0) > 0.5


def test_a_density_that_is_nowhere_has_no_mode():
    target = Target(lambda u: jnp.nan * u[0], 2)
    found = sweep(jax.random.key(0), target, empty_search(), NOWHERE, 512)
    assert not found.modes
    assert np.all(found.basins == -1)
    assert np.all(found.values == np.inf)


@pytest.mark.slow
def test_starts_where_the_density_is_not_a_number_end_there():
    def half(u):
        return jnp.where(u[0] < 1, -0.5 * u @ u, jnp.nan)

    found = sweep(jax.random.key(0), Target(half, 2), empty_search(), NOWHERE, 512)
    (mode,) = found.modes
    np.testing.assert_allclose(mode.point, 0, atol=0.05)
    # The normal distribution beyond 1 holds 0.159: four errors of 512.
    lost = np.mean(found.basins == -1)
    assert abs(lost - 0.1587) < 4 * np.sqrt(0.1587 * 0.8413 / 512)
    assert np.all(np.isinf(found.values[found.basins == -1]))
