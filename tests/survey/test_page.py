"""The page on a survey: counts, reasons, galleries and the table, of stores made up here."""

import base64
import html
import io
import json
import os
import re
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from exact_posteriors import make_problem
from latentuq.inference.causes import Cause
from latentuq.survey import distributions, page
from latentuq.survey.layout import FAILED, RELIABLE, STATUSES, UNRELIABLE, Layout
from latentuq.survey.page import write_page
from latentuq.survey.rows import error_row, fill_row
from latentuq.survey.store import Store, create_store

pytest.importorskip("zarr")

LAYOUT = Layout((6, 5), (6, 5), 3, draws=2, truth=True)
EVIL = '</script><script>alert("x")</script>&<b>'


@pytest.fixture(scope="module")
def problem():
    return make_problem()


@pytest.fixture
def make_store(tmp_path, problem):
    def make(images, chunk=4, layout=LAYOUT, **provenance):
        store = Store(
            tmp_path / "survey.zarr", layout, images, chunk, {"model": "tiny"}, provenance
        )
        create_store(store, problem)
        return store

    return make


def solved_row(layout=LAYOUT, name="a.png", status=RELIABLE, **values):
    picture = {each: np.full(layout.shape, 0.5) for each in ("most_probable", "mean", "std")}
    picture |= {"y": np.full(layout.data_shape, 0.5)}
    numbers = {"log_evidence": -3.0, "reduced_chi_squared": 0.9, "predictive_p_value": 0.4}
    numbers |= {"uncertainty": 0.1, "surprise": 0.0, "seconds": 2.0}
    modes = {"modes_found": 2, "weights": [0.75, 0.25]}
    row = {"name": name, "status": status, **picture, **numbers, **modes, **values}
    return fill_row(layout, row)


def write_rows(store, rows):
    """Writes the rows of as many chunks as there are rows for."""
    for chunk in range(-(-len(rows) // store.chunk)):
        part = rows[chunk * store.chunk : (chunk + 1) * store.chunk]
        counts = Counter(row["status"] for row in part)
        store.write(chunk, part, {status: counts[status] for status in STATUSES})
    return store


def read(store):
    return write_page(store).read_text(encoding="utf-8")


def read_data(text):
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(block)


def part(text, title):
    """One section of the page."""
    (body,) = re.findall(rf"<section><h2>{title}</h2>(.*?)</section>", text, re.S)
    return body


def gallery(text, title):
    return [int(image) for image in re.findall(r"<h3>(\d+)", part(text, title))]


def test_counts_and_times_stand_at_the_top(make_store):
    rows = [
        *(solved_row(seconds=seconds) for seconds in (1.0, 2.0, 6.0)),
        *(solved_row(status=UNRELIABLE, reasons="MISFIT", seconds=9.0) for _ in range(2)),
        error_row(LAYOUT, "b.png", "It is NaN everywhere."),
    ]
    store = write_rows(make_store(9, chunk=3, input="/data/sky.npy"), rows)
    # Eight seconds on the first chunk, a night, then five seconds until the second was finished.
    os.utime(store.marker(0), (1e9, 1e9))
    os.utime(store.marker(1), (1e9 + 5, 1e9 + 5))
    text = read(store)
    assert "<h1>9 images of sky.npy</h1>" in text
    for count, word in ((3, RELIABLE), (2, UNRELIABLE), (1, FAILED), (3, "not yet solved")):
        assert f"<b>{count}</b> {word} <small>{100 * count / 9:.1f} %</small>" in text
    assert "under the prior <b>tiny</b>" in text
    assert "The median image took 6 seconds" in text
    assert f"solved {5 / (9 + 5):.3g} images per second" in text
    assert "--resume" in text


def test_pauses_do_not_count_as_work(make_store):
    store = write_rows(make_store(2, chunk=1), [solved_row(seconds=4.0)] * 2)
    os.utime(store.marker(1), (1e9, 1e9))  # The later chunk came first.
    os.utime(store.marker(0), (2e9, 2e9))
    assert "solved 0.25 images per second" in read(store)


def test_reasons_are_counted_in_sentences_of_unreliable_images_alone(make_store):
    rows = [
        solved_row(status=UNRELIABLE, reasons="MISFIT, WILD_DATA, PRIOR_OVERCONFIDENT"),
        solved_row(status=UNRELIABLE, reasons="MISFIT, PRIOR_OVERCONFIDENT"),
        solved_row(status=UNRELIABLE, reasons="MISFIT, PRIOR_OVERCONFIDENT"),
        solved_row(status=UNRELIABLE, reasons="WRONG_SCALE"),
        solved_row(reasons="FEW_DRAWS"),
    ]
    shown = html.unescape(part(read(write_rows(make_store(5), rows)), "Why images are unreliable"))
    counted = re.findall(r"<th>(\d+)<br><small>(.*?)</small></th><td><b>(.*?)</b>", shown)
    assert counted == [
        ("3", "75.0 %", "misfit"),
        ("1", "25.0 %", "wild data"),
        ("1", "25.0 %", "wrong scale"),
    ]
    assert f"{Cause.MISFIT.clause[1:]}." in shown
    assert "far from anything that the model makes." in shown
    assert "Besides, of the prior: On held-out images" in shown
    assert "{" not in shown
    assert "few draws" not in shown


def test_errors_that_differ_in_a_name_alone_are_one(make_store):
    names = [f"{number}.png" for number in range(4)]
    rows = [error_row(LAYOUT, name, f"{name} is NaN everywhere.") for name in names[:3]]
    rows.append(error_row(LAYOUT, names[3], "Its process died."))
    text = read(write_rows(make_store(4), rows))
    shown = re.findall(r"<th>(\d+)<br>.*?<td>(.*?) <small>(.*?)<", part(text, "Why images failed"))
    assert shown == [
        ("3", "… is NaN everywhere.", "First: image 0."),
        ("1", "Its process died.", "First: image 3."),
    ]
    # There is nothing to draw, and nothing to be surprised at.
    assert "Distributions" not in text
    assert "The most surprising" not in text
    assert len(read_data(text)["rows"]) == 4


def test_many_kinds_of_errors_are_summed_up(make_store):
    rows = [error_row(LAYOUT, "a", f"Failure {letter} of a.") for letter in "bcdefghijklmn"]
    rows.append(rows[0])
    shown = part(read(write_rows(make_store(14), rows)), "Why images failed")
    assert shown.count("<tr>") == 11
    assert "<th>3<br><small>21.4 %</small></th><td>3 other errors." in shown
    assert "Failure b of …." in shown


def test_galleries_show_the_largest_first(make_store):
    surprises = [1.0, np.nan, 7.0, -2.0, *[0.5] * 6, 3.0, np.inf]
    rows = [
        solved_row(surprise=surprise, uncertainty=number / 100)
        for number, surprise in enumerate(surprises)
    ]
    rows[11]["name"] = "the last one"
    text = read(write_rows(make_store(12), rows))
    assert gallery(text, "The least certain") == [11, 10, 9, 8, 7, 6, 5, 4]
    assert gallery(text, "The most surprising") == [11, 2, 10, 0, 4, 5, 6, 7]
    shown = part(text, "The least certain")
    assert "<h3>11 <small>the last one</small></h3><p>reliable, uncertainty 0.11</p>" in shown
    assert "survey.zarr <span>--image 11</span></code>" in shown
    for name in ("data", "most probable", "posterior mean", "standard deviation", "truth"):
        assert shown.count(f'alt="{name}"') == 8


def test_images_without_a_number_are_in_no_gallery(make_store):
    rows = [solved_row(surprise=np.nan), solved_row(surprise=1.0)]
    assert gallery(read(write_rows(make_store(2), rows)), "The most surprising") == [1]


def test_the_table_has_every_image_with_its_numbers(make_store):
    rows = [
        solved_row(name="a", surprise=0.123456789),
        solved_row(name="b", status=UNRELIABLE, reasons="FEW_DRAWS, UNSETTLED", surprise=2.0),
        error_row(LAYOUT, "c", "Bad. " * 100),
        solved_row(name="d", predictive_p_value=np.nan, log_evidence=-np.inf, surprise=1.0),
    ]
    data = read_data(read(write_rows(make_store(6, chunk=2), rows)))
    assert len(data["kinds"]) == 12
    shown = {cells[0]: cells[1:] for cells in data["rows"]}
    assert list(shown) == [2, 1, 3, 0, 4, 5]
    assert shown[0] == ["a", RELIABLE, "", 0.75, 2, -3, 0.9, 0.4, 0.1, 0.12346, 2]
    assert shown[1][:3] == ["b", UNRELIABLE, "few draws, unsettled"]
    assert shown[2][2].startswith("Bad. Bad.")
    assert len(shown[2][2]) < 200
    assert shown[2][3:] == [None] * 8
    assert shown[3][5:8] == [None, 0.9, None]
    assert shown[4] == ["", "not yet solved", "", *[None] * 8]


def test_the_longest_table_holds_what_needs_a_look(make_store, monkeypatch):
    monkeypatch.setattr(page, "MOST_ROWS", 3)
    rows = [solved_row(surprise=surprise) for surprise in (0.0, 5.0, np.nan, 1.0)]
    rows += [solved_row(status=UNRELIABLE, surprise=-9.0), error_row(LAYOUT, "f", "Bad.")]
    text = read(write_rows(make_store(6, chunk=3), rows))
    assert [cells[0] for cells in read_data(text)["rows"]] == [5, 4, 1]
    assert "Of 6 images only the first 3 are here." in text


def test_the_table_can_be_sorted_by_keyboard_and_read_aloud(make_store):
    text = read(write_rows(make_store(1), [solved_row()]))
    heads = re.findall(r'<th scope="col" class="(\w+)" aria-sort="none"><button type="but', text)
    assert heads == read_data(text)["kinds"]
    script = text[text.rindex("<script>") :]
    # What the script looks for is on the page.
    for name in re.findall(r'getElementById\("(\w+)"\)', script):
        assert text.count(f'id="{name}"') == 1
    for name in re.findall(r"elements\.(\w+)", script):
        assert f'name="{name}"' in text
    kinds = set(re.findall(r"^    (\w+): \(value\)", script, re.M))
    assert kinds == set(heads)


def test_names_errors_and_provenance_are_escaped(make_store):
    rows = [
        solved_row(name=EVIL),
        error_row(LAYOUT, "c.png", EVIL),
        solved_row(status=UNRELIABLE, reasons=EVIL),
    ]
    rows[1]["name"] = "c.png\u202e"  # A store may come from anywhere.
    store = make_store(3, chunk=3, input=f"/{EVIL}", command=f"{EVIL} \x1b[1m\u202e")
    text = read(write_rows(store, rows))
    assert "alert(" in text
    assert "<script>alert" not in text
    assert "<b>misfit" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert text.count("</script>") == text.count("<script") == 2
    assert {cells[1] for cells in read_data(text)["rows"]} >= {EVIL, r"c.png\u202e"}
    for title in ("The least certain", "Why images failed", "How this was made"):
        assert html.escape(EVIL) in part(text, title)


def test_nothing_is_solved_yet(make_store):
    text = read(make_store(5))
    assert "<b>5</b> not yet solved" in text
    assert "The median image" not in text
    assert "per second" not in text
    assert "<h2>Distributions" not in text
    assert len(read_data(text)["rows"]) == 5


def test_a_chunk_without_a_marker_does_not_count(make_store):
    store = write_rows(make_store(4, chunk=2), [solved_row()] * 4)
    # As if its process had been killed while it wrote the marker.
    store.marker(1).rename(store.run / ".00000001.123-0123abcd.done")
    text = read(store)
    assert "<b>2</b> reliable" in text
    assert "<b>2</b> not yet solved" in text
    assert [cells[4] for cells in read_data(text)["rows"]] == [0.75, 0.75, None, None]
    assert gallery(text, "The least certain") == [0, 1]


def test_one_image_and_numbers_that_are_not_there(make_store, recwarn):
    unknown = dict.fromkeys(("predictive_p_value", "reduced_chi_squared", "surprise"), np.nan)
    unknown |= {"std": np.full(LAYOUT.shape, np.nan)}
    text = read(write_rows(make_store(1), [solved_row(**unknown)]))
    assert "<h1>1 image of survey.zarr</h1>" in text
    shown = part(text, "Distributions")
    assert shown.count("<svg") == 3
    assert "p-value" not in shown
    assert "The most surprising" not in text
    assert (
        "nan" not in re.sub(r"base64,[^\"]*", "", shown + part(text, "The least certain")).lower()
    )
    assert not recwarn.list


def test_bars_have_the_heights_of_the_images(make_store, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        distributions, "render_svg", lambda figure: drawn.append(figure) or "<svg></svg>"
    )
    rows = [solved_row(predictive_p_value=(number + 0.5) / 40) for number in range(40)]
    for row in rows[:10]:
        row["status"] = UNRELIABLE
    read(write_rows(make_store(40, chunk=40), rows))
    (axis,) = (f.axes[0] for f in drawn if f.axes[0].get_xlabel() == "p-value")
    blue, orange = (sum(bar.get_height() for bar in bars) for bars in axis.containers)
    assert (blue, orange) == (30, 10)
    tops = [one.get_height() + two.get_height() for one, two in zip(*axis.containers, strict=True)]
    (line,) = (each.get_ydata()[0] for each in axis.lines)
    # Even p-values reach the line, as far as whole images can.
    assert np.max(np.abs(np.array(tops) - line)) < 1


def test_what_is_far_out_is_counted_and_not_drawn(make_store):
    rows = [solved_row(log_evidence=float(number)) for number in range(600)]
    rows[0]["log_evidence"] = np.float64(-1e12)
    text = part(read(write_rows(make_store(600, chunk=600), rows)), "Distributions")
    assert "at the same noise. Beyond the ends of the picture: 6 images." in text


def test_large_pictures_are_thinned(make_store):
    layout = Layout((300, 600), (300, 600), 3, draws=0)
    text = read(write_rows(make_store(1, layout=layout), [solved_row(layout)]))
    assert "--image" not in text  # Nothing is kept that a report could be made of.
    assert "--draws 0" in text
    (picture, *_) = re.findall(r'base64,(.*?)" alt="most probable"', text)
    assert Image.open(io.BytesIO(base64.b64decode(picture))).size == (200, 100)


def test_data_that_are_no_picture_are_left_out(make_store):
    layout = Layout((6, 5), (7,), 3, draws=2)
    shown = part(
        read(write_rows(make_store(1, layout=layout), [solved_row(layout)])), "The least certain"
    )
    assert 'alt="data"' not in shown
    assert 'alt="most probable"' in shown


def test_other_than_grey_images_have_no_pictures(make_store):
    layout = Layout((6, 5, 3), (6, 5, 3), 3, draws=2)
    shown = part(
        read(write_rows(make_store(1, layout=layout), [solved_row(layout)])), "The least certain"
    )
    assert "<img" not in shown
    assert "Only grey images are pictured" in shown


def test_how_the_survey_was_made_is_told(make_store):
    store = make_store(1, command="latentuq batch a.npy -o b.zarr")
    store.identity.update({"noise": {"std": "20%"}, "resize": None, "corrupt": False})
    shown = html.unescape(part(read(store), "How this was made"))
    assert "<th>command</th><td>latentuq batch a.npy -o b.zarr</td>" in shown
    assert '<th>noise</th><td>{"std": "20%"}</td>' in shown
    assert "<th>corrupt</th><td>false</td>" in shown
    assert "resize" not in shown
