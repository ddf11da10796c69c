"""`reconstruct` as a program calls it: requests in, events and a report out."""

import json

import jax
import numpy as np
import pytest

import latentuq as lu
from latentuq.app.reconstruct import Request, reconstruct
from latentuq.cli.flags import PROBLEM_FLAGS
from latentuq.cli.problem import problem as state
from latentuq.core.errors import UserError
from latentuq.problem.specification import Specification
from own_files import write_image

SHAPE = (6, 8)
CLIENT = {
    "operator": [{"kind": "mask", "mask": "columns:4-7"}],
    "noise": {"std": 0.1},
}


@pytest.fixture
def image(tiny_images):
    return np.asarray(tiny_images.train[0], np.float64)


@pytest.mark.slow
def test_an_array_and_a_table_make_a_report(tmp_path, model, image):
    events = []
    request = Request(
        image, tmp_path / "report", Specification.from_dict(CLIENT), model, budget="preview",
        seed=3, command="a program",
    )  # fmt: skip
    report = reconstruct(request, events.append)
    assert report.folder == tmp_path / "report"
    assert report.noise_level is None
    assert report.facts == json.loads((report.folder / "summary.json").read_text())
    saved = lu.load_posterior(report.folder / "posterior.nc", model)
    for provenance in (report.facts, report.posterior.provenance, saved.provenance):
        assert (provenance["command"], provenance["seed"]) == ("a program", "3")
    np.testing.assert_array_equal(report.content.mean, report.posterior.mean)
    assert not np.asarray(report.posterior.problem.observed)[:, 4:].any()
    # What was told on the way grows, and ends with the whole.
    assert [event.stage for event in events][-1] == "write"
    assert {"problem", "search", "fit", "certify"} <= {event.stage for event in events}
    fractions = [event.fraction for event in events if event.fraction is not None]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    seconds = [event.seconds for event in events]
    assert seconds == sorted(seconds)
    assert all(event.message.strip() for event in events)


@pytest.mark.slow
def test_the_level_of_the_noise_is_estimated_on_request(tmp_path, model, image):
    noisy = image + 0.2 * np.random.default_rng(1).normal(size=SHAPE)
    unknown = Specification.from_dict(CLIENT | {"noise": {"std": "auto"}})
    request = Request(noisy, tmp_path / "report", unknown, model, budget="preview")
    report = reconstruct(request)
    assert report.facts["noise"]["std"] == report.noise_level.std
    assert report.posterior.problem.noise.std == np.float32(report.noise_level.std)
    assert "noise" in report.facts["seconds"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image": np.zeros((3, 3))}, "--resize crop cuts it"),
        ({"resize": "stretch"}, "crop or pad, not 'stretch'"),
        ({"image": np.full(SHAPE, np.inf)}, "infinite"),
        ({"image": np.array([["a"]])}, "not real numbers"),
        ({"model": "nothing"}, "nothing"),
        ({"budget": "huge"}, "preview"),
    ],
)
def test_what_cannot_be_done_leaves_nothing_behind(tmp_path, model, image, changes, words):
    given = {"image": image, "folder": tmp_path / "report", "model": model} | changes
    with pytest.raises(UserError, match=words):
        reconstruct(Request(specification=Specification.from_dict(CLIENT), **given))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_clean_image_is_corrupted_with_noise_of_a_known_level(tmp_path, model, image):
    unknown = Specification.from_flags({"noise": "auto"})
    with pytest.raises(UserError, match="known level"):
        reconstruct(Request(image, tmp_path / "report", unknown, model, corrupt=True))


KINDS = {
    "uint8": ("png", lambda image: np.rint(255 * image).astype(np.uint8)),
    "uint16": ("png", lambda image: np.rint(65535 * image).astype(np.uint16)),
    "bool": ("npy", lambda image: image > 0.3),
    "float": ("npy", lambda image: image),
    "fits": ("fits", lambda image: np.rint(65535 * image).astype(np.uint16)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_problem_and_reconstruct_read_the_same_numbers(tmp_path, model, image, kind):
    suffix, convert = KINDS[kind]
    raw = convert(np.clip(image, 0, 1))
    path = tmp_path / f"y.{suffix}"
    if suffix == "npy":
        np.save(path, raw)
    elif suffix == "png":
        write_image(path, raw)
    else:
        from astropy.io import fits

        fits.PrimaryHDU(raw).writeto(path)
    flags = {"mask": "columns:6-7", "noise": "10%"}
    given = dict.fromkeys(PROBLEM_FLAGS) | flags
    output = tmp_path / "p.toml"
    state(data=str(path), output=output, model=model, force=False, as_json=False, **given)
    stated = lu.load_problem(tmp_path / "p.toml")
    request = Request(
        path, tmp_path / "report", Specification.from_flags(flags), model, budget="preview"
    )
    solved = reconstruct(request).posterior.problem
    np.testing.assert_array_equal(stated.y, solved.y)
    expected = raw if kind == "bool" else image
    np.testing.assert_allclose(np.asarray(solved.y)[:, :6], expected[:, :6], atol=1 / 255)
    u = jax.numpy.full(stated.dim, 0.3)
    assert stated.log_density(u) == solved.log_density(u)
