"""Chains spread out beyond the tails, and no farther than a Gaussian's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from densities import quadratic
from latentuq.inference.moves import Kernel
from latentuq.inference.regions import Regions
from latentuq.inference.settings import Settings
from latentuq.inference.spreading import spread
from latentuq.inference.target import Target

SETTINGS = Settings()
# Half of the chains spread.
ISLANDS, SIZE = SETTINGS.islands, SETTINGS.chains // 2


def spread_from(log_density, points, width=1.0):
    """Where chains are afterwards, the proposals, and after how many rounds."""
    dim = points.shape[2]
    factors = width * np.eye(dim)[None]
    regions = Regions(np.zeros(1), np.zeros((1, dim)), factors)
    kernel = Kernel(factors, np.log([0.3]))
    target, given = Target(log_density, dim), points.astype(np.float32)
    after, proposals, counts = spread(jax.random.key(0), target, regions, given, kernel, SETTINGS)
    assert after.shape == points.shape
    np.testing.assert_array_equal(given, points.astype(np.float32))
    # Each round offers so many draws to each chain, and takes at least two gradients to a stop.
    rounds, rest = divmod(counts.forwards, SETTINGS.offers * ISLANDS * SIZE)
    assert rest == 0
    stops = SETTINGS.moves * SETTINGS.stops
    assert counts.gradients >= 2 * stops * rounds * ISLANDS * SIZE
    return after, proposals, rounds


def normal(dim, seed=0):
    return np.random.default_rng(seed).standard_normal((ISLANDS, SIZE, dim))


@pytest.mark.parametrize("dim", [2, 8])
@pytest.mark.slow
def test_a_gaussian_spreads_to_its_power(dim):
    density = quadratic(np.zeros(dim), np.eye(dim), 3.0)
    after, proposals, rounds = spread_from(density.log_density, normal(dim))
    # Chains and coordinates are all independent: four errors of a variance of 1 / hot.
    variance = SETTINGS.hot * np.mean(after**2)
    assert abs(variance - 1) < 4 * np.sqrt(2 / after.size)
    assert rounds <= SETTINGS.hot_rounds
    # What they may jump to is as wide, and each half has its own.
    for proposal in proposals:
        draws = np.asarray(proposal.sample(jax.random.key(1), 4096))
        # Components have Student-t tails, of 5 / 4 of their own variance.
        assert 0.75 < SETTINGS.hot * np.mean(draws**2) < 1.5
    first, second = (proposal.mixture.means for proposal in proposals)
    assert not np.array_equal(first, second)


def banana(u):
    return -0.5 * u[0] ** 2 - 0.5 * ((u[1] - (u[0] ** 2 - 1)) / 0.1) ** 2


@pytest.mark.slow
def test_chains_get_into_the_arms_of_a_banana():
    # Where the population ends there are no arms yet.
    points = normal(2) * [0.3, 0.1]
    points[..., 1] += points[..., 0] ** 2 - 1
    assert np.max(np.abs(points[..., 0])) < 1.5
    after, _, _ = spread_from(banana, points, 0.3)
    # Beyond 2 p has 4.6 % of its mass and p^hot more: chains are there at least as often as draws
    # of p would be.
    assert np.mean(np.abs(after[..., 0]) > 2) > 0.0455
    # In both arms, and along them: p^hot is sqrt(1 / hot) times as thick as p.
    assert after[..., 0].min() < -1.5
    assert after[..., 0].max() > 1.5
    gaps = (after[..., 1] - (after[..., 0] ** 2 - 1)) / 0.1
    assert np.quantile(np.abs(gaps), 0.95) < 2 * 1.96 / np.sqrt(SETTINGS.hot)


@pytest.mark.parametrize(("dim", "degrees"), [(2, 1.0), (8, 3.0)])
@pytest.mark.slow
def test_heavy_tails_do_not_let_chains_run_away(dim, degrees):
    """p^hot has no integral: chains would run away for ever, and stop early instead."""

    def log_density(u):
        return -0.5 * (degrees + dim) * jnp.log1p(u @ u / degrees)

    assert SETTINGS.hot * (degrees + dim) <= dim
    after, _, rounds = spread_from(log_density, normal(dim))
    assert rounds < SETTINGS.hot_rounds
    assert np.all(np.isfinite(after))
    # Beyond the tails: farther out than draws of p mostly are.
    distances = np.linalg.norm(after, axis=2)
    rng = np.random.default_rng(1)
    exact = rng.standard_normal((4096, dim)) / np.sqrt(rng.chisquare(degrees, (4096, 1)) / degrees)
    assert np.median(distances) > np.median(np.linalg.norm(exact, axis=1))
    # They stop in the round in which ln p has fallen as far as that of a Gaussian; no round takes
    # them farther than that at once, nor does the first, from which the fall is measured.
    fall = 0.5 * dim * (1 / SETTINGS.hot - 1)
    before, now = (
        np.median(jax.vmap(log_density)(jnp.asarray(each.reshape(-1, dim))))
        for each in (normal(dim), after)
    )
    assert fall < before - now < 3 * fall
