"""`python -m studies`: the one way in, from any folder."""

import os
import shutil
import subprocess
import sys

import pytest

import commands
from latentuq.core.cells import read_cells
from studies import inference, page, priors, references, reports, scale, verdicts
from studies.__main__ import MEASURED, main
from studies.commits import commits
from studies.pages import RESULTS, ROOT, fill_page, rows


def run(*arguments, cwd):
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "studies", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_the_studies_are_listed_with_a_sentence_each(tmp_path):
    code, out, _ = run(cwd=tmp_path)
    assert code == 0
    for name in (*MEASURED, "bench", "calibration", "memory", "reproduce", "classifier"):
        assert f" {name} " in out
    for sentence in MEASURED.values():
        assert sentence in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["bench", "--methods", "magic"], "There is no 'magic' to compare; there are latentuq,"),
        (["bench", "--corruptions", "fog"], "There is no 'fog' to compare; there are sparse95,"),
        (["bench", "--references", "nowhere"], "There is no file nowhere."),
        (["bench", "--write", "-o", "nowhere"], "nowhere/bench.json is not a file of saved"),
        (["calibration", "--write", "-o", "."], "There are no rows of a study"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments, message, tmp_path, monkeypatch, capsys
):
    code, out, err = commands.call(monkeypatch, capsys, tmp_path, *arguments, main=main)
    assert code == 2
    assert out == ""
    assert err.startswith(f"studies: {message}")
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_page_is_written_from_what_was_measured(tmp_path):
    shutil.copy(RESULTS / "bench.json", tmp_path)
    arguments = ["--methods", "all", "--repeats", "5", "--scaling"]
    code, out, err = run("bench", *arguments, "--write", "-o", ".", cwd=tmp_path)
    assert code == 0, err
    assert out == "Wrote bench.md\n"
    written = (tmp_path / "bench.md").read_text().replace(" -o .", "")
    assert written == (RESULTS / "bench.md").read_text()


@pytest.mark.parametrize("study", [inference, page, priors, references, reports, scale, verdicts])
def test_published_pages_say_what_was_measured(study):
    name = study.__name__.removeprefix("studies.")
    cells = read_cells(RESULTS / f"{name}.json", study.make_setup())
    assert {*cells} == {*study.make_jobs()}
    values = {"commits": commits(cells.values()), **study.make_values(cells)}
    assert fill_page(name, values) == (RESULTS / f"{name}.md").read_text()


def test_what_is_missing_in_a_row_is_empty():
    found = [{"a": 1.25, "b": None}, {"a": float("nan")}]
    assert rows("{a:.1f} | {b:.2f}", found) == "| 1.2 |  |\n|  |  |"


def test_a_section_without_rows_is_left_out():
    values = {"command": "c", "page": "p", "folder": "f", "models": "m"}
    for name in ("simulated", "real", "methods"):
        values |= {name: "", f"{name.rstrip('s')}_commits": "commit 1"}
    values |= {"simulated_commits": "commit 1", "methods": "| a | b |"}
    page = fill_page("calibration", values)
    assert "| a | b |" in page
    assert page.count("## ") == 1
    assert "png" not in page
