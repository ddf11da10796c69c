"""Many images in one file or folder, of which only those that are asked for are read."""

import hashlib
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from latentuq.core.errors import UserError
from latentuq.core.reading import check_size, existing_file, explaining, read_path
from latentuq.core.text import show_size
from latentuq.data.array_files import ARRAY_SUFFIXES, Values, find_opener
from latentuq.data.images import (
    IMAGE_SUFFIXES,
    TIFF_SUFFIXES,
    count_pages,
    image_files,
    image_suffix,
    read_array,
    real_values,
    refuse_part,
    split_extension,
)

_BLOCK_BYTES = 2**24
"""How much is read at once where all images pass through memory."""


@dataclass(frozen=True, eq=False)
class Stack:
    """Images that are read one at a time or a few at a time; `open_stack` makes it.

    `stack[i]` is one image in the units and the precision of its file; NaN marks missing pixels.
    Threads and processes that read at the same time open it anew, which costs little.

    Attributes:
        source: What the user named.
        values: The images, counted along the first axis.
        shape: The shape of one image, as its file has it; in a folder, of the first readable one.
        dtype: The type of its values, in native byte order.
        together: How many images are stored as one piece, which is unpacked for any of them.
            Whoever reads ranges of so many, from multiples of it on, unpacks nothing twice.
        names: The file or page of each image, if each has its own.
        files: The files that hold these.
    """

    source: str
    values: Values
    shape: tuple[int, ...]
    dtype: np.dtype
    together: int = 1
    names: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def __len__(self) -> int:
        return self.values.shape[0]

    def __getitem__(self, index: int) -> np.ndarray:
        index = range(len(self))[index]
        return self._read(index, index + 1)[0]

    def read(self, start: int, stop: int) -> np.ndarray:
        """The images from `start` to before `stop` as one array."""
        start, stop, _ = slice(start, stop).indices(len(self))
        if stop <= start:
            return np.empty((0, *self.shape), self.dtype)
        check_size((stop - start) * self._image_bytes, self.source, many=True)
        return self._read(start, stop)

    def name(self, index: int) -> str:
        """What messages call an image, such as `007.png` or `survey.npy[7]`."""
        index = range(len(self))[index]
        if self.names:
            return Path(self.names[index]).name
        path, part = split_extension(self.source)
        return f"{path.name}{'' if part is None else f'[{part}]'}[{index}]"

    def checksum(self) -> str:
        """SHA-256 of the type, shape and values of an array, or of the files of pictures.

        A copy of the file or folder has the same. Everything is read, but little at a time.
        """
        if self.files:
            return _hash_files(self.files)
        stored = self.dtype.newbyteorder("<")
        digest = hashlib.sha256(f"{stored.str}{(len(self), *self.shape)}".encode())
        step = self.together * max(1, _BLOCK_BYTES // (self.together * self._image_bytes))
        for start in range(0, len(self), step):
            block = self._read(start, min(start + step, len(self)))
            digest.update(np.ascontiguousarray(block, stored).data)
        return digest.hexdigest()

    @property
    def _image_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)

    def _read(self, start: int, stop: int) -> np.ndarray:
        with explaining(f"Cannot read images {start} to {stop - 1} of {self.source}"):
            # Neither a map of the file nor a view of what the stack holds.
            block = np.require(self.values[start:stop], requirements=("OWNDATA", "WRITEABLE"))
            return real_values(block, self.source)


def open_stack(path: str | os.PathLike[str], channels: bool = False) -> Stack:
    """Opens a file or folder of many images, of which hardly anything is read yet.

    Args:
        path: A `.npy`, `.npz`, NetCDF (`.nc`), FITS, TIFF or IDX file, a Zarr store or a folder of
            images. The first axis of an array counts its images, all others are theirs.
            `a.npz[images]`, `a.nc[flux]`, `a.zarr[flux]` and `a.fits[1]` choose one array of
            several.
        channels: Whether pictures in colour (in a folder or TIFF) keep red, green and blue instead
            of being reduced to grey; arrays are always left as they are.

    Raises:
        UserError: There is nothing, or it is damaged, or it holds no images, or several arrays.
    """
    found, part = split_extension(read_path(path))
    if not found.is_dir():
        existing_file(found)
    if opener := find_opener(found):
        values, together = opener(found, part)
        return stack_of(values, str(path), together)
    if not found.is_dir() and image_suffix(found) not in TIFF_SUFFIXES:
        known = ", ".join((*ARRAY_SUFFIXES, *TIFF_SUFFIXES))
        raise UserError(
            f"{found} does not hold many images: give a folder of images, a Zarr store, an IDX file"
            f" or a file whose name ends in {known}."
        )
    refuse_part(found, part)
    return _open_pictures(found, channels)


def stack_of(values: Values, source: str, together: int = 1) -> Stack:
    """Makes a stack of an array once it is known to be one of images.

    Args:
        values: The array, in memory or in a file.
        source: What the user named.
        together: How many images the file stores as one piece.
    """
    shape = tuple(values.shape)
    # A damaged header may announce more images than can be counted.
    if not 2 <= len(shape) <= 4 or 0 in shape or shape[0] > sys.maxsize:
        raise UserError(
            f"{source} has shape {shape} where (n, height, width), (n, height, width, channels) or"
            " (n, length) is expected."
        )
    native = real_values(np.empty(0, values.dtype), source).dtype
    check_size(native.itemsize * math.prod(shape[1:]), f"An image of {source}")
    return Stack(source, values, shape[1:], native, together)


def _open_pictures(path: Path, channels: bool) -> Stack:
    """A stack of the pictures in a folder, or of the pages of a file."""
    files = tuple(image_files(path) if path.is_dir() else [path])
    names = tuple(map(str, files))
    if not path.is_dir() and (pages := count_pages(path)) > 1:
        names = tuple(f"{path}[{page}]" for page in range(pages))
    failure = UserError(f"The folder {path} holds no {', '.join(IMAGE_SUFFIXES)} images.")
    for name in names:
        try:
            first = read_array(name, channels)
        except UserError as error:
            failure = error if name == names[0] else failure
            continue
        values = _Pictures(names, channels, (len(names), *first.shape), first.dtype)
        return Stack(str(path), values, first.shape, first.dtype, names=names, files=files)
    raise failure


@dataclass(frozen=True)
class _Pictures:
    """Images that `read_array` finds by their names; the first tells shape and type of all."""

    names: tuple[str, ...]
    channels: bool
    shape: tuple[int, ...]
    dtype: np.dtype

    def __getitem__(self, key: slice) -> np.ndarray:
        images = [read_array(name, self.channels) for name in self.names[key]]
        for name, image in zip(self.names[key], images, strict=True):
            if (image.shape, image.dtype) != (images[0].shape, images[0].dtype):
                raise UserError(
                    f"{name} holds {show_size(image.shape)} {image.dtype} values where others hold"
                    f" {show_size(images[0].shape)} {images[0].dtype} values, which makes no one"
                    " array: read them one by one."
                )
        return np.stack(images)


def _hash_files(files: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for path in files:
        with explaining(f"Cannot read {path}"), path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        # A file that is alone may be called anything.
        name = path.name if len(files) > 1 else ""
        digest.update(f"{content} {name}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()
