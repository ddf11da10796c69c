"""Several images in one call."""

import html
import json
import re

import numpy as np
import pytest

from latentuq.app import several
from latentuq.app.reconstruct import Request
from latentuq.app.several import find_images, folder_name, reconstruct_all
from latentuq.core.errors import UserError
from latentuq.problem.specification import Specification

STATED = {"operator": [{"kind": "mask", "mask": "columns:4-7"}], "noise": {"std": 0.1}}


@pytest.fixture
def request_of(model, tmp_path):
    def make(**changes):
        given = {"folder": tmp_path / "out", "model": model, "budget": "preview"} | changes
        return Request("", specification=Specification.from_dict(STATED), **given)

    return make


def test_a_folder_stands_for_its_images(tmp_path):
    for name in ("b.png", "a.tif", ".hidden.png", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "c.png").mkdir()
    found = find_images(["x.npy", str(tmp_path), "sky.fits[SCI]"])
    assert found == ["x.npy", str(tmp_path / "a.tif"), str(tmp_path / "b.png"), "sky.fits[SCI]"]
    with pytest.raises(UserError, match=r"c\.png holds no \.png, .* name NumPy files"):
        find_images([str(tmp_path / "c.png")])


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("phone5.png", "phone5.png"),
        ("here/phone5.jpg", "phone5.jpg"),
        ("sky.fits[SCI]", "sky.fits-SCI"),
        ("sky.fits[SCI,1]", "sky.fits-SCI-1"),
    ],
)
def test_reports_have_the_whole_name_of_their_image(image, name):
    assert folder_name(image) == name


def test_equal_names_do_not_collide():
    assert several._unique(["a", "a", "b", "a-2", "a"]) == ["a", "a-2", "b", "a-2-2", "a-3"]


def test_failures_are_told_and_listed(tmp_path, request_of):
    np.save(tmp_path / "wide.npy", np.zeros((9, 9)))
    told = []
    images = ["missing <1>.npy", str(tmp_path / "wide.npy")]
    reconstruct_all(images, request_of(), told.append)
    assert [facts["status"] for facts in told] == ["failed", "failed"]
    assert [facts["image"] for facts in told] == images
    page = (tmp_path / "out" / "index.html").read_text()
    for facts, sentence in zip(told, ("no file", "(9, 9)"), strict=True):
        (reason,) = facts["reasons"]
        assert sentence in reason
        assert html.escape(reason) in page
    assert "missing &lt;1&gt;.npy <small>failed</small>" in page
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["index.html"]
    with pytest.raises(UserError, match="--force"):
        reconstruct_all(images, request_of(), told.append)
    assert len(told) == 2
    reconstruct_all(images, request_of(force=True), told.append)


def test_what_concerns_all_images_is_said_once(tmp_path, request_of):
    told = []
    with pytest.raises(UserError, match="nothing"):
        reconstruct_all(["a.npy", "b.npy"], request_of(model="nothing"), told.append)
    assert not told
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_each_image_has_a_report_and_a_row(tmp_path, request_of, tiny_images, monkeypatch):
    loaded, load = [], several.choose_prior
    monkeypatch.setattr(several, "choose_prior", lambda *each: loaded.append(each) or load(*each))
    (tmp_path / "other").mkdir()
    images = [tmp_path / "y #1.npy", tmp_path / "bad.npy", tmp_path / "other" / "y #1.npy"]
    for place in (0, 2):
        np.save(images[place], tiny_images.train[place])
    told, events = [], []
    reconstruct_all([*map(str, images)], request_of(), told.append, events.append)
    assert len(loaded) == 1
    page = (tmp_path / "out" / "index.html").read_text()
    names = ["y #1.npy", "y #1.npy-2"]
    assert re.findall(r'href="(.*?)"', page) == [
        "y%20%231.npy/report.html",
        "y%20%231.npy-2/report.html",
    ]
    assert told[1]["status"] == "failed"
    for name, facts in zip(names, (told[0], told[2]), strict=True):
        folder = tmp_path / "out" / name
        assert facts["report"] == str(folder / "report.html")
        saved = json.loads((folder / "summary.json").read_text())
        assert saved == {key: facts[key] for key in saved}
        assert facts["status"] == ("reliable" if saved["verdict"]["reliable"] else "unreliable")
        word, _, why = saved["verdict"]["text"].partition(": ")
        assert f"<small>{word}</small></h2><p>{html.escape(why[0].upper() + why[1:])}</p>" in page
    assert told[0]["log_evidence"] != told[2]["log_evidence"]
    messages = [event.message for event in events]
    assert messages[0].startswith("y #1.npy (1 of 3): ")
    assert messages[-1].startswith("y #1.npy-2 (3 of 3): The report is in ")
    seconds = [event.seconds for event in events]
    assert seconds == sorted(seconds)


@pytest.mark.slow
def test_an_interrupt_keeps_what_is_finished(tmp_path, request_of, tiny_images):
    np.save(tmp_path / "y.npy", tiny_images.train[0])

    def interrupt(event):
        if "(2 of 2)" in event.message:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reconstruct_all([str(tmp_path / "y.npy")] * 2, request_of(), [].append, interrupt)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["index.html", "y.npy"]
    assert "y.npy/report.html" in (tmp_path / "out" / "index.html").read_text()
