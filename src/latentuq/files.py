"""Writing files so that a reader sees the old one or the new one, never half of one."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from latentuq.errors import UserError


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
    target = Path(path)
    # The pid alone is not unique: two threads of one process may write the same file.
    beside = target.with_name(f".{target.stem}.{os.getpid()}-{secrets.token_hex(4)}{target.suffix}")
    try:
        if not target.parent.is_dir():
            raise UserError(f"Cannot write {target}: the folder {target.parent} does not exist.")
        if target.is_dir():
            raise UserError(f"Cannot write {target}: it is a folder.")
        yield beside
        _flush(beside)
        os.replace(beside, target)
    except OSError as error:
        # An error about some other file (a missing input, say) is not ours to explain.
        if error.filename is not None and Path(error.filename) not in (beside, target):
            raise
        raise UserError(f"Cannot write {target}: {_reason(error)}.") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


@contextlib.contextmanager
def staged_folder(path: Path, force: bool = False) -> Iterator[Path]:
    """Yield an empty folder beside `path` whose files move into `path` when the block succeeds.

    On any failure, an interrupt included, nothing is left of it and `path` is as it was. Files in
    `path` that have other names stay.

    Args:
        path: Where the files shall be; made if it is missing.
        force: Whether files of the same names may be replaced.

    Raises:
        UserError: `path` is not empty and force was not given, or cannot be written.
    """
    if path.exists() and not path.is_dir():
        raise UserError(f"Cannot write to {path}: it is a file, not a folder.")
    if path.is_dir() and any(path.iterdir()) and not force:
        raise UserError(f"{path} exists and is not empty; --force writes to it all the same.")
    beside = path.absolute().with_name(f".{path.absolute().name}.{secrets.token_hex(4)}")
    try:
        make_folder(beside)
        yield beside
        for source in sorted(beside.rglob("*")):
            target = path / source.relative_to(beside)
            if source.is_dir():
                make_folder(target)
            else:
                make_folder(target.parent)
                os.replace(source, target)
    except OSError as error:
        raise UserError(f"Cannot write to {path}: {_reason(error)}.") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def read_path(path: object) -> Path:
    """A path as users give it."""
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"A path is needed, not {path!r}.")
    return Path(path)


def make_folder(path: Path) -> None:
    """Makes a folder for output, if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The folder {path} cannot be made: {_reason(error)}.") from None


def _flush(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower().rstrip(".")
