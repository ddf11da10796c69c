import hashlib

import numpy as np
import pytest

from latentuq.data import galaxies
from latentuq.data.galaxies import KINDS, SIDE, WHITE, simulate


@pytest.fixture(scope="module")
def sample():
    return simulate(60)


def test_they_are_the_same_on_every_machine(sample):
    images, kinds = sample
    content = images.astype("<i2").tobytes() + kinds.tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == "4cb8a97053364238"


def test_fewer_are_the_first_of_more_and_seeds_differ(sample):
    images, kinds = simulate(31)
    assert np.array_equal(images, sample[0][:31])
    assert np.array_equal(kinds, sample[1][:31])
    assert not np.array_equal(simulate(1, seed=1)[0][0], images[0])


def test_each_is_bright_in_the_middle_of_a_dark_sky(sample):
    images, kinds = sample
    assert images.shape == (60, SIDE, SIDE)
    assert set(kinds) == set(range(len(KINDS)))
    assert images.min() >= 0
    brightest = images.max((1, 2)) / WHITE
    assert np.all((brightest > 0.3999) & (brightest <= 1))
    light = images.sum((1, 2))
    middle = images[:, SIDE // 4 : -SIDE // 4, SIDE // 4 : -SIDE // 4].sum((1, 2))
    assert np.all(middle > 0.4 * light)
    assert np.median(images[:, 0]) < 0.01 * WHITE


def test_progress_ends_at_the_number_of_galaxies():
    seen = []
    simulate(30, progress=lambda *report: seen.append(report))
    assert [report[1:] for report in seen] == [(25, 30), (30, 30)]


def one(value):
    return np.array([value])


@pytest.mark.parametrize(("steep", "flat"), [(0.7, 1.0), (1.0, 0.5), (2.5, 0.7)])
def test_half_of_a_sersic_profile_lies_within_its_radius(steep, flat):
    place = galaxies._coordinates(one(0.3), one(-0.4), one(0.5), one(flat))
    light = galaxies._sersic(*place, one(flat), one(2.0), one(6.0), one(steep))[0]
    within = np.hypot(*place)[0] < 6
    # The sum over quarters of pixels. Softening the cusp takes most at n = 2.5: 3.4 % of the light.
    assert light[within].sum() / 4 == pytest.approx(1, rel=0.04)


def test_the_blur_keeps_light_and_has_its_width():
    profile = galaxies._moffat(3.0, 0.0, 0.0)
    assert profile.sum() == pytest.approx(1)
    # Half of the maximum at 1.5 pixels, which are three points of the grid.
    assert profile[0, 3] == pytest.approx(profile[0, 0] / 2)
    assert profile[3, 0] == pytest.approx(profile[0, 0] / 2)


def test_points_keep_their_light_and_place():
    light = np.zeros((1, galaxies._GRID, galaxies._GRID))
    galaxies._add_points(light, np.array([[3.3]]), np.array([[-7.8]]), np.array([[2.0]]))
    assert light.sum() / 4 == pytest.approx(2)
    rows, columns = (light[0].sum(axis) @ galaxies._CENTRES / light.sum() for axis in (1, 0))
    assert (columns, rows) == (pytest.approx(3.3), pytest.approx(-7.8))
    galaxies._add_points(light, np.array([[1e3, -35.9]]), np.array([[0.0, 0.0]]), np.ones((1, 2)))
    assert light.sum() / 4 == pytest.approx(2.5, rel=0.3)


def test_arms_wind_by_their_slope_and_neither_add_nor_take_light():
    drawn = galaxies._draw_galaxies(draws := galaxies._Draws(0, 0))
    directions = 2 * np.pi * np.arange(720) / 720
    turns = np.array([1.0, 1.2])
    square = (np.exp(turns) * drawn.inner[:, None])[:, :, None] ** 2 + 0 * directions
    # Draws of the same kind give the same wavering at both radii.
    factor = galaxies._arms(drawn, draws, square, np.broadcast_to(directions, square.shape))
    spiral = drawn.kind >= 2
    assert factor[~spiral] == pytest.approx(1)
    assert factor.mean(2) == pytest.approx(1, abs=0.15)
    # The harmonic of the arms turns with the slope, by radian of phase and arm.
    arms, slope = drawn.arms[spiral], drawn.slope[spiral]
    harmonics = np.take_along_axis(np.fft.rfft(factor[spiral]), arms[:, None, None], 2)[..., 0]
    turned = np.angle(harmonics[:, 0] / harmonics[:, 1])
    stated = arms * slope * (turns[1] - turns[0])
    away = np.angle(np.exp(1j * (turned - stated)))
    # Arms open or close by up to 15 % per turn, and waver by half a radian.
    assert np.all(abs(away) < 0.15 * abs(stated) * turns.sum() + 0.5)
