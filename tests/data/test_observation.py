import warnings

import numpy as np
import pytest
from PIL import Image

from latentuq.core.errors import UserError
from latentuq.data.observation import Observation, Units, read_observation
from latentuq.data.scaling import BYTES, Scaling

RNG = np.random.default_rng(2)
COLOUR = RNG.integers(0, 256, (5, 7, 3), np.uint8)


def read(path, *rest):
    """What an observation is on the scale of the prior, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = read_observation(path, *rest)
    return found.scaling.to_unit(found.raw), [str(each.message) for each in caught]


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
        np.testing.assert_allclose(found, expected, atol=1.01 / 255)
        assert notes == [f"{path} has colour or transparency: reduced to grey."]


def test_grey_in_three_channels_is_not_worth_a_word(tmp_path):
    np.save(tmp_path / "a.npy", np.repeat(COLOUR[..., :1], 3, axis=2))
    found, notes = read(tmp_path / "a.npy")
    np.testing.assert_allclose(found, COLOUR[..., 0] / 255, atol=1e-6)
    assert not notes


@pytest.mark.parametrize("shape", [(3, 5, 7), (5, 7, 2), (1, 5, 7, 3)])
def test_other_cubes_are_refused(tmp_path, shape):
    np.save(tmp_path / "a.npy", np.full(shape, 0.5))
    with pytest.raises(UserError, match=r"a\.npy has shape .* where \(height, width\) is expected"):
        read(tmp_path / "a.npy")


@pytest.mark.parametrize("kind", [np.int16, np.int64, np.uint32])
@pytest.mark.parametrize(
    ("low", "high", "guess"), [(0, 200, 255), (0, 300, 65535), (0, 30000, 65535), (3, 70000, 70000)]
)
def test_whole_numbers_that_do_not_tell_what_white_is_are_asked_about(kind, low, high, guess):
    raw = np.array([[low, high % np.iinfo(kind).max]], kind)
    guess = guess if high <= np.iinfo(kind).max else 65535
    with pytest.raises(
        UserError, match=rf"{kind.__name__} numbers from {low} .* --scale {guess}\."
    ):
        read_observation(raw)
    assert read_observation(raw, units=Units(scale=400.0)).scaling == Scaling(0.0, 400.0)
    assert read_observation(raw, Scaling(-10.0, 1e5)).scaling == Scaling(-10.0, 1e5)


def test_whole_numbers_of_black_and_white_need_no_word():
    assert read_observation(np.array([[0, 1]])).scaling == Scaling(0.0, 1.0)


@pytest.mark.parametrize("raw", [np.array([[0.0, 9.0]]), np.array([[0, 9]], np.uint8)])
@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (Units(scale=10.0), Scaling(0.0, 10.0)),
        (Units(scale=10.0, offset=-1.0), Scaling(-1.0, 10.0)),
        (Units(scale=10.0, offset=-1.0, invert=True), Scaling(9.0, -10.0)),
    ],
)
def test_what_the_user_says_goes_first(raw, units, expected):
    for trained in (Scaling(0.0, 1.0), Scaling(100.0, 3000.0)):
        found = read_observation(raw, trained, units=units)
        assert found.scaling == expected
        assert found.scale_is_given
        assert "as you said" in found.assumed


def test_an_offset_alone_keeps_the_scale_and_a_negative_turns_round():
    bytes_ = np.array([[0, 255]], np.uint8)
    assert read_observation(bytes_, units=Units(offset=5.0)).scaling == Scaling(5.0, 255.0)
    negative = read_observation(bytes_, units=Units(invert=True))
    assert negative.scaling.to_unit(negative.raw).tolist() == [[1.0, 0.0]]
    assert "and inverted: black is 255 and white is 0." in negative.assumed


def test_numbers_of_any_kind_are_in_the_units_of_unusual_training_files():
    trained = Scaling(100.0, 400.0)
    for kind in (np.uint16, np.int32, np.float32):
        found = read_observation(np.array([[100, 200]], kind), trained)
        assert found.scaling.to_unit(found.raw).tolist() == [[0.0, 0.25]]
        assert "units of the images that the prior was trained on" in found.assumed
    assert read_observation(np.array([[True, False]]), trained).scaling == Scaling(0.0, 1.0)


def test_bytes_that_cannot_reach_the_white_of_the_prior_are_asked_about():
    raw, trained = np.array([[0, 255]], np.uint8), Scaling(100.0, 3000.0)
    with pytest.raises(UserError, match=r"end at 255, but .* white at 3100: .* --scale 255"):
        read_observation(raw, trained)
    assert read_observation(raw, trained, units=Units(scale=255.0)).scaling == BYTES
    assert read_observation(raw, Scaling(10.0, 200.0)).scaling == Scaling(10.0, 200.0)


def test_what_is_assumed_names_range_and_unit(tmp_path):
    from astropy.io import fits

    header = fits.Header({"BUNIT": "adu"})
    fits.PrimaryHDU(np.array([[98, 3010]], np.float32), header).writeto(tmp_path / "a.fits")
    found = read_observation(tmp_path / "a.fits", Scaling(100.0, 3000.0))
    assert found.assumed == (
        "a.fits holds float32 numbers from 98 to 3010 adu, in the units of the images that the"
        " prior was trained on: black is 100 and white is 3100."
    )


@pytest.mark.parametrize("shape", [(12, 20), (20, 12), (3, 5), (12, 12)])
@pytest.mark.parametrize("how", ["crop", "pad"])
def test_resizing_keeps_proportions(shape, how):
    rows, columns = np.indices(shape)
    # Linear in both directions: averages and interpolation keep the slopes.
    slope = 1.0 / min(shape) if how == "crop" else 1.0 / max(shape)
    found = Observation("a", 0.1 * columns * slope + 0.3 * rows * slope)
    with pytest.warns(
        UserWarning, match=f"a was resized from {shape[0]}x{shape[1]} to 6x6"
    ) as note:
        resized = found.resized((6, 6), how).raw
    squares = shape[0] == shape[1]
    assert ("cut off" in str(note[0].message)) == (how == "crop" and not squares)
    assert ("were added" in str(note[0].message)) == (how == "pad" and not squares)
    assert np.isnan(resized).any() == (how == "pad" and not squares)
    inner = resized[2:4, 2:4]  # Away from the border, where interpolation is constant.
    if min(shape) > 6:
        np.testing.assert_allclose(inner[:, 1] - inner[:, 0], 0.1 / 6, atol=0.003)
        np.testing.assert_allclose(inner[1] - inner[0], 0.3 / 6, atol=0.006)


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
        np.testing.assert_allclose(read(source)[0], raw / white, rtol=1e-6)


def test_data_without_any_value_are_refused():
    with pytest.raises(UserError, match="nothing but missing pixels"):
        read_observation(np.full((2, 2), np.nan))


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_numpy_files_may_hold_a_vector(tmp_path, suffix):
    path, vector = tmp_path / f"y{suffix}", np.linspace(0, 1, 5)
    (np.save if suffix == ".npy" else np.savez)(path, vector)
    np.testing.assert_allclose(read_observation(path).raw, vector, rtol=1e-6)
