"""Writing files so that a reader sees the old one or the new one, never half of one."""

import contextlib
import os
import secrets
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
