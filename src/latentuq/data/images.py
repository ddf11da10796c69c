"""Single images from files: PNG, JPEG, WebP, TIFF, NumPy and FITS."""

import gzip
import io
import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from latentuq.core.errors import UserError
from latentuq.core.reading import check_size, decoding, existing_file, read_limited
from latentuq.data.numpy_files import read_npy, read_npz

# The shares of red, green and blue in grey; for whole numbers in units of 1 / 65536, as Pillow has
# them.
_LUMA = np.array([0.299, 0.587, 0.114])
_WHOLE_LUMA = np.array([19595, 38470, 7471])
_GREY_MODES = ("L", "I", "F", "I;16", "I;16B", "I;16L", "I;16N")
_ARRAYS = (".npy", ".npz")
_PILLOW_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF")
# What a pixel takes when it is computed with.
_PIXEL_BYTES = 8
_GZIP = b"\x1f\x8b"
# Pillow's limit belongs to the process: of two threads the second would restore the wrong one.
_LIMIT_LOCK = threading.Lock()


def read_image(path: str | os.PathLike[str]) -> np.ndarray:
    """Return the one image a file holds, as a 2-D array in the file's own units and precision.

    Colour (in arrays: a last axis of 3 or 4) is reduced to grey with a warning. NaN is kept: it
    marks missing pixels.

    Args:
        path: A `.png`, `.jpg`, `.webp`, `.tif`, `.npy`, `.npz` (one array, or an entry `image`),
            `.fits` or `.fits.gz` file; `file.fits[1]` or `file.fits[SCI]` chooses an extension,
            `file.tif[0]` the first page.

    Raises:
        UserError: The file is missing, damaged, or not one greyscale image.
    """
    image = read_array(path)
    if image.ndim != 2:
        image = reduce_colour(image, os.fspath(path))
    if image.size == 0:
        raise UserError(f"{path} has shape {image.shape} where (height, width) is expected.")
    return image


def read_array(path: str | os.PathLike[str], channels: bool = False) -> np.ndarray:
    """Return an array of any shape from a NumPy file, or the image that another file holds.

    Args:
        path: As in `read_image`.
        channels: Whether a picture in colour keeps red, green and blue instead of being reduced to
            grey; opacity is left out.
    """
    path, part = split_extension(path)
    path, suffix = existing_file(path), image_suffix(path)
    reader = _READERS.get(suffix)
    if reader is None:
        raise UserError(f"{path} is not an image: its name should end in {', '.join(_READERS)}.")
    if suffix in _ARRAYS:
        refuse_part(path, part)
    array = real_values(reader(path, part), str(path))
    if suffix in _ARRAYS or array.ndim == 2:
        return array
    return array[..., :3] if channels else reduce_colour(array, str(path))


def image_files(folder: Path) -> list[Path]:
    """The images that lie in a folder, in the order of their names."""
    # Names with a leading dot are what file managers leave beside the images.
    shown = [file for file in folder.iterdir() if not file.name.startswith(".")]
    return sorted(file for file in shown if image_suffix(file) in IMAGE_SUFFIXES and file.is_file())


def count_pages(path: Path) -> int:
    """The number of images in a file that may have pages, such as a TIFF."""
    with decoding(path, "an image"), _pillow_image(path) as image:
        return _pages(image)


def reduce_colour(array: np.ndarray, name: str) -> np.ndarray:
    """Return grey for an array whose last axis is red, green, blue and perhaps opacity.

    A warning says so, unless the array is grey already.
    """
    if array.ndim != 3 or array.shape[2] not in (3, 4) or 0 in array.shape:
        raise UserError(f"{name} has shape {array.shape} where (height, width) is expected.")
    colour, opacity = array[..., :3], array[..., 3:]
    if np.all(colour == colour[..., :1]) and np.all(opacity == opacity.max(initial=0)):
        return colour[..., 0]
    warnings.warn(f"{name} has colour or transparency: reduced to grey.", stacklevel=4)
    if array.dtype.kind == "f":
        return colour @ _LUMA
    grey = np.empty(array.shape[:2], array.dtype)
    # Row by row: whole numbers need eight times their memory here.
    for row, pixels in zip(grey, colour, strict=True):
        row[...] = (pixels.astype(np.int64) @ _WHOLE_LUMA + 32768) >> 16
    return grey


def split_extension(path: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """The file of `file.fits[1]` or `file.tif[1]` and what its brackets hold; None without them."""
    text = os.fspath(path)
    if not text.endswith("]") or "[" not in text or os.path.exists(text):
        return Path(text), None
    name, _, part = text[:-1].rpartition("[")
    return Path(name), part


def image_suffix(path: str | os.PathLike[str]) -> str:
    """What tells the kind of an image file: the end of its name, such as `.png` or `.fits.gz`."""
    name = Path(path).name.lower()
    suffix = Path(name).suffix
    return Path(name.removesuffix(suffix)).suffix + suffix if suffix == ".gz" else suffix


def read_fits_header(path: str | os.PathLike[str]) -> Any | None:
    """The header of the image that `read_image` reads from a FITS file; None for other files."""
    path, extension = split_extension(path)
    if _READERS.get(image_suffix(path)) is not _read_fits:
        return None
    with _fits_image(existing_file(path), extension) as unit:
        return unit.header.copy()


def real_values(array: np.ndarray, name: str) -> np.ndarray:
    """Return `array` in native byte order once it is known to hold real numbers."""
    if array.dtype.kind not in "buif":
        raise UserError(f"{name} holds values of type {array.dtype}, not real numbers.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def refuse_part(path: Path, part: str | None) -> None:
    """Refuses brackets behind the name of a file that holds only one thing."""
    if part is not None:
        raise UserError(f"{path} has no extensions or pages: leave out [{part}].")


def _read_pillow(path: Path, part: str | None) -> np.ndarray:
    from PIL import ImageOps

    with decoding(path, "an image"), _pillow_image(path) as image:
        pages = _pages(image)
        if part is None and pages > 1:
            raise UserError(
                f"{path} holds {pages} pages where one is expected: choose one by its number, from"
                f" {path.name}[0] to {path.name}[{pages - 1}]."
            )
        if pages == 1:
            refuse_part(path, part)
        elif part is not None:
            if not part.isdecimal() or int(part) >= pages:
                raise UserError(f"{path} has pages 0 to {pages - 1}, but no page {part!r}.")
            image.seek(int(part))
        check_size(_PIXEL_BYTES * image.width * image.height, str(path))
        layout = str(image.tile)
        image.load()
        image = ImageOps.exif_transpose(image)
        if image.mode == "1":
            return np.asarray(image.convert("L"))
        if image.mode in _GREY_MODES:
            return np.array(image)
        if ";16" in layout:
            warnings.warn(
                f"{path} has 16 bits per colour, of which 8 are kept: store it in grey.",
                stacklevel=4,
            )
        return np.asarray(image.convert("RGBA"))


def _pages(image: Any) -> int:
    # Photos of phones carry a second picture, such as a map of depth, that nobody means.
    return 1 if image.format == "MPO" else getattr(image, "n_frames", 1)


@contextmanager
def _pillow_image(path: Path) -> Iterator[Any]:
    """An open image of any size: Pillow's own limit, which is fixed, is set aside."""
    from PIL import Image

    with _LIMIT_LOCK:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            # By its name Pillow would map a plain TIFF to memory, and forget that it is turned.
            with path.open("rb") as file, Image.open(file, formats=_PILLOW_FORMATS) as image:
                yield image
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def _read_fits(path: Path, part: str | None = None) -> np.ndarray:
    with _fits_image(path, part) as unit:
        data = np.asarray(unit.data)
        # Radio images carry axes of length 1 for frequency and polarisation.
        while data.ndim > 2 and data.shape[0] == 1:
            data = data[0]
        if data.ndim != 2:
            raise UserError(f"{path} has shape {data.shape} where (height, width) is expected.")
        return data


@contextmanager
def _fits_image(path: Path, extension: str | None) -> Iterator[Any]:
    """The chosen extension, or the first that holds an image; its values fit into memory."""
    with decoding(path, "a FITS image"), open_fits(path) as units:
        unit = choose_unit(units, path, extension)
        values = _PIXEL_BYTES * math.prod(unit.shape)
        check_size(max(values, unit.fileinfo()["datSpan"]), str(path))
        yield unit


def open_fits(path: Path, many: bool = False) -> Any:
    """The units of a FITS file, an `astropy.io.fits.HDUList` of which no values are read yet.

    Args:
        path: The file.
        many: Whether what it unpacks to may be as large as a data set.
    """
    try:
        from astropy.io import fits
    except ImportError as error:
        raise UserError(
            f"Reading {path} needs astropy: install it with `pip install latentuq[fits]`."
        ) from error
    return fits.open(_unzipped(path, many), memmap=False)


def choose_unit(units: Any, path: Path, extension: str | None) -> Any:
    """The unit that has the given number or name, or the first that holds an image."""
    # Headers tell what is an image: the values of all units need not fit into memory.
    images = {number: unit for number, unit in enumerate(units) if unit.is_image and unit.shape}
    if not images:
        raise UserError(f"{path} holds no image.")
    for number, unit in images.items():
        if extension is None or extension.lower() in (str(number), unit.name.lower()):
            return unit
    known = ", ".join(f"{number} {unit.name}".strip() for number, unit in images.items())
    raise UserError(f"{path} has no image extension {extension!r}; there are {known}.")


def _unzipped(path: Path, many: bool) -> Path | io.BytesIO:
    """A FITS file as astropy shall read it, which else would unpack what it likes to any size."""
    with path.open("rb") as file:
        start = file.read(6)
    if start[:2] == _GZIP:
        with gzip.open(path) as file:
            return io.BytesIO(read_limited(file, str(path), many))
    if start != b"SIMPLE":
        raise UserError(f"Cannot read {path} as a FITS image: it does not start with SIMPLE.")
    return path


TIFF_SUFFIXES = (".tif", ".tiff")
"""The ends of the names of TIFF files."""
FITS_SUFFIXES = (".fits", ".fit", ".fts", ".fits.gz", ".fit.gz", ".fts.gz")
"""The ends of the names of FITS files."""
_READERS: dict[str, Callable[[Path, str | None], np.ndarray]] = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".webp", *TIFF_SUFFIXES), _read_pillow),
    ".npy": lambda path, _: read_npy(path),
    ".npz": lambda path, _: read_npz(path, ("image", "arr_0"))[0],
    **dict.fromkeys(FITS_SUFFIXES, _read_fits),
}
IMAGE_SUFFIXES = tuple(suffix for suffix in _READERS if suffix not in _ARRAYS)
"""The ends of the names of files that hold images and nothing else."""
