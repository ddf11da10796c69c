"""Writing files and folders so that a reader sees the old or the new one, never half of one."""

import contextlib
import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from latentuq.core.cleaning import cleaning
from latentuq.core.errors import UserError
from latentuq.core.reading import read_path, reason

# What systems answer when another process holds a lock.
_HELD = (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary sibling of `path` that takes its place when the block succeeds.

    The sibling keeps the suffix of `path`, so writers that choose a format by suffix work on it.
    On any failure, an interrupt included, the sibling is removed and `path` is left as it was.

    Args:
        path: The file to write; its folder must exist.

    Raises:
        UserError: The file system refused, for instance a full disk or a read-only folder.
    """
    target = read_path(path)
    # The pid alone is not unique: two threads of one process may write the same file.
    beside = target.with_name(f".{target.stem}.{os.getpid()}-{secrets.token_hex(4)}{target.suffix}")
    if not target.parent.is_dir():
        raise UserError(f"Cannot write {target}: the folder {target.parent} does not exist.")
    if target.is_dir():
        raise UserError(f"Cannot write {target}: it is a folder.")

    def clean() -> None:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)

    with cleaning(clean), _explaining(target, beside):
        yield beside
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(beside, target)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Writes a whole file by `atomic_path`; text is written as UTF-8."""
    with atomic_path(path) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def staged_folder(
    path: Path, force: bool = False, replaced: Collection[str] = ()
) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `path` as a whole when the block succeeds.

    On any failure in the block, an interrupt included, nothing is left of it and `path` is as it
    was. Files in `path` that have other names are taken over. Two processes that write to the same
    folder exclude each other, and what a killed one left beside it goes with the next.

    Args:
        path: The folder; its parents are made if they are missing.
        force: Whether the folder may hold files already.
        replaced: Names in `path` that belong to the writer: they go even if not written anew.

    Raises:
        UserError: `path` is not empty and force was not given, or cannot be written, or another
            process writes to it.
    """
    # Resolved: a link to a folder stays, the folder that it leads to is replaced.
    target = read_path(path).resolve()
    new, old = (target.with_name(f".{target.name}.latentuq-{which}") for which in ("new", "old"))
    _check_replaceable(target, path)
    with _parents_of(target), exclusive(target):
        _clear(target, new, old)
        if target.is_dir() and any(target.iterdir()) and not force:
            raise UserError(
                f"{path} exists and is not empty; --force (in Python force=True) writes to it all"
                " the same."
            )
        if target.exists() and not target.is_dir():
            raise UserError(f"Cannot write to {path}: {target} is a file, not a folder.")
        # What was set aside comes back, unless the new folder is in place.
        with cleaning(lambda: _clear(target, new, old)), _explaining(target, new):
            new.mkdir()
            yield new
            if target.is_dir():
                _take_over(target, new, replaced)
                os.rename(target, old)
            os.rename(new, target)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Lets one process at a time write `path`, by a lock that ends with its process.

    Args:
        path: What is written; its folder must exist.

    Raises:
        UserError: Another process holds the lock.
    """
    lock = path.with_name(f".{path.name}.lock")
    with _explaining(path, lock):
        handle = _open_locked(lock, path)
    try:
        with cleaning(lambda: lock.unlink(missing_ok=True)):
            yield
    finally:
        os.close(handle)


def clear_unfinished(path: Path) -> None:
    """Removes what killed processes left of `atomic_path(path)`; call it in `exclusive(path)`."""
    ours = re.compile(rf"\.{re.escape(path.stem)}\.\d+-[0-9a-f]{{8}}{re.escape(path.suffix)}")
    for each in path.parent.iterdir():
        if ours.fullmatch(each.name):
            each.unlink(missing_ok=True)


def _open_locked(lock: Path, path: Path) -> int:
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _take_lock(handle)
        except OSError as error:
            if error.errno in _HELD:
                os.close(handle)
                raise UserError(
                    f"Another process is writing {path}: wait for it, or name another place."
                ) from None
            # This file system knows no locks: better without one than not at all.
        # Whoever held the lock before has removed the file, and a third may have made another.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(lock)):
                return handle
        os.close(handle)


def _take_lock(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def _parents_of(target: Path) -> Iterator[None]:
    """Makes the folders above `target`; those that it made go again on failure."""
    missing = [each for each in target.parents if not each.exists()]
    present = next(each for each in target.parents if each.exists())
    if not present.is_dir():
        raise UserError(f"Cannot write to {target}: {present} is a file, not a folder.")

    def remove_empty() -> None:
        for each in missing:
            with contextlib.suppress(OSError):
                each.rmdir()

    make_folder(target.parent)
    with cleaning(remove_empty):
        yield


def _clear(target: Path, new: Path, old: Path) -> None:
    """Removes what lies beside `target`, and puts a folder back that was only set aside."""
    shutil.rmtree(new, ignore_errors=True)
    if old.is_dir() and not target.exists():
        os.rename(old, target)
    shutil.rmtree(old, ignore_errors=True)


def _check_replaceable(target: Path, path: Path) -> None:
    """Refuses folders that cannot be renamed, and those that somebody stands in."""
    fixed = os.path.ismount(target) or not os.access(target.parent, os.W_OK)
    if target.is_dir() and (fixed or target in (Path.cwd(), *Path.cwd().parents)):
        raise UserError(
            f"The folder {path} cannot be replaced as a whole: name one inside it, such as"
            f" {path / 'report'}."
        )


def _take_over(target: Path, new: Path, replaced: Collection[str]) -> None:
    """Links into `new` whatever `target` holds besides what `new` replaces."""
    for file in new.rglob("*"):
        there = target / file.relative_to(new)
        if there.exists() and there.is_dir() != file.is_dir():
            kind = "a folder" if there.is_dir() else "a file"
            raise UserError(f"Cannot write {there}: it is {kind}.")

    def skip(folder: str, names: list[str]) -> list[str]:
        here = Path(folder)
        staged = new / here.relative_to(target)
        return [
            name
            for name in names
            if (here == target and name in replaced) or (staged / name).is_file()
        ]

    shutil.copytree(target, new, True, skip, _link, dirs_exist_ok=True)


def _link(source: str, destination: str) -> None:
    """Both folders hold the same file, so that it is never lost; a copy where links are unknown."""
    try:
        os.link(source, destination, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, destination, follow_symlinks=False)


@contextlib.contextmanager
def _explaining(path: Path, beside: Path) -> Iterator[None]:
    """Says in one sentence why `path`, or what is written beside it first, cannot be written."""
    try:
        yield
    except OSError as error:
        # An error about some other file (a missing input, say) is not ours to explain.
        if error.filename is not None:
            place = Path(error.filename).absolute()
            if not {path.absolute(), beside.absolute()} & {place, *place.parents}:
                raise
        raise UserError(f"Cannot write {path}: {reason(error)}.") from error


def make_folder(path: Path) -> None:
    """Makes a folder for output, if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The folder {path} cannot be made: {reason(error)}.") from None
