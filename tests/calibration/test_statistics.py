import numpy as np
import pytest
from scipy import stats

from latentuq.calibration.measure import BINS
from latentuq.calibration.statistics import (
    clustered_rate,
    corrected,
    covered,
    crps,
    energy_score,
    ranks,
    reliability,
    tarp_rank,
    uniformity,
)
from latentuq.calibration.summary import (
    check_weights,
    class_noise,
    mode_reliability,
    rank_distance,
    top_class_reliability,
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


def test_holm_correction():
    np.testing.assert_allclose(corrected(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(corrected(np.array([0.5, 0.9])), [1, 1])


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


def test_reliability(generator):
    stated = generator.uniform(size=20000)
    happened = generator.uniform(size=20000) < stated
    assert reliability(stated, happened).error < 0.02
    assert reliability(np.full(100, 0.8), np.arange(100) < 50).error == pytest.approx(0.3)
    assert reliability(stated, happened).counts.sum() == 20000


def test_the_error_that_chance_makes_of_few_images():
    rng = np.random.default_rng(0)

    def rows(n):
        stated = rng.dirichlet(np.full(10, 0.3), size=n)
        labels = [int(rng.choice(10, p=row)) for row in stated]
        return [{"classes": row, "label": label} for row, label in zip(stated, labels, strict=True)]

    many = rows(2000)
    assert abs(top_class_reliability(many).error - class_noise(many, 50)[1]) < 0.02
    assert class_noise(rows(20), 50)[1] > 3 * class_noise(many, 50)[1]


def held(generator, stated, true):
    """Rows of problems with two modes, the first with a stated and a true weight."""
    first = (generator.uniform(size=len(stated)) < true).astype(float)
    return [
        {"weights": [weight, 1 - weight], "mode_of_truth": [hit, 1 - hit]}
        for weight, hit in zip(stated, first, strict=True)
    ]


def test_weights_of_modes_are_tested(generator):
    stated = generator.uniform(0.5, 1, 400)
    assert check_weights(held(generator, stated, stated)) > 0.01
    assert check_weights(held(generator, stated, 0.5 + 0.6 * (stated - 0.5))) < 1e-4
    # Nothing can be said of weights that are certain, and right.
    assert check_weights(held(generator, np.ones(9), np.ones(9))) == 1


def test_p_values_of_weights_are_uniform(generator):
    def p_value():
        stated = generator.uniform(0.5, 1, 200)
        return check_weights(held(generator, stated, stated))

    assert uniformity(np.array([p_value() for _ in range(300)])) > 0.01


def test_doubtful_weights_are_looked_at_by_themselves(generator):
    certain = held(generator, np.full(900, 0.99), np.full(900, 0.99))
    doubtful = held(generator, np.full(100, 0.7), np.full(100, 0.4))
    found = mode_reliability(certain + doubtful, 0.1)
    assert found.counts.sum() == 200
    assert found.error == pytest.approx(0.3, abs=0.15)
    assert mode_reliability(certain + doubtful).error < 0.05


def test_distance_of_ranks_from_uniform():
    assert rank_distance([{"pit": [3] * BINS}]) == pytest.approx(0)
    assert rank_distance([{"pit": [6] + [0] * (BINS - 1)}]) == pytest.approx(1 - 1 / BINS)
