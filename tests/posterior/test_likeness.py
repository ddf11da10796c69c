import numpy as np
import pytest

from latentuq.posterior.likeness import Bank

DATA = 60
ROOTS = np.full(DATA, 2.0)


def make_images(n, seed=0):
    """Bumps of random place and width: images that differ, but not in brightness."""
    generator = np.random.default_rng(seed)
    centres, widths = generator.uniform(15, 45, (2, n, 1)) * [[[1.0]], [[0.2]]]
    return np.exp(-(((np.arange(DATA) - centres) / widths) ** 2))


@pytest.fixture(scope="module")
def bank():
    return Bank(make_images(512), np.ones(DATA), ROOTS)


def compare(bank, y, noise=0.0):
    return bank.compare(y, float(np.sum(bank.centre(y) ** 2)) - noise)


@pytest.mark.parametrize(("factor", "offset"), [(1.0, 0.0), (0.1, 0.0), (3.0, 0.5), (255.0, -7.0)])
def test_factor_and_offset_of_a_picture_are_found(bank, factor, offset):
    for picture in make_images(4, seed=1):
        found = compare(bank, factor * picture + offset)
        assert found.factor == pytest.approx(factor, rel=0.05)
        assert found.offset == pytest.approx(offset, abs=0.02 * factor)
        assert found.correlation > 0.99


def test_a_negative_looks_like_the_negative_of_an_image(bank):
    found = compare(bank, 1 - make_images(1, seed=1)[0])
    assert found.negative < -0.95
    assert found.correlation < 0.5


def test_what_is_usual_is_seen_on_images_of_the_bank(bank):
    errors = np.zeros((64, DATA))
    clear, noisy = (bank.usual(np.full(DATA, variance), errors) for variance in (0.0, 0.25))
    assert 0 < clear.factor_spread < 0.05
    assert clear.correlation > 0.95 > noisy.correlation > 0.2
    assert noisy.factor_spread > clear.factor_spread


def test_brightness_that_only_the_generators_error_has_is_usual(bank):
    logs = np.random.default_rng(2).normal(0, 0.3, (64, 1))
    usual = bank.usual(np.zeros(DATA), (np.exp(logs) - 1) * make_images(512)[:64])
    assert usual.factor_spread == pytest.approx(np.std(logs), rel=0.05)


def test_one_datum_has_no_picture():
    usual = Bank(np.random.default_rng(0).normal(size=(16, 1)), np.ones(1), np.ones(1)).usual(
        np.ones(1), np.zeros((16, 1))
    )
    assert np.isinf(usual.factor_spread)
