import json
import re

import pytest

from studies import inference, inference_page
from studies.pages import RESULTS, fill_page

EXACT = {"evidence_gap": 0.002, "evidence_error": 0.001, "mass_gap": 0.0, "khat": None}
OLD = {
    "log_evidence": 51.8,
    "log_evidence_error": 0.05,
    "weights": [0.98, 0.02],
    "khat": 0.62,
    "ess": 578.6,
    "missed_mass": 0.0,
    "refinements": 3,
    "forward_equivalents": 151358,
    "verdict": "refined: it was.",
    "bridge": 51.81,
    "weight_gap": 0.027,
    "two_sample_accuracy": 0.55,
    "reference": 51.75,
    "reference_error": 0.03,
    "commit": "016953f",
}
NEW = {name: value for name, value in OLD.items() if name not in ("refinements", "bridge")}
NEW |= {"rounds": 8, "turns": 2.1, "verdict": "reliable: independent groups of chains agree."}
HIDDEN = {
    "hidden": 0.04,
    "found_again": False,
    "evidence_change": -0.02,
    "verdict": "unreliable: x",
}


def page(*images):
    cells = {"exact gaussian": EXACT | {"verdict": "reliable: y"}, "hidden blur 1": HIDDEN}
    for number, cell in enumerate(images):
        cells |= {f"images blur {number} seed {seed}": cell for seed in (0, 1)}
    values = inference_page.make_values(cells)
    return fill_page("inference", {"commits": "commit x", **values})


@pytest.mark.parametrize(
    ("cell", "number", "word"), [(OLD, 3, "refined"), (NEW, 8, "reliable")], ids=["old", "new"]
)
def test_rows_of_both_versions_are_shown(cell, number, word):
    text = page(cell)
    row = "| `blur` 0 | 51.75 ± 0.03 | +0.05 ± 0.05 | 0.027 | 0.550 | 0.62 | 579"
    assert f"{row} | {number} | 0.000 | {word} |" in text
    assert "bridge" not in text


def test_every_row_has_as_many_cells_as_its_table():
    text = page(OLD, NEW | {"log_evidence": 53.0})
    tables = re.findall(r"(?:^\|.*\n)+", text, re.M)
    assert len(tables) == 4
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "1 of 2 are outside, 1 of them without" in text
    assert 'Caught (found again, or "unreliable"): 1 of 1.' in text


def test_what_is_measured_today_is_what_the_page_reads():
    source = json.loads((RESULTS / "inference.json").read_text())["cells"]
    assert source.keys() <= inference.make_jobs().keys()
    references = {"reference": 0.0, "reference_error": 0.1}
    cells = {
        name: cell | references if name.startswith("images") else cell
        for name, cell in source.items()
    }
    text = fill_page("inference", {"commits": "x", **inference_page.make_values(cells)})
    assert "| `solidmask` 1 |" in text
