import numpy as np
import pytest

from latentuq.calibration.measure import BINS
from latentuq.calibration.statistics import uniformity
from studies.calibration_summary import (
    check_weights,
    class_noise,
    corrected,
    mode_reliability,
    rank_distance,
    reliability,
    top_class_reliability,
)


@pytest.fixture
def generator():
    return np.random.default_rng(0)


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


def test_holm_correction():
    np.testing.assert_allclose(corrected(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(corrected(np.array([0.5, 0.9])), [1, 1])


def test_reliability(generator):
    stated = generator.uniform(size=20000)
    happened = generator.uniform(size=20000) < stated
    assert reliability(stated, happened).error < 0.02
    assert reliability(np.full(100, 0.8), np.arange(100) < 50).error == pytest.approx(0.3)
    assert reliability(stated, happened).counts.sum() == 20000
