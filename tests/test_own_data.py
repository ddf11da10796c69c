"""The first hour with one's own files ends in the right answer, or in a sentence on what to do."""

import json

import numpy as np
import pytest

import commands
import latentuq as lu
import own_files

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    own_files.make_model_of_counts(folder / "counts.safetensors")
    own_files.make_counts(folder)
    own_files.make_photo(folder / "photo.jpg")
    own_files.make_soft_mask(folder / "mask.png")
    return folder


@pytest.fixture
def reconstruct(monkeypatch, capsys, folder):
    def run(*arguments):
        return commands.call(monkeypatch, capsys, folder, "reconstruct", *arguments)

    return run


def facts_of(folder, name):
    return json.loads((folder / name / "summary.json").read_text())


def test_counts_come_back_as_counts(reconstruct, folder):
    from astropy.io import fits

    code, out, err = reconstruct(
        "float.fits", "--model", "counts.safetensors", "--noise", "60", "--mask", "columns:20-27",
        "-o", "float",
    )  # fmt: skip
    assert code == 0, err
    assert "black is 100 and white is 3100. The noise is 60 adu." in out
    assert facts_of(folder, "float")["verdict"]["reliable"]
    mean, header = fits.getdata(folder / "float" / "mean.fits", header=True)
    std = fits.getdata(folder / "float" / "std.fits")
    assert header["BUNIT"] == "adu"
    assert header["CRVAL1"] == 150.1
    truth = own_files.COUNTS.from_unit(own_files.digit())
    # About 95 % of the pixels of a right answer lie within two standard deviations.
    assert np.mean(np.abs(mean - truth) < 2 * std) > 0.9
    assert np.sqrt(np.mean((mean - truth)[:, :20] ** 2)) < own_files.NOISE


def test_the_level_of_the_noise_is_told_in_counts(reconstruct, folder):
    """A tenth of white, well above the error of the generator itself."""
    rng, noise = np.random.default_rng(3), 300.0
    counts = own_files.COUNTS.from_unit(own_files.digit()) + rng.normal(scale=noise, size=(28, 28))
    np.save(folder / "noisy.npy", counts)
    code, out, err = reconstruct(
        "noisy.npy", "--model", "counts.safetensors", "--noise", "auto", "--budget", "preview",
        "-o", "noisy",
    )  # fmt: skip
    assert code == 0, err
    found = facts_of(folder, "noisy")["noise"]
    # Within three standard deviations of its stated uncertainty.
    assert abs(np.log(found["std"] / noise)) < 1.5 * np.log(found["high"] / found["low"])
    assert f"Estimated noise: {found['std']:.3g}" in out


@pytest.mark.parametrize("name", ["uint16.fits", "float.npy"])
def test_counts_in_any_kind_of_file_are_the_same_counts(reconstruct, folder, name):
    arguments = ("--model", "counts.safetensors", "--noise", "60", "--budget", "preview")
    code, _, err = reconstruct(name, *arguments, "-o", f"preview-{name}")
    assert code == 0, err
    units = facts_of(folder, f"preview-{name}")["units"]
    assert "in the units of the images that the prior was trained on: black is 100" in units
    assert "The noise is 60" in units


@pytest.mark.parametrize("name", ["float.fits", "uint16.fits", "float.npy"])
def test_counts_under_a_prior_of_other_units_are_asked_about(reconstruct, folder, name):
    before = sorted(folder.iterdir())
    for noise in ("auto", "60"):
        code, out, err = reconstruct(name, "--noise", noise)
        assert (code, out) == (2, "")
        assert "--scale WHITE-MINUS-BLACK" in err
    assert sorted(folder.iterdir()) == before


def test_a_noise_of_874_is_asked_about(reconstruct, folder):
    np.save(folder / "clean.npy", own_files.digit())
    code, _, err = reconstruct("clean.npy", "--noise", "874")
    assert code == 2
    assert "874 times as large as the range" in err


def test_a_posterior_that_knows_nothing_is_not_reliable(reconstruct, folder):
    rng = np.random.default_rng(5)
    np.save(folder / "lost.npy", own_files.digit() + 9 * rng.normal(size=(28, 28)))
    code, out, _ = reconstruct(
        "lost.npy", "--noise", "9", "--budget", "preview", "-o", "lost", "--strict"
    )
    assert code == 3
    facts = facts_of(folder, "lost")
    assert facts["status"] == "unreliable"
    assert "NOTHING_LEARNED" in facts["reasons"]
    assert facts["variance_left"] > 0.9
    assert "told next to nothing about the image" in out


def test_an_inverted_photo_with_a_painted_mask(reconstruct, folder):
    arguments = ("photo.jpg", "--resize", "crop", "--mask", "mask.png", "--noise", "5%", "--strict")
    with pytest.warns(UserWarning, match="neither black nor white"):
        code, out, _ = reconstruct(*arguments, "-o", "photo")
    assert code == 3
    assert "looks like a negative" in out
    assert "latentuq reconstruct --invert" in out
    with pytest.warns(UserWarning, match="resized from 300x400 to 28x28 pixels, and what was too"):
        code, out, _ = reconstruct(*arguments, "--invert", "-o", "positive")
    assert code == 0
    assert out.count("\nfit: Do the data fit the model? Yes.") == 1
    y = np.asarray(lu.load_posterior(folder / "positive" / "posterior.nc").problem.y)
    (place,) = np.where(np.isnan(y).all(axis=0))
    # The mask hides what lies right of column 230 of 400, of which the middle 300 are kept; a
    # pixel that it touches is missing.
    assert place.tolist() == [*range(int((230 - 50) / 300 * 28), 28)]


def test_with_a_known_truth_hidden_pixels_are_counted_first(reconstruct, folder):
    np.save(folder / "truth.npy", own_files.digit())
    code, _, err = reconstruct(
        "truth.npy", "--corrupt", "--mask", "columns:14-27", "--noise", "0.1", "-o", "truth"
    )
    assert code == 0, err
    facts = facts_of(folder, "truth")
    counted = [name for name in facts if name.endswith("inside_90_percent")]
    assert counted == ["hidden_inside_90_percent", "seen_inside_90_percent"]
    assert facts["hidden_inside_90_percent"] > 0.8
