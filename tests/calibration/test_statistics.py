import numpy as np
import pytest
from scipy import stats

from latentuq.calibration.statistics import (
    clustered_rate,
    covered,
    crps,
    energy_score,
    ranks,
    tarp_rank,
    uniformity,
)


@pytest.fixture
def generator():
    return np.random.default_rng(0)


def test_ranks_of_exact_draws_are_uniform(generator):
    values = [
        ranks(generator, generator.normal(size=19), generator.normal(size=())) for _ in range(2000)
    ]
    assert uniformity(np.array(values)) > 0.01


def test_ranks_of_discrete_draws_are_uniform_too(generator):
    values = [
        ranks(generator, generator.integers(0, 3, 9), np.asarray(generator.integers(0, 3)))
        for _ in range(2000)
    ]
    assert uniformity(np.array(values)) > 0.01


def test_ranks_of_too_narrow_draws_are_not_uniform(generator):
    values = [
        ranks(generator, 0.7 * generator.normal(size=50), generator.normal(size=()))
        for _ in range(500)
    ]
    assert uniformity(np.array(values)) < 1e-4


def test_tarp_sees_draws_that_are_off_in_one_direction(generator):
    def rank(shift):
        truth, draws = generator.normal(size=3), generator.normal(size=(50, 3)) + shift
        return tarp_rank(generator, draws, truth, generator.normal(size=3, loc=(3, 0, 0)))

    assert uniformity(np.array([rank(0) for _ in range(500)])) > 0.01
    assert uniformity(np.array([rank(np.array([1, 0, 0])) for _ in range(500)])) < 1e-4


def test_coverage_counts_the_central_interval():
    np.testing.assert_array_equal(
        covered(np.array([0.04, 0.06, 0.5, 0.96]), 0.9), [False, True, True, False]
    )


def test_a_clustered_error_is_that_of_images_not_of_pixels(generator):
    n, pixels = 400, 100
    # All pixels of an image are hit together: an image is worth one pixel.
    hits = pixels * (generator.uniform(size=n) < 0.9).astype(int)
    rate = clustered_rate(hits, np.full(n, pixels))
    assert rate.value == pytest.approx(hits.sum() / (n * pixels))
    assert rate.error == pytest.approx(np.sqrt(0.09 / n), rel=0.2)
    assert np.isnan(clustered_rate(np.zeros(3), np.zeros(3)).value)


def test_crps_of_a_normal(generator):
    draws, truth = generator.normal(size=(20000, 2)), np.array([0.0, 1.3])
    exact = truth * (2 * stats.norm.cdf(truth) - 1) + 2 * stats.norm.pdf(truth) - 1 / np.sqrt(np.pi)
    np.testing.assert_allclose(crps(draws, truth), exact, atol=0.02)


def test_the_energy_score_prefers_the_truth_s_own_distribution(generator):
    truths = generator.normal(size=(400, 4))
    scores = {
        scale: np.mean([energy_score(scale * generator.normal(size=(100, 4)), t) for t in truths])
        for scale in (0.5, 1.0, 2.0)
    }
    assert scores[1.0] < scores[0.5]
    assert scores[1.0] < scores[2.0]
