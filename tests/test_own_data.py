"""The first hour with one's own files ends in the right answer, or in a sentence on what to do."""

import json

import numpy as np
import pytest

import commands
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


@pytest.mark.parametrize("flags", [(), ("--invert",)])
def test_a_phone_photo_behind_a_soft_mask_is_inverted_or_said_to_be(reconstruct, folder, flags):
    name = "-".join(("photo", *flags))
    code, _, err = reconstruct(
        "photo.jpg", "--resize", "crop", "--mask", "mask.png", "--noise", "10%", *flags,
        "--budget", "preview", "-o", name,
    )  # fmt: skip
    assert code == 0, err
    facts = facts_of(folder, name)
    assert ("INVERTED" in facts["reasons"]) == (not flags)
    assert any("neither black nor white" in note for note in facts["notes"])
    assert any("resized from 300x400 to 28x28" in note for note in facts["notes"])
