"""The study of surveys: what it measures at small size, and what its page says."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import latentuq as lu
from studies import scale
from studies.pages import fill_page
from studies.scale import Sizes, make_jobs, make_values, run_survey
from studies.scale_answers import measure_answers

CELLS = {
    "start": {"cold_ready": 4.0, "cold_first": 20.0, "warm_ready": 4.0, "warm_first": 9.0},
    "loop": {"images": 100, "solve": 0.6, "solve_many": 0.5},
    "1 worker": {"images": 160, "rate": 0.4, "whole": 0.3},
    "2 workers": {"images": 160, "rate": 0.75, "whole": 0.5},
    "answers": {
        "digits": 1000,
        "garments": 50,
        "right": 0.93,
        "stated": 0.92,
        "status": {"reliable": 950, "unreliable": 50},
        "garments_unreliable": 40,
        "reasons": [{"reason": "MISFIT", "images": 30}],
        "bins": [{"stated": 0.45, "right": 0.4, "images": 10}],
        "garments_first": 45,
        "bytes": 50_000.0,
    },
    "previews": {
        "images": 500,
        "memory": [
            {"done": 100 * (n + 1), "megabytes": 700 + 10 * n, "seconds": 50.0 * (n + 1)}
            for n in range(5)
        ],
        "medians": [0.5, 0.5, 0.5, 0.5, 0.55],
        "status": {"reliable": 500},
    },
}


def test_the_page_says_which_bars_hold():
    text = fill_page("scale", {"commits": "commit 1", **make_values(CELLS)})
    text = " ".join(text.split())
    assert "Two workers beside one: 1.88 (the bar holds)" in text
    assert "Two workers beside the loop: 1.25 (the bar holds; aim 1.3)" in text
    assert "is 1.10 times that among the first hundred (0.55 and 0.50 s)" in text
    assert "950 reliable, 50 unreliable" in text
    # 1e7 images at 100 x 0.75 per second.
    assert "take 1.5 days" in text
    worse = {**CELLS, "2 workers": {"images": 160, "rate": 0.59, "whole": 0.5}}
    values = make_values(worse)
    assert values["pair"].endswith("(the bar is missed)")
    assert "missed" in values["versus"]


class Reader:
    """Reads the digit that the first number of an image says."""

    def probabilities(self, images):
        return np.eye(10)[np.asarray(images)[:, 0].astype(int)]


def test_answers_are_held_against_the_labels():
    # Draws of u are digits themselves: three quarters of the first image's say 3.
    draws = np.array([[3, 3, 3, 5], [1, 1, 1, 1], [7, 7, 2, 2], [9, 9, 9, 9]])[..., None]
    columns = {
        "u": draws.astype(np.float32),
        "status": np.array(["reliable", "unreliable", "failed", "unreliable"], object),
        "reasons": np.array(["", "MISFIT, AGREED", "", "MISFIT"], object),
        "surprise": np.array([0.1, np.nan, np.nan, 9.0]),
    }
    store = SimpleNamespace(column=columns.__getitem__)
    prior = SimpleNamespace(dim=1, decode=lambda u: jnp.asarray(u))
    found = measure_answers(store, prior, Reader(), np.array([3, 2, 7, -1]))
    assert found["right"] == 0.5  # The one that failed does not count.
    assert found["stated"] == pytest.approx((0.75 + 1) / 2)
    assert found["status"] == {"reliable": 1, "unreliable": 1, "failed": 1}
    assert (found["garments_first"], found["garments_unreliable"]) == (1, 1)
    assert found["reasons"] == [
        {"reason": "MISFIT", "images": 1},
        {"reason": "AGREED", "images": 1},
    ]
    assert [each["images"] for each in found["bins"]] == [1, 1]


@pytest.fixture
def digits(monkeypatch):
    """The embedded digits in the place of the data sets."""
    some = lu.load_digits()
    data = SimpleNamespace(test_images=some.images, test_labels=some.labels)
    monkeypatch.setattr(scale, "load_dataset", lambda name: data)


@pytest.mark.slow
def test_a_small_survey_is_measured(tmp_path, digits, monkeypatch):
    def in_this_process(folder, images, name, workers, budget="default", watch=lambda _: None):
        monkeypatch.setattr(scale, "CHUNK", 2)
        return run_survey(folder, images, name, 0, "preview", watch)

    monkeypatch.setattr(scale, "run_survey", in_this_process)
    monkeypatch.setattr(scale, "_EVERY", 2)
    jobs = make_jobs(Sizes(sampled=6, looped=1, digits=3, garments=1, previews=4), tmp_path)
    assert [*jobs] == [*CELLS]
    speed = jobs["2 workers"]({})
    assert speed["whole"] > 0
    assert speed["rate"] > 0
    answers = jobs["answers"]({})
    assert (answers["digits"], answers["garments"]) == (3, 1)
    assert answers["bytes"] > 1000
    again = jobs["answers"]({})  # Nothing is solved anew.
    assert again == answers
    previews = jobs["previews"]({})
    assert len(previews["medians"]) == 2
    assert [each["done"] for each in previews["memory"]] == [2, 4]
