"""The user's cache directory, and files in it that are verified by their checksum."""

import hashlib
import os
import sys
from pathlib import Path

from latentuq.core.errors import UserError
from latentuq.core.files import write_file
from latentuq.core.reading import read_path


def cache_dir() -> Path:
    """Return the cache directory: `LATENTUQ_CACHE`, or the platform's convention."""
    if override := os.environ.get("LATENTUQ_CACHE"):
        return read_path(override)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "latentuq"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        return Path(local) / "latentuq" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "latentuq"
    return Path.home() / ".cache" / "latentuq"


def md5(content: bytes) -> str:
    """Return the MD5 of `content` in hexadecimal: it names published files, it secures nothing."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def read_verified(path: Path, checksum: str) -> bytes | None:
    """Return the content of `path`, or None when it is missing or its MD5 is another."""
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from error
    return content if md5(content) == checksum else None


def store(path: Path, content: bytes) -> None:
    """Write `content` to `path` in one step, making its folder first."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"Cannot make the cache folder {path.parent} ({error.strerror}); "
            "set LATENTUQ_CACHE to a folder that can be written."
        ) from error
    write_file(path, content)
