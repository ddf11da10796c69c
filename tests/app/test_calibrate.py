"""The path from images to a prior whose reports say how far it was checked."""

import dataclasses
import functools
import json

import numpy as np
import pytest
from PIL import Image

import commands
import latentuq as lu
from conftest import blobs
from latentuq.app.calibrate import CalibrationRequest, calibrate, read_held_out
from latentuq.core.errors import UserError
from latentuq.data.digits import load_digits
from latentuq.data.observation import Units
from latentuq.data.scaling import BYTES, UNIT, Scaling
from latentuq.prior.check import PriorCheck
from latentuq.prior.generative import Card
from latentuq.prior.model_file import load_prior, read_card, save_prior
from latentuq.problem.specification import Specification

SHAPE = (6, 8)
FLAGS = [
    *("--latent", "2", "--width", "24", "--epochs", "40", "--batch", "50"),
    *("--set", "vae.blocks=1", "--set", "vae.encoder_blocks=1", "--set", "vae.encoder_width=24"),
    *("--set", "flow.depth=2", "--set", "flow.width=8", "--set", "flow_fit.epochs=20"),
    *("--set", "model_error.rank=4", "--set", "model_error.held_out=0.2"),
]


@pytest.mark.slow
def test_from_images_to_a_checked_prior_to_a_report(tmp_path, monkeypatch, capsys):
    call = functools.partial(commands.call, monkeypatch, capsys, tmp_path)
    np.save(tmp_path / "images.npy", blobs(0, 300, SHAPE).astype(np.float32))
    np.save(tmp_path / "others.npy", blobs(1, 30, SHAPE).astype(np.float32))
    np.save(tmp_path / "one.npy", blobs(2, 1, SHAPE)[0])
    code, out, err = call("train", "images.npy", "-o", "m.safetensors", *FLAGS)
    assert code == 0, err
    assert "measure 2/3  how well classifiers tell" in err
    kept = read_card(tmp_path / "m.safetensors")["check"]
    assert kept["images"] == 16
    assert f"\n{kept['word']}: " in out
    assert " per test image: " in out
    assert Image.open(tmp_path / "m.png").width > 500
    assert load_prior(tmp_path / "m.safetensors").card.held_out.shape == (30, *SHAPE)

    stated = ("--mask", "rows:0-1", "--noise", "0.05")
    model = ("--model", "m.safetensors", "--budget", "preview")
    calibrate = ("calibrate", "--images", "others.npy", *model, *stated, "-o", "c", "--json")
    code, out, err = call(*calibrate, "--count", "6")
    assert code == 0, err
    facts = json.loads(out)
    assert (facts["images"], facts["corruption"]) == (6, "--mask rows:0-1 --noise 0.05")
    assert facts["hidden"] == pytest.approx(1 / 3, abs=1e-3)
    assert read_card(tmp_path / "m.safetensors")["check"] == kept
    code, out, err = call(*calibrate, "--count", "7", "--keep")
    assert code == 0, err
    facts = json.loads(out)
    assert json.loads((tmp_path / "c" / "summary.json").read_text()) == facts
    page = (tmp_path / "c" / "report.html").read_text()
    assert f"<strong>{facts['word']}</strong>" in page
    assert f"{facts['coverage']['hidden']['90%'][0]:.1%}" in page
    assert 'src="http' not in page
    assert 'href="http' not in page
    known = PriorCheck(**read_card(tmp_path / "m.safetensors")["check"])
    assert (known.images, known.covered) == (7, facts["covered"])
    code, _, err = call(*calibrate, "--count", "7", "--seed", "1")
    assert code == 2
    assert "another model, seed or setting" in err

    code, out, err = call(
        "reconstruct", "one.npy", "--corrupt", *model, *stated, "--json", "-o", "r"
    )
    assert code == 0, err
    facts = json.loads(out)
    assert facts["verdict"]["marks"]["prior"]["reasons"][0]["numbers"]["images"] == 7
    assert 0 <= facts["hidden_inside_90_percent"] <= 1
    page = (tmp_path / "r" / "report.html").read_text()
    assert f"{facts['hidden_inside_90_percent']:.1%} of the hidden pixels and" in page


def on_prior_scale(found):
    return found.scaling.to_unit(found.raw)


@pytest.fixture
def scaled(tiny_prior):
    """The tiny prior with another scaling, and no held-out images."""

    def make(scaling):
        return dataclasses.replace(tiny_prior, scaling=scaling, card=Card("tiny"))

    return make


@pytest.mark.parametrize(
    ("trained", "raw", "first", "units"),
    [
        (BYTES, np.full((6, *SHAPE), 51, np.uint8), 0.2, BYTES),
        (BYTES, np.full((6, *SHAPE), 0.2), 0.2, UNIT),
        (UNIT, np.full((6, *SHAPE), 51, np.uint8), 0.2, BYTES),
        (Scaling(100.0, 3000.0), np.full((6, *SHAPE), 700.0), 0.2, Scaling(100.0, 3000.0)),
        (Scaling(100.0, 3000.0), np.full((6, *SHAPE), 700, np.uint16), 0.2, None),
    ],
)
def test_images_are_scaled_as_those_of_training_were(scaled, tmp_path, trained, raw, first, units):
    raw[0, 0, 0] = 0  # Sets of one value are refused.
    np.save(tmp_path / "x.npy", raw)
    found = read_held_out(scaled(trained), str(tmp_path / "x.npy"), Units())
    assert on_prior_scale(found)[1, 0, 0] == pytest.approx(first, abs=1e-5)
    assert found.scaling == (units or trained)


def test_images_that_do_not_belong_to_the_prior_are_refused(scaled, tmp_path):
    prior = scaled(BYTES)
    np.save(tmp_path / "x.npy", np.linspace(0, 900, 6 * 48).reshape(6, *SHAPE))
    with pytest.raises(UserError, match="values from 0 to 900, but tiny was trained on images of"):
        read_held_out(prior, str(tmp_path / "x.npy"), Units())
    found = read_held_out(prior, str(tmp_path / "x.npy"), Units(scale=900.0, invert=True))
    images = on_prior_scale(found)
    assert (images.max(), images.min()) == pytest.approx((1, 0))
    assert images[0, 0, 0] == pytest.approx(1)
    np.save(tmp_path / "y.npy", np.random.default_rng(0).uniform(size=(6, 3, 3)))
    with pytest.raises(UserError, match=r"have shape \(3, 3\), but those of tiny"):
        read_held_out(prior, str(tmp_path / "y.npy"), Units())
    with pytest.raises(UserError, match="keeps no held-out images: give --images"):
        read_held_out(prior, None, Units())


def test_images_that_training_kept_aside_serve_by_default(tiny_prior):
    found = read_held_out(tiny_prior, None, Units())
    np.testing.assert_array_equal(on_prior_scale(found), tiny_prior.card.held_out)
    digits = read_held_out(load_prior("mnist"), None, Units())
    assert digits.raw.shape == (40, 28, 28)
    # A model of bytes: noise is stated in these, as for an image file of 8 bits.
    assert (digits.kind, digits.scaling) == ("uint8", BYTES)
    np.testing.assert_allclose(on_prior_scale(digits), load_digits().images, atol=1e-6)
    with pytest.raises(UserError, match="are about --images: give these too"):
        read_held_out(tiny_prior, None, Units(scale=255.0))


def test_the_units_of_a_problem_file_are_not_those_of_held_out_images(
    tiny_prior, tmp_path, monkeypatch, capsys
):
    """A problem that latentuq wrote is stated on the prior's scale: its file has scale = 1."""
    asked = []
    monkeypatch.setattr(
        "latentuq.app.calibrate.calibrate", lambda request, _: asked.append(request)
    )
    monkeypatch.setattr("latentuq.cli.calibrate.print_check", lambda checked: None)
    problem = lu.InverseProblem(tiny_prior, lu.Gain(2.0), lu.GaussianNoise(0.1), np.zeros(SHAPE))
    lu.save_problem(problem, tmp_path / "p.toml")
    code, _, err = commands.call(
        monkeypatch, capsys, tmp_path, "calibrate", "--problem", "p.toml", "--invert"
    )
    assert code == 0, err
    assert asked[0].units == Units(invert=True)
    assert asked[0].specification.noise == {"std": pytest.approx(0.1)}
    assert asked[0].corruption == "--problem p.toml"


def test_noise_that_hides_everything_is_refused(tmp_path):
    request = CalibrationRequest(
        tmp_path, "mnist", specification=Specification.from_flags({"noise": "3000"})
    )
    with pytest.raises(UserError, match=r"noise of 3000 is 11\.8 times as large as the range"):
        calibrate(request, lambda *event: None)


def test_a_folder_of_something_else_is_left_alone(tmp_path, tiny_prior):
    save_prior(tmp_path / "m", tiny_prior)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "thesis.tex").write_text("years")
    request = CalibrationRequest(tmp_path / "c", str(tmp_path / "m"))
    with pytest.raises(UserError, match="is not empty and no calibration"):
        calibrate(request, lambda *event: None)
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["thesis.tex"]
