import errno
import os

import pytest

from latentuq.core.errors import UserError
from latentuq.core.files import atomic_path, staged_folder


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
