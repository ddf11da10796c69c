"""Reading what anybody may have made: names, damaged files, and how much they may unpack to."""

import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from latentuq.core.errors import UserError

MOST_BYTES = 2**30
"""What one image, one array or one posterior may take in memory, unless the user allows more."""
SET_SHARE = 8
"""A data set may take this many times as much."""
VARIABLE = "LATENTUQ_MAX_BYTES"
"""The environment variable that allows more; `latentuq --max-bytes` sets it."""

_CHUNK = 2**20
_LONGEST_REASON = 300


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_path(path: object) -> Path:
    """A path as users give it: `~` is a home, and a name that no file can have is refused."""
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"A path is needed, not {path!r}.")
    found = Path(path)
    with suppress(RuntimeError):  # Where there is no such user, it is a name like any other.
        found = found.expanduser()
    try:
        found.exists()
    except OSError as error:
        raise UserError(f"{str(found)[:80]} cannot be used: {reason(error)}.") from None
    return found


def existing_file(path: object) -> Path:
    """Return `path` as a Path once it is known to be a file."""
    found = read_path(path)
    if not found.exists():
        raise UserError(f"There is no file {found}.")
    if not found.is_file():
        raise UserError(f"{found} is not a file.")
    return found


def reason(error: OSError) -> str:
    """What the system says, as the end of a sentence."""
    return (error.strerror or str(error) or type(error).__name__).lower().rstrip(".")


@contextmanager
def explaining(complaint: str) -> Iterator[None]:
    """Turns whatever is raised inside into one sentence: the complaint, a colon and the reason.

    Decoders stumble over damaged files in too many ways to list: struct.error, SyntaxError,
    zlib.error, RecursionError, MemoryError from an absurd header.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        words = " ".join(str(error).split()).replace(". ", "; ")[:_LONGEST_REASON]
        detail = words.rstrip(".") or type(error).__name__
        raise UserError(f"{complaint}: {detail}.") from error


def decoding(path: str | Path, kind: str) -> AbstractContextManager[None]:
    """Explains whatever a decoder raises on a damaged file in one sentence that names the file."""
    return explaining(f"Cannot read {path} as {kind}")


def most_bytes(many: bool = False) -> int:
    """The most that may be unpacked, for an image or, where there are many, for a data set."""
    text = os.environ.get(VARIABLE) or str(MOST_BYTES)
    if not text.isdecimal():
        raise UserError(f"{VARIABLE} is a number of bytes, not {text!r}.")
    return int(text) * (SET_SHARE if many else 1)


def check_size(size: int, name: str, many: bool = False) -> None:
    """Refuses what would take more memory than is allowed, before any of it is taken."""
    if size > (most := most_bytes(many)):
        enough = math.ceil(size / (SET_SHARE if many else 1))
        raise UserError(
            f"{name} takes {show_bytes(size)} of memory where {show_bytes(most)} are allowed;"
            f" `latentuq --max-bytes {enough}` or {VARIABLE} allows it."
        )


def check_unpacked(size: int, name: str, many: bool = False) -> None:
    """Refuses to unpack more than is allowed; nobody knows how much more would come."""
    if size > (most := most_bytes(many)):
        raise UserError(
            f"{name} unpacks to more than the {show_bytes(most)} that are allowed;"
            f" `latentuq --max-bytes` or {VARIABLE} allows more."
        )


def read_limited(file: _Stream, name: str, many: bool = False) -> bytes:
    """Reads a stream to its end, but refuses one that unpacks to more than is allowed."""
    content = bytearray()
    while chunk := file.read(_CHUNK):
        content += chunk
        check_unpacked(len(content), name, many)
    return bytes(content)


def show_bytes(size: int) -> str:
    """A number of bytes as people read it."""
    for unit, one in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= one:
            return f"{size // one if size >= 100 * one else round(size / one, 1):,} {unit}"
    return f"{size} bytes"
