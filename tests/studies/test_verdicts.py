import collections

import numpy as np
import pytest

import latentuq as lu
from latentuq.core.cells import run_cells
from studies import verdicts
from studies.pages import fill_page
from studies.verdicts import CORRUPTIONS, KINDS, Problem, all_problems, make_problem

HALF = "right half hidden, noise 0.2"


def test_there_are_500_problems_of_every_kind_and_corruption():
    problems = [*all_problems()]
    assert len(problems) == len({*problems}) == len(verdicts.make_jobs()) == 500
    counts = collections.Counter(problem.kind for problem in problems)
    assert counts["sound"] == len(CORRUPTIONS) * KINDS["sound"].problems
    first = problems[: len(CORRUPTIONS) * len(KINDS)]
    assert {problem.corruption for problem in first} == {*CORRUPTIONS}
    assert {problem.kind for problem in first} == {*KINDS}


@pytest.mark.parametrize(
    ("kind", "number", "factor", "stated"),
    [
        ("sound", 3, 1, 0.2),
        ("wrong scale", 2, 1 / 255, 0.2 / 255),
        ("wrong scale", 3, 2, 0.4),
        ("noise stated 5 times too small", 0, 1, 0.04),
        ("noise stated 5 times too large", 0, 1, 1.0),
    ],
)
def test_a_problem_is_what_its_kind_says(kind, number, factor, stated):
    x = np.asarray(lu.load_digits().digit(0), np.float32)
    problem = make_problem(Problem(kind, HALF, number), x)
    seen = np.asarray(problem.observed)
    assert float(problem.noise.std) == pytest.approx(stated)
    # The noise of 392 data, relative to its standard deviation of 0.2.
    gaps = np.asarray(problem.y)[seen] / factor - x[seen]
    assert np.std(gaps) == pytest.approx(0.2, rel=0.15)


def test_an_inverted_problem_shows_white_for_black():
    x = np.zeros((28, 28), np.float32)
    assert np.nanmean(make_problem(Problem("inverted", HALF, 0), x).y) == pytest.approx(1, abs=0.05)


def test_the_page_counts_what_is_wrong():
    def cell(kind, fit, cause, corruption=HALF):
        row = {"kind": kind, "corruption": corruption, "fit": fit, "computed": "ok", "number": 1}
        return row | {"causes": [cause], "seconds": 1.0}

    cells = {
        "1": cell("sound", "ok", "FITS"),
        "2": cell("sound", "bad", "MISFIT"),
        "3": cell("inverted", "bad", "INVERTED"),
        "4": cell("foreign", "ok", "FITS", "blur 2, noise 0.05"),
        "5": cell("wrong scale", "ok", "FITS"),
    }
    page = fill_page("verdicts", {"commits": "commit 1", **verdicts.make_values(cells)})
    assert "| sound | 2 | 50.0% | 5% | 0.0% | MISFIT 1 |" in page
    assert "| inverted | 1 | 0.0% | 2% | 0.0% | INVERTED 1 |" in page
    assert "| foreign | 1 | 100.0% | 15% | 0.0% |  |" in page
    assert f"| {HALF} | 1 of 2 | 1 of 1 | 0 of 1 |" in page
    assert "divided by 2: 0 of 0; divided by 10: 1 of 1; divided by 255: 0 of 0" in " ".join(
        page.split()
    )


@pytest.mark.slow
def test_a_small_study_finds_what_is_wrong(tmp_path, monkeypatch):
    """On the digits that come along; garments do not, so shuffled digits are the foreign ones."""
    digits = np.asarray(lu.load_digits().images, np.float32)
    shuffled = np.random.default_rng(0).permuted(digits.reshape(-1, 784), axis=1)
    sets = {False: digits, True: shuffled.reshape(digits.shape)}
    monkeypatch.setattr(verdicts, "_images", sets.get)
    chosen = [name for name in verdicts.make_jobs() if name.split(" / ")[2] == "0"]
    jobs = {name: verdicts.make_jobs()[name] for name in chosen if HALF in name or "blur" in name}
    cells = run_cells(tmp_path / "verdicts.json", verdicts.make_setup(), jobs)
    wrong = {name for name, cell in cells.items() if verdicts.is_wrong(cell)}
    assert {name for name in wrong if "too large" not in name} == set()
