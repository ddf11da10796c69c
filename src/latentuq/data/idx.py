"""The IDX format of the MNIST family: a magic number, big-endian sizes, then the values."""

import gzip
import io
import math
import struct
from pathlib import Path

import numpy as np

from latentuq.core.errors import UserError
from latentuq.core.reading import decoding, read_limited

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def parse_idx(content: bytes, name: str) -> np.ndarray:
    """Return the array held by uncompressed IDX bytes; `name` is what errors call them."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _DTYPES:
        raise UserError(f"{name} is not an IDX file.")
    dtype, ndim = np.dtype(_DTYPES[content[2]]), content[3]
    start = 4 + 4 * ndim
    if len(content) < start:
        raise UserError(f"{name} is truncated: its header is incomplete.")
    shape = struct.unpack(f">{ndim}I", content[4:start])
    # Python integers: a damaged header may announce more values than an int64 counts.
    expected = dtype.itemsize * math.prod(shape)
    if len(content) - start != expected:
        raise UserError(
            f"{name} is damaged: its header announces {expected} bytes of values "
            f"and {len(content) - start} follow."
        )
    with decoding(name, "an IDX file"):  # NumPy has no arrays of 65 axes.
        values = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="), copy=False)


def format_idx(*parts: np.ndarray) -> bytes:
    """Return the IDX bytes of arrays of 8-bit (or signed 16-bit) integers, one after the other.

    No copy is made of 8-bit values but the one that is returned.
    """
    code = {"uint8": 0x08, "int16": 0x0B}.get(str(parts[0].dtype))
    if code is None:
        raise UserError(f"IDX files are written from 8-bit values, not {parts[0].dtype}.")
    shape = (sum(map(len, parts)), *parts[0].shape[1:])
    header = struct.pack(f">BBBB{len(shape)}I", 0, 0, code, len(shape), *shape)
    return b"".join([header, *(np.ascontiguousarray(part, _DTYPES[code]).data for part in parts)])


def gunzip(content: bytes, name: str) -> bytes:
    """Return `content`, decompressed when it is gzip; `name` is what errors call it."""
    if content[:2] != b"\x1f\x8b":
        return content
    with decoding(name, "gzip"), gzip.open(io.BytesIO(content)) as file:
        return read_limited(file, name, many=True)


def read_idx(path: Path) -> np.ndarray:
    """Return the array held by an IDX file, gzipped or not."""
    with decoding(path, "an IDX file"):
        return parse_idx(gunzip(path.read_bytes(), str(path)), str(path))
