"""What chains may jump to, and what they are weighed against."""

import jax
import numpy as np
import pytest

from latentuq.inference.proposals import fit_halves
from latentuq.inference.regions import Regions
from latentuq.inference.settings import Settings
from latentuq.inference.target import Target

SETTINGS = Settings()
ISLANDS, SIZE, STOPS = SETTINGS.islands, SETTINGS.chains, 8


def whole(dim):
    return Regions(np.zeros(1), np.zeros((1, dim)), np.eye(dim)[None])


def fitted(points, regions=None):
    dim = points.shape[-1]
    target = Target(lambda u: -0.5 * u @ u, dim, scale=3.0)
    rng = np.random.default_rng(0)
    regions = whole(dim) if regions is None else regions
    return fit_halves(rng, target, points, regions, SETTINGS)


def normal(dim, seed=0, stops=STOPS):
    return np.random.default_rng(seed).standard_normal((ISLANDS, SIZE, stops, dim))


def weights_of(proposal):
    return np.exp(proposal.mixture.log_weights)


def test_each_half_gets_what_the_other_has_seen():
    points = normal(2)
    points[1::2] += 20
    first, second = fitted(points)
    for proposal, centre in ((first, 20), (second, 0)):
        used = weights_of(proposal) > 0
        assert np.all(np.abs(proposal.mixture.means[used] - centre) < 6)
        # The mean of the mixture is that of 1024 points, whose own error is 1 / 32.
        mean = weights_of(proposal) @ np.asarray(proposal.mixture.means)
        np.testing.assert_allclose(mean, centre, atol=4 / 32)
        assert proposal.scale == 3.0


@pytest.mark.parametrize(("dim", "number"), [(1, 64), (2, 64), (8, 21), (32, 5), (200, 1)])
def test_components_are_as_many_as_points_are_enough_for(dim, number):
    for proposal in fitted(normal(dim)):
        assert proposal.mixture.components == number
        assert np.all(np.isfinite(proposal.mixture.factors))


def test_every_region_has_a_component_and_sizes_are_few():
    # More regions than a mixture of 8 dimensions has components, which it is padded to.
    rng, number = np.random.default_rng(1), 25
    means = 30 * rng.standard_normal((number, 8))
    regions = Regions(np.zeros(number), means, np.tile(np.eye(8), (number, 1, 1)))
    points = normal(8) + means[np.arange(SIZE) % number][:, None]
    for proposal in fitted(points, regions):
        assert proposal.mixture.components == 32
        assert np.count_nonzero(weights_of(proposal)) == number
        gaps = np.asarray(proposal.mixture.means)[:number] - means
        # At least 32 points in each: five errors of a mean.
        np.testing.assert_allclose(gaps, 0, atol=5 / np.sqrt(32))


@pytest.mark.parametrize("stops", [1, 8])
def test_a_mixture_knows_the_thickness_of_an_arm(stops):
    # A banana whose arms a single component would be far too wide for.
    points = normal(2, stops=stops)
    points[..., 1] = 2 * points[..., 0] ** 2 + 0.1 * points[..., 1]
    draws = np.asarray(fitted(points)[0].mixture.sample(jax.random.key(0), 4096))
    gaps = draws[:, 1] - 2 * draws[:, 0] ** 2
    # Draws of a single component miss the arm by as much as the banana is high.
    assert np.median(np.abs(gaps)) < np.std(points[..., 1]) / 4
    # Four errors of the points, and of the draws.
    errors = np.sqrt(0.0455 * 0.9545 * (2 / points[..., 0].size + 1 / 4096))
    assert abs(np.mean(np.abs(draws[:, 0]) > 2) - 0.0455) < 4 * errors


def test_points_that_are_few_are_all_that_counts():
    # 128 chains of one place each are padded to 4096; were copies points, two different ones would
    # be enough for a component that is as narrow as nothing.
    proposal = fitted(normal(2, stops=1))[0]
    sizes = np.sqrt(np.abs(np.linalg.det(proposal.mixture.factors)))
    assert proposal.mixture.components == 64
    # They begin as narrow as a 64th of the whole, which is 1 / 8 wide, and borrow that shape.
    assert np.all(sizes > 1 / 16)
