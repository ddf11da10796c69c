import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from latentuq.core.errors import UserError
from latentuq.core.files import atomic_path, clear_unfinished, staged_folder


def test_success_replaces_the_file_and_leaves_nothing_else(tmp_path):
    target = tmp_path / "a.npz"
    target.write_text("old")
    with atomic_path(target) as beside:
        assert beside.parent == tmp_path
        assert beside.suffix == ".npz"
        beside.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.npz"]


def interrupted_write(target, failure):
    with atomic_path(target) as beside:
        beside.write_text("half")
        raise failure


@pytest.mark.parametrize("failure", [ValueError("x"), KeyboardInterrupt(), SystemExit(1)])
def test_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path, failure):
    target = tmp_path / "a.npz"
    target.write_text("old")
    with pytest.raises(type(failure)):
        interrupted_write(target, failure)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.npz"]


def test_full_disk_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match=r"a\.npz: no space left"), atomic_path(tmp_path / "a.npz"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert os.listdir(tmp_path) == []


def test_missing_folder_and_folder_in_the_way_are_user_errors(tmp_path):
    with pytest.raises(UserError, match="does not exist"), atomic_path(tmp_path / "no" / "a.npz"):
        pass
    with pytest.raises(UserError, match="is a folder"), atomic_path(tmp_path):
        pass


def test_errors_about_other_files_pass_through(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a.npz"):
        (tmp_path / "input").read_bytes()
    assert os.listdir(tmp_path) == []


def test_a_staged_folder_is_written_whole_or_not_at_all(tmp_path):
    with staged_folder(tmp_path / "new" / "report") as staged:
        (staged / "a.txt").write_text("a")
    assert (tmp_path / "new" / "report" / "a.txt").read_text() == "a"
    with pytest.raises(UserError, match="--force"), staged_folder(tmp_path / "new"):
        pass
    with (
        pytest.raises(UserError, match=r"^Cannot write .*: no space left"),
        staged_folder(tmp_path / "new", force=True) as staged,
    ):
        raise OSError(errno.ENOSPC, "No space left on device", str(staged / "b.txt"))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report"]
    for file in (tmp_path / "file", tmp_path / "file" / "below"):
        (tmp_path / "file").write_text("x")
        with pytest.raises(UserError, match="file is a file, not a folder"), staged_folder(file):
            pass


def write_old(folder):
    folder.mkdir()
    for name in ("report.html", "posterior.nc"):
        (folder / name).write_text("old")
    (folder / "figures").mkdir()
    (folder / "figures" / "mine.png").write_text("mine")
    (folder / "notes.txt").write_text("mine")
    (folder / "std.fits").write_text("old")


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


OLD = {
    "report.html": "old",
    "posterior.nc": "old",
    "std.fits": "old",
    "notes.txt": "mine",
    "figures/mine.png": "mine",
}
NEW = {
    "report.html": "new",
    "posterior.nc": "new",
    "notes.txt": "mine",
    "figures/mine.png": "mine",
    "figures/a.png": "new",
}
WRITE_NEW = """
import os, sys, time
from pathlib import Path
from latentuq.core.files import staged_folder

def write(folder):
    (folder / "figures").mkdir()
    for name in ("report.html", "posterior.nc", "figures/a.png"):
        (folder / name).write_text("new")
"""


def python(folder, program):
    return subprocess.Popen(
        [sys.executable, "-c", WRITE_NEW + program],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_folder_is_replaced_as_a_whole_and_keeps_what_is_not_ours(tmp_path):
    write_old(tmp_path / "report")
    inode = (tmp_path / "report" / "notes.txt").stat().st_ino
    with staged_folder(tmp_path / "report", True, ["posterior.nc", "std.fits"]) as staged:
        assert contents(tmp_path / "report") == OLD
        (staged / "figures").mkdir()
        for name in ("report.html", "posterior.nc", "figures/a.png"):
            (staged / name).write_text("new")
    assert contents(tmp_path / "report") == NEW
    assert (tmp_path / "report" / "notes.txt").stat().st_ino == inode
    assert os.listdir(tmp_path) == ["report"]


def test_what_is_in_the_way_is_named_and_stays(tmp_path):
    write_old(tmp_path / "report")
    for name, kind in (("figures", "folder"), ("notes.txt", "file")):
        before = contents(tmp_path / "report")
        with (
            pytest.raises(UserError, match=rf"Cannot write .*{name}: it is a {kind}\."),
            staged_folder(tmp_path / "report", force=True) as staged,
        ):
            (staged / name).write_text("x") if kind == "folder" else (staged / name).mkdir()
        assert contents(tmp_path / "report") == before
        assert os.listdir(tmp_path) == ["report"]


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "here").symlink_to("there")
    with staged_folder(tmp_path / "here") as staged:
        (staged / "a").write_text("a")
    assert (tmp_path / "here").is_symlink()
    assert (tmp_path / "there" / "a").read_text() == "a"


def test_the_folder_one_stands_in_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    for name in (".", "..", str(tmp_path)):
        with (
            pytest.raises(UserError, match="name one inside it"),
            staged_folder(Path(name), force=True),
        ):
            pass


# Every step at which something moves: a process that is killed there leaves the old folder, or the
# new one, or one that the next run finds.
@pytest.mark.parametrize("step", range(5))
def test_a_killed_run_leaves_one_report_and_the_next_clears_up(tmp_path, step):
    write_old(tmp_path / "report")
    program = f"""
steps = {step}
def fatal(function):
    def call(*args, **kwargs):
        global steps
        if steps == 0:
            os.kill(os.getpid(), 9)
        steps -= 1
        return function(*args, **kwargs)
    return call
import shutil
with staged_folder(Path("report"), True, ["std.fits"]) as staged:
    write(staged)
    os.rename, os.link, shutil.rmtree = map(fatal, (os.rename, os.link, shutil.rmtree))
"""
    process = python(tmp_path, program)
    _, err = process.communicate()
    assert process.returncode == -9, err
    # Two files to link, two renames, one folder to remove.
    if step != 3:
        assert contents(tmp_path / "report") == (OLD if step < 3 else NEW)
    else:
        assert not (tmp_path / "report").exists()
    before = os.listdir(tmp_path)
    assert len(before) > 1
    with (
        pytest.raises(UserError, match="not empty"),
        staged_folder(tmp_path / "report"),
    ):
        pass
    assert contents(tmp_path / "report") == (OLD if step <= 3 else NEW)
    assert os.listdir(tmp_path) == ["report"]


def test_of_two_runs_at_once_one_is_refused(tmp_path):
    program = """
try:
    with staged_folder(Path("new/report"), force=True) as staged:
        write(staged)
        print("in", flush=True)
        sys.stdin.readline()
    print("done")
except ValueError as error:
    print(type(error).__name__, error)
"""
    first = python(tmp_path, program)
    assert first.stdout.readline() == "in\n"
    second = python(tmp_path, program)
    out, err = second.communicate()
    assert "UserError Another process is writing" in out, out + err
    assert "report: wait for it, or name another place." in out
    out, err = first.communicate("\n")
    assert out == "done\n", err
    assert set(contents(tmp_path / "new")) == {
        f"report/{name}" for name in NEW if NEW[name] == "new"
    }
    # The lock of a run that is killed goes with it.
    third = python(tmp_path, program)
    assert third.stdout.readline() == "in\n"
    third.kill()
    third.communicate()
    assert len(os.listdir(tmp_path / "new")) == 3
    with staged_folder(tmp_path / "new" / "report", force=True):
        pass
    assert os.listdir(tmp_path / "new") == ["report"]


def test_many_runs_take_turns(tmp_path):
    # Whoever gets the lock while others give theirs back is alone all the same.
    program = """
from latentuq.core.files import exclusive
from latentuq.core.errors import UserError
inside = 0
while inside < 50:
    try:
        with exclusive(Path("a").absolute()):
            os.close(os.open("alone", os.O_CREAT | os.O_EXCL))
            os.unlink("alone")
            inside += 1
    except UserError:
        pass
"""
    runs = [python(tmp_path, program) for _ in range(3)]
    for run in runs:
        _, err = run.communicate()
        assert run.returncode == 0, err


def test_what_a_killed_write_left_is_cleared(tmp_path):
    left = tmp_path / ".model.123-0123abcd.safetensors"
    other = tmp_path / ".model.notes.safetensors"
    for path in (left, other):
        path.write_text("half")
    clear_unfinished(tmp_path / "model.safetensors")
    assert os.listdir(tmp_path) == [other.name]
