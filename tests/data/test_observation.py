import warnings

import numpy as np
import pytest
from PIL import Image

from latentuq.core.errors import UserError
from latentuq.data.observation import read_observation
from latentuq.data.scaling import Scaling

RNG = np.random.default_rng(2)
COLOUR = RNG.integers(0, 256, (5, 7, 3), np.uint8)


def read(path, *rest):
    """The observation and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        observation = read_observation(path, *rest)
        observation.check()
    return observation, [str(each.message) for each in caught]


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_colour_arrays_become_grey_as_colour_images_do(tmp_path, suffix):
    Image.fromarray(COLOUR).save(tmp_path / "a.png")
    expected, _ = read(tmp_path / "a.png")
    opaque = np.concatenate([COLOUR, np.full((5, 7, 1), 255, np.uint8)], axis=2)
    for colour in (COLOUR, opaque, COLOUR / 255):
        path = tmp_path / f"a.{suffix}"
        np.save(path, colour) if suffix == "npy" else np.savez(path, colour)
        found, notes = read(path)
        # Pillow and NumPy may round a half differently, and floats are not rounded.
        np.testing.assert_allclose(found.values, expected.values, atol=1.01 / 255)
        assert notes == [f"{path} has colour or transparency: reduced to grey."]


def test_grey_in_three_channels_is_not_worth_a_word(tmp_path):
    np.save(tmp_path / "a.npy", np.repeat(COLOUR[..., :1], 3, axis=2))
    found, notes = read(tmp_path / "a.npy")
    np.testing.assert_allclose(found.values, COLOUR[..., 0] / 255, atol=1e-6)
    assert not notes


@pytest.mark.parametrize("shape", [(3, 5, 7), (5, 7, 2), (1, 5, 7, 3)])
def test_other_cubes_are_refused(tmp_path, shape):
    np.save(tmp_path / "a.npy", np.full(shape, 0.5))
    with pytest.raises(UserError, match=r"a\.npy has shape .* where \(height, width\) is expected"):
        read(tmp_path / "a.npy")


@pytest.mark.parametrize("kind", [np.int16, np.int64, np.uint32])
@pytest.mark.parametrize(("high", "white"), [(1, 1), (200, 255), (300, 65535)])
def test_whole_numbers_of_other_kinds_are_divided_by_what_they_need(tmp_path, kind, high, white):
    np.save(tmp_path / "a.npy", np.array([[0, high]], kind))
    found, notes = read(tmp_path / "a.npy")
    assert found.scaling == Scaling(0.0, white)
    np.testing.assert_allclose(found.values, [[0, high / white]], rtol=1e-6)
    assert f"divided by {white}: if white is another number" in notes[0]


def test_fits_of_16_signed_bits(tmp_path):
    from astropy.io import fits

    fits.PrimaryHDU(np.array([[0, 30000]], np.int16)).writeto(tmp_path / "a.fits")
    assert read(tmp_path / "a.fits")[0].scaling == Scaling(0.0, 65535.0)


@pytest.mark.parametrize("numbers", [[-3, 200], [0, 70000]])
def test_whole_numbers_that_nothing_fits_are_refused(tmp_path, numbers):
    np.save(tmp_path / "a.npy", np.array([numbers]))
    with pytest.raises(UserError, match=f"from {numbers[0]} to {numbers[1]}, .* save them as flo"):
        read(tmp_path / "a.npy")
    assert read(tmp_path / "a.npy", Scaling(-10.0, 1e5))[0].scaling.scale == 1e5


@pytest.mark.parametrize("values", [[0, 0.003], [-0.2, 0.9], [0, 7.0]])
def test_another_scale_is_noticed(tmp_path, values):
    np.save(tmp_path / "a.npy", np.array([values]))
    (note,) = read(tmp_path / "a.npy")[1]
    assert f"from {values[0]:.3g} to {values[1]:.3g}" in note
    assert "scale it so that black is 0 and white is 1" in note


@pytest.mark.parametrize("values", [[0, 0.3], [0, 1], [0.0, 0.0]])
def test_an_ordinary_scale_is_not(tmp_path, values):
    np.save(tmp_path / "a.npy", np.array([values], float))
    assert not read(tmp_path / "a.npy")[1]


KINDS = {
    "uint8": (np.array([[0, 51], [102, 255]], np.uint8), 255),
    "uint16": (np.array([[0, 51], [102, 60000]], np.uint16), 65535),
    "bool": (np.array([[False, True], [True, False]]), 1),
    "float": (np.array([[0.0, 0.25], [np.nan, 1.0]]), 1),
}


# FITS holds no booleans, and PNG no floats.
FILES = [(kind, suffix) for kind in KINDS for suffix in ("npy", "npz", "png", "tif", "fits")]
FILES = [each for each in FILES if each not in (("bool", "fits"), ("float", "png"))]


def write(path, raw):
    if path.suffix == ".npy":
        np.save(path, raw)
    elif path.suffix == ".npz":
        np.savez(path, image=raw)
    elif path.suffix == ".fits":
        from astropy.io import fits

        fits.PrimaryHDU(raw).writeto(path)
    else:
        Image.fromarray(raw.astype(np.float32) if raw.dtype.kind == "f" else raw).save(path)


@pytest.mark.parametrize(("kind", "suffix"), FILES)
def test_the_same_numbers_from_every_kind_of_file_and_from_arrays(tmp_path, kind, suffix):
    raw, white = KINDS[kind]
    path = tmp_path / f"a.{suffix}"
    write(path, raw)
    for source in (path, str(path), raw):
        np.testing.assert_allclose(read(source)[0].values, raw / white, rtol=1e-6)


def test_whole_numbers_are_in_the_units_of_unusual_training_files():
    trained = Scaling(100.0, 400.0)
    found = read_observation(np.array([[100, 300]], np.uint16), trained)
    assert found.values.tolist() == [[0.0, 0.5]]
    assert read_observation(np.array([[0.0, 0.5]]), trained).values.tolist() == [[0.0, 0.5]]
    assert read_observation(np.array([[True, False]]), trained).values.tolist() == [[1.0, 0.0]]


def test_data_without_any_value_are_refused_when_checked():
    with pytest.raises(UserError, match="nothing but missing pixels"):
        read_observation(np.full((2, 2), np.nan)).check()


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_numpy_files_may_hold_a_vector(tmp_path, suffix):
    path, vector = tmp_path / f"y{suffix}", np.linspace(0, 1, 5)
    (np.save if suffix == ".npy" else np.savez)(path, vector)
    np.testing.assert_allclose(read_observation(path).values, vector, rtol=1e-6)
