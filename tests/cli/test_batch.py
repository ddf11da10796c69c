"""`latentuq batch` and `latentuq report` as a person uses them, in the process of the test."""

import functools
import json
import re
import sys

import jax
import numpy as np
import pytest

import commands
import latentuq as lu
from latentuq.core.files import exclusive
from latentuq.prior.model_file import load_prior
from latentuq.problem.specification import Specification
from latentuq.survey.run import RESUMABLE
from surveys import FLAGS, SHAPE, assert_same, faked, load, noisy_images

pytest.importorskip("zarr")


@pytest.fixture(scope="module")
def answer(model, tiny_images):
    operator, noise = Specification.from_flags(FLAGS).build(SHAPE)
    problem = lu.InverseProblem(load_prior(model), operator, noise, noisy_images(tiny_images, 1)[0])
    return lu.solve(jax.random.key(0), problem, budget="preview")


@pytest.fixture
def call(monkeypatch, capsys, tmp_path, model, tiny_images, answer):
    """Calls the command in a folder with seven images, of which one is bad; solving is quick."""
    bad = noisy_images(tiny_images, 7)
    bad[1] = np.nan
    np.save(tmp_path / "y.npy", bad)
    monkeypatch.setattr("latentuq.app.solving.solve", faked(answer))
    call = functools.partial(commands.call, monkeypatch, capsys, tmp_path)

    def run(command, *arguments):
        # What is said last holds.
        usual = ("--model", model, "--budget", "preview", "--workers", "0")
        return call(command, *(usual if command == "batch" else ()), *arguments)

    return run


GIVEN = ("y.npy", "-o", "out.zarr", "--mask", "columns:4-5", "--noise", "0.1", "--chunk", "3")


def test_a_survey_ends_with_its_store_and_its_page(call, tmp_path):
    code, out, err = call("batch", *GIVEN)
    assert code == 0, err
    first, store, page = out.splitlines()
    pattern = (
        r"7 of 7 images(, .* per second, 0 s left)?: (\d) reliable, (\d) unreliable, 1 failed\."
    )
    counts = re.fullmatch(pattern, first)
    assert counts, first
    assert int(counts[2]) + int(counts[3]) == 6
    assert (store, page) == ("Store: out.zarr", "Page: out.zarr/summary.html")
    assert (tmp_path / "out.zarr" / "summary.html").is_file()
    messages = ["Reading the survey.", "Solving in this process.", "Writing the page."]
    lines = err.splitlines()
    assert [line.split(" s  ")[1] for line in lines if not re.search(r"\d of 7", line)] == messages
    assert all(re.match(r" *\d+\.\d s  ", line) for line in lines)
    found = load(tmp_path / "out.zarr")
    command = json.loads(found.attrs["provenance"])["command"]
    assert command.startswith("latentuq batch ")
    assert " y.npy -o out.zarr --mask columns:4-5 " in command


def test_progress_for_machines(call, tmp_path):
    code, out, err = call("batch", *GIVEN, "--json")
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (lines[-1]["store"], lines[-1]["page"]) == ("out.zarr", "out.zarr/summary.html")
    assert (lines[-1]["done"], lines[-1]["images"], lines[-1]["failed"]) == (7, 7, 1)
    for line in lines:
        assert line["done"] == line["reliable"] + line["unreliable"] + line["failed"]
        assert {"message", "seconds", "rate", "seconds_left"} <= line.keys()
    assert [line["message"] for line in lines[:2]] == [
        "Reading the survey.", "Solving in this process."
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("y.npy",), "Missing option '-o' / '--output'"),
        (("-o", "out.zarr"), "Missing argument 'INPUT'"),
        ((*GIVEN, "--chunk", "0"), "'--chunk'"),
        ((*GIVEN, "--draws", "-1"), "'--draws'"),
        ((*GIVEN, "--seed", "-1"), "'--seed'"),
        ((*GIVEN, "--nonsense"), "No such option: --nonsense"),
        ((*GIVEN, "--resume", "--force"), "not both"),
        ((*GIVEN, "--scheduler", "tcp://127.0.0.1:9"), "leave out --workers"),
        ((*GIVEN, "--budget", "huge"), "The budget is one of preview, default, thorough"),
        ((*GIVEN, "--model", "nothing"), "There is no model 'nothing'"),
        (("missing.npy", *GIVEN[1:]), "There is no file missing.npy"),
        ((*GIVEN, "--variance", "1"), "not both"),
        ((*GIVEN, "--corrupt", "--noise", "auto"), "known level"),
        ((*GIVEN, "-o", "."), ". is read from too: name another place for the store"),
        ((*GIVEN, "-o", "y.npy/out.zarr"), "y.npy"),
        ((*GIVEN, "-o", 300 * "a"), "file name too long"),
        ((*GIVEN, "-o", "/"), "/ is no place for a store"),
    ],
)
def test_usage_errors_are_one_sentence_and_leave_nothing(call, tmp_path, arguments, words):
    code, out, err = call("batch", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    last = err.splitlines()[-1]
    assert last.startswith("latentuq: ")
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["y.npy"]


@pytest.mark.slow
def test_what_is_there_is_refused_gone_on_with_or_replaced(call, tmp_path):
    assert call("batch", *GIVEN)[0] == 0
    first = load(tmp_path / "out.zarr")
    code, _, err = call("batch", *GIVEN)
    assert code == 2
    assert err.splitlines()[-1] == (
        "latentuq: out.zarr exists; --resume goes on with it, --force begins anew."
    )
    with exclusive(tmp_path / "out.zarr"):
        code, _, err = call("batch", *GIVEN, "--resume")
    assert code == 2
    assert "Another process is writing" in err
    marker = tmp_path / "out.zarr" / ".run" / "00000001.done"
    marker.write_text("{")
    code, _, err = call("batch", *GIVEN, "--resume")
    assert code == 2
    assert err.splitlines()[-1].startswith(f"latentuq: {tmp_path / 'out.zarr'}"[:10])
    assert "00000001.done is damaged: remove it, and --resume solves its images anew" in err
    marker.unlink()
    code, out, _ = call("batch", *GIVEN, "--resume", "--json")
    assert code == 0
    done = [json.loads(line)["done"] for line in out.splitlines()]
    assert done[1] == 4, "two of three chunks were there"
    assert_same(first, load(tmp_path / "out.zarr"))
    code, _, err = call("batch", *GIVEN, "--resume", "--seed", "1")
    assert code == 2
    assert "seed was 0 and is 1 now" in err
    assert call("batch", *GIVEN, "--force", "--seed", "1")[0] == 0


@pytest.mark.parametrize(
    ("package", "sentence"),
    [
        ("zarr", "A survey needs Zarr and Dask: install them with pip install latentuq[batch]."),
        ("distributed", "Workers need Dask: install it with pip install latentuq[batch], or"),
    ],
)
def test_packages_that_are_missing_are_one_sentence(call, monkeypatch, package, sentence):
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, package, None)
        code, out, err = call("batch", *GIVEN, "--workers", "1")
        assert (code, out) == (2, "")
        assert err.splitlines()[-1].startswith(f"latentuq: {sentence}")
        assert (call("batch", *GIVEN, "--resume")[0] == 0) == (package != "zarr")


def test_a_run_that_must_stop_says_how_to_go_on(call, monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("latentuq.survey.store.Store._reach_disk", refuse)
        code, _, err = call("batch", *GIVEN)
    assert code == 2
    assert err.splitlines()[-1].endswith(f"no space left on device. {RESUMABLE}")
    assert call("batch", *GIVEN, "--resume")[0] == 0


def test_an_interrupt_says_how_to_go_on(call, monkeypatch, tmp_path, capsys):
    from latentuq.survey import run

    class Interrupted(BaseException):
        """What ends a process in the middle, which would be the test's own."""

    def end():
        raise Interrupted

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run, "write_page", interrupt)
        patched.setattr("latentuq.cli.is_interrupted", lambda: True)
        patched.setattr("latentuq.cli.end_interrupted", end)
        with pytest.raises(Interrupted):
            call("batch", *GIVEN)
    assert f"latentuq: {RESUMABLE}\n" in capsys.readouterr().err
    with monkeypatch.context() as patched:
        patched.setattr(run, "plan_store", interrupt)
        patched.setattr("latentuq.cli.is_interrupted", lambda: True)
        patched.setattr("latentuq.cli.end_interrupted", end)
        with pytest.raises(Interrupted):
            call("batch", *GIVEN)
    assert RESUMABLE not in capsys.readouterr().err, "nothing has been begun"


@pytest.mark.slow
def test_a_report_is_made_later(call, tmp_path, model):
    assert call("batch", *GIVEN)[0] == 0
    row = load(tmp_path / "out.zarr").isel(image=2)
    code, out, err = call("report", "out.zarr", "--image", "2")
    assert code == 0, err
    folder = tmp_path / "out.zarr-2-report"
    assert out.splitlines()[-1] == "Report: out.zarr-2-report/report.html"
    assert (folder / "report.html").is_file()
    facts = json.loads((folder / "summary.json").read_text())
    assert facts["log_evidence"] == pytest.approx(float(row["log_evidence"]))
    assert facts["command"] == "latentuq report out.zarr --image 2"
    code, _, err = call("report", "out.zarr", "--image", "2")
    assert code == 2
    assert "--force" in err
    code, out, _ = call("report", "out.zarr", "--image", "2", "--force", "--json", "--samples", "7")
    assert code == 0
    assert json.loads(out)["status"] == row["status"]


def test_what_cannot_be_reported_is_one_sentence(call, tmp_path):
    assert call("batch", *GIVEN)[0] == 0
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.iterdir())
    for arguments, words in (
        (("out.zarr", "--image", "7"), "has images 0 to 6, but no 7"),
        (("out.zarr", "--image", "1"), "has no answer: The image holds nothing but missing"),
        (("out.zarr", "--image", "-1"), "'--image'"),
        (("out.zarr",), "Missing option '--image'"),
        (("missing.zarr", "--image", "0"), "There is no folder missing.zarr"),
        (("empty", "--image", "0"), "is not a store that latentuq batch has made"),
        (("y.npy", "--image", "0"), "is not a store that latentuq batch has made"),
        (("out.zarr", "--image", "0", "--model", "mnist"), "is not the prior of"),
        (("out.zarr", "--image", "0", "--samples", "0"), "'--samples'"),
    ):
        code, out, err = call("report", *arguments)
        assert (code, out) == (2, ""), arguments
        assert words in err
        assert "Traceback" not in err
    assert sorted(tmp_path.iterdir()) == before
