"""Images with masks and noise of their own, or for all of them."""

import numpy as np
import pytest
from astropy.io import fits

from latentuq.core.errors import UserError
from latentuq.problem.specification import Specification
from latentuq.survey.images import open_survey

IMAGES = np.random.default_rng(0).uniform(size=(5, 6, 8))
MASKS = np.random.default_rng(1).integers(0, 2, (5, 6, 8)).astype(np.uint8)
FLAGS = MASKS * 4
MAPS = 0.1 + IMAGES


@pytest.fixture
def open_with(tmp_path):
    """Opens the survey with flags; those that are arrays are written to files first."""

    def open_it(images=IMAGES, **flags):
        np.save(tmp_path / "y.npy", images)
        given = {}
        for name, value in flags.items():
            if isinstance(value, np.ndarray):
                np.save(tmp_path / f"{name}.npy", value)
                value = str(tmp_path / f"{name}.npy")
            given[name] = value
        return open_survey(tmp_path / "y.npy", Specification.from_flags(given))

    return open_it


def test_what_all_images_share_stays_in_the_specification(open_with):
    survey = open_with(mask=MASKS[0], noise=MAPS[0])
    assert (len(survey), survey.masks, survey.noises) == (5, {}, {})
    given = survey.given(3)
    np.testing.assert_array_equal(given.image, IMAGES[3])
    assert (given.name, given.missing, given.noise) == ("y.npy[3]", None, None)
    assert [table["kind"] for table in survey.specification.operators] == ["mask"]


def test_each_image_has_its_mask(open_with):
    survey = open_with(mask=MASKS, noise=0.1)
    np.testing.assert_array_equal(survey.given(2).missing, MASKS[2] == 0)
    assert survey.specification.operators == Specification().operators
    assert survey.specification.noise == {"std": 0.1}


def test_masks_are_white_at_255_or_1_and_flags_good_at_0(open_with):
    np.testing.assert_array_equal(open_with(mask=255 * MASKS).given(1).missing, MASKS[1] == 0)
    np.testing.assert_array_equal(open_with(quality=FLAGS).given(1).missing, FLAGS[1] != 0)
    both = open_with(mask=MASKS, quality=np.roll(FLAGS, 1, 2))
    hidden = (MASKS[4] == 0) | (np.roll(FLAGS, 1, 2)[4] != 0)
    np.testing.assert_array_equal(both.given(4).missing, hidden)


def test_a_mask_may_be_shared_while_flags_are_not(open_with):
    survey = open_with(mask="columns:4-5", quality=FLAGS, blur="1.0")
    assert [table["kind"] for table in survey.specification.operators] == ["blur", "mask"]
    np.testing.assert_array_equal(survey.given(0).missing, FLAGS[0] != 0)


@pytest.mark.parametrize(("flag", "name"), [("noise", "std"), ("variance", "variance")])
def test_each_image_has_its_noise(open_with, flag, name):
    survey = open_with(**{flag: MAPS})
    (found,) = survey.given(3).noise.items()
    assert found[0] == name
    np.testing.assert_array_equal(found[1], MAPS[3])
    assert survey.specification.noise == {"std": 0.0}


def test_signals_have_masks_of_their_own_or_one(open_with):
    signals = IMAGES.reshape(5, 48)
    assert open_with(signals, mask=MASKS.reshape(5, 48)[0]).masks == {}
    own = open_with(signals, mask=MASKS.reshape(5, 48))
    np.testing.assert_array_equal(own.given(2).missing, MASKS[2].ravel() == 0)


@pytest.mark.parametrize("flag", ["mask", "quality", "noise", "variance"])
def test_as_many_as_there_are_images_or_one(open_with, flag):
    with pytest.raises(UserError, match="holds 4 arrays, but there are 5 images: give one"):
        open_with(**{flag: MAPS[:4]})


def test_a_mask_that_is_none_concerns_its_image_alone(open_with):
    masks = MASKS.astype(float)
    masks[1, 2, 3] = np.nan
    survey = open_with(mask=masks)
    survey.given(0)
    with pytest.raises(UserError, match=r"mask\.npy\[1\] is not a mask: .*missing values"):
        survey.given(1)


def test_extensions_of_fits_files(tmp_path):
    units = [fits.PrimaryHDU(IMAGES), fits.ImageHDU(FLAGS, name="DQ")]
    units.append(fits.ImageHDU(FLAGS[0], name="ONE"))
    path = tmp_path / "cube.fits"
    fits.HDUList(units).writeto(path)
    own = open_survey(path, Specification.from_flags({"quality": f"{path}[DQ]"}))
    np.testing.assert_array_equal(own.given(4).missing, FLAGS[4] != 0)
    np.testing.assert_array_equal(own.given(4).image, IMAGES[4])
    shared = open_survey(path, Specification.from_flags({"quality": f"{path}[ONE]"}))
    assert shared.masks == {}
    # What results depend on is known of extensions, too.
    assert "[ONE]" in str(shared.identity["operators"])
    assert "quality of each image" in own.identity


def test_the_identity_knows_everything_that_results_depend_on(open_with, tmp_path):
    changed = IMAGES.copy()
    changed[4, 5, 7] += 1e-9
    flipped = MASKS.copy()
    flipped[0, 0, 0] ^= 1
    louder = MAPS.copy()
    louder[4, 0, 0] += 1e-9
    table = {"operator": [{"kind": "gain", "gain": 2.0}], "noise": {"std": 1}}
    tables = [table, table | {"scale": 10.0}]
    kinds = [
        {}, {"images": changed}, {"mask": MASKS[0]}, {"mask": flipped[0]}, {"mask": MASKS},
        {"mask": flipped}, {"quality": MASKS}, {"noise": "0.1"}, {"noise": "0.2"},
        {"noise": "10%"}, {"noise": "auto"}, {"noise": MAPS[0]}, {"noise": louder[4]},
        {"noise": MAPS}, {"noise": louder}, {"variance": MAPS}, {"scale": 2.0}, {"offset": 1.0},
        {"invert": True}, {"gain": "2"}, {"blur": "1"}, {"blur": "1", "boundary": "reflect"},
    ]  # fmt: skip
    identities = [open_with(**kind).identity for kind in kinds]
    identities += [
        open_survey(tmp_path / "y.npy", Specification.from_dict(table)).identity for table in tables
    ]
    distinct = [each for place, each in enumerate(identities) if each not in identities[:place]]
    assert len(distinct) == len(identities)
    assert [open_with(**kind).identity for kind in kinds] == identities[: len(kinds)]


def test_a_scale_said_of_the_image_leaves_the_noise_in_the_units_of_the_file(tmp_path):
    """Such problems differ in nothing but what the noise is measured in."""
    np.save(tmp_path / "y.npy", IMAGES)
    found = []
    for scale in (1.0, 5.0):
        text = f'scale = {scale}\n[[operator]]\nkind = "gain"\ngain = 1.0\n[noise]\nstd = 0.1\n'
        (tmp_path / "p.toml").write_text(text)
        flags = {"problem": str(tmp_path / "p.toml"), "scale": 2.0}
        found.append(open_survey(tmp_path / "y.npy", Specification.from_flags(flags)).identity)
    assert found[0] != found[1]
