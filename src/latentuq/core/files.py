"""Writing files so that a reader sees the old one or the new one, never half of one."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from latentuq.core.cleaning import cleaning
from latentuq.core.errors import UserError


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


@contextlib.contextmanager
def staged_folder(
    path: Path, force: bool = False, replaced: Collection[str] = ()
) -> Iterator[Path]:
    """Yield an empty folder whose files move into `path` when the block succeeds.

    On any failure in the block, an interrupt included, nothing is left of it and `path` is as it
    was. Files in `path` that have other names stay.

    Args:
        path: Where the files shall be; made if it is missing.
        force: Whether files of the same names may be replaced.
        replaced: Names in `path` that belong to the writer: they go even if not written anew.

    Raises:
        UserError: `path` is not empty and force was not given, or cannot be written.
    """
    if path.is_dir() and any(path.iterdir()) and not force:
        raise UserError(f"{path} exists and is not empty; --force (force=True) writes to it.")
    # In the folder, or else in the nearest that exists: a rename must not cross file systems.
    whole = path.absolute()
    home = next(each for each in (whole, *whole.parents) if each.exists())
    if not home.is_dir():
        raise UserError(f"Cannot write to {path}: {home} is a file, not a folder.")
    beside = home / f".{whole.name}.{secrets.token_hex(4)}"
    with cleaning(lambda: shutil.rmtree(beside, ignore_errors=True)), _explaining(path, beside):
        beside.mkdir()
        yield beside
        _settle(beside, path, replaced)


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
        raise UserError(f"Cannot write {path}: {_reason(error)}.") from error


def _settle(source: Path, target: Path, replaced: Collection[str]) -> None:
    """Moves files from one folder to another, once it is known that nothing is in the way."""
    files = {file.relative_to(source): file for file in source.rglob("*") if file.is_file()}
    for name in files:
        if (target / name).is_dir():
            raise UserError(f"Cannot write {target / name}: it is a folder.")
    for name in replaced:
        if Path(name) not in files:
            (target / name).unlink(missing_ok=True)
    for name, file in sorted(files.items()):
        make_folder((target / name).parent)
        os.replace(file, target / name)


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


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower().rstrip(".")
