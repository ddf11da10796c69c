"""Single images in and out of files: PNG, TIFF, NumPy and FITS."""

import os
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from latentuq.core.errors import UserError
from latentuq.core.files import atomic_path

# The shares of red, green and blue in grey; for whole numbers in units of 1 / 65536, as Pillow has
# them.
_LUMA = np.array([0.299, 0.587, 0.114])
_WHOLE_LUMA = np.array([19595, 38470, 7471])
_GREY_MODES = ("L", "I", "F", "I;16", "I;16B", "I;16L", "I;16N")


def read_image(path: str | os.PathLike[str]) -> np.ndarray:
    """Return the one image a file holds, as a 2-D array in the file's own units and precision.

    Colour (in arrays: a last axis of 3 or 4) is reduced to grey with a warning. NaN is kept: it
    marks missing pixels.

    Args:
        path: A `.png`, `.tif`, `.npy`, `.npz` (one array, or an entry `image`) or `.fits` file;
            `file.fits[1]` or `file.fits[SCI]` chooses an extension.

    Raises:
        UserError: The file is missing, damaged, or not one greyscale image.
    """
    image = read_array(path)
    if image.ndim != 2:
        image = reduce_colour(image, os.fspath(path))
    if image.size == 0:
        raise UserError(f"{path} has shape {image.shape} where (height, width) is expected.")
    return image


def read_array(path: str | os.PathLike[str]) -> np.ndarray:
    """Return an array of any shape from a NumPy file, or the image that another file holds."""
    path, extension = split_extension(path)
    path = existing_file(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"{path} is not an image: its name should end in {', '.join(_READERS)}.")
    if extension is not None and reader is not _read_fits:
        raise UserError(f"{path} has no extensions: leave out [{extension}].")
    found = _read_fits(path, extension) if extension is not None else reader(path)
    return real_values(found, str(path))


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
    return ((colour.astype(np.int64) @ _WHOLE_LUMA + 32768) >> 16).astype(array.dtype)


def write_image(path: str | os.PathLike[str], array: object) -> None:
    """Write one image in one step; the suffix decides the format.

    Integers of 8 or 16 bits are kept. Other values stay as they are in `.npy`, become float32 in
    `.tif`, and in `.png` are clipped to [0, 1] and written with 8 bits.

    Args:
        path: A `.png`, `.tif`, `.tiff` or `.npy` file; what it held is replaced.
        array: The image, a 2-D array.
    """
    path, image = Path(path), real_values(np.asarray(array), "The image to write")
    if image.ndim != 2 or image.size == 0:
        raise UserError(f"Cannot write shape {image.shape} to {path}: one 2-D image is expected.")
    suffix = path.suffix.lower()
    if suffix == ".npy":
        with atomic_path(path) as beside:
            np.save(beside, image, allow_pickle=False)
        return
    if suffix not in (".png", ".tif", ".tiff"):
        raise UserError(f"Cannot write {path}: its name should end in .png, .tif or .npy.")
    if image.dtype not in (np.uint8, np.uint16):
        image = _as_bytes(image, path) if suffix == ".png" else image.astype(np.float32)
    from PIL import Image

    with atomic_path(path) as beside:
        Image.fromarray(image).save(beside)


def split_extension(path: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """The file of `file.fits[1]` and what its brackets hold; None without brackets."""
    text = os.fspath(path)
    if not text.endswith("]") or "[" not in text or Path(text).exists():
        return Path(text), None
    name, _, extension = text[:-1].rpartition("[")
    return Path(name), extension


def is_fits(path: str | os.PathLike[str]) -> bool:
    """Whether the name is one of a FITS file, or of an extension of one."""
    return split_extension(path)[0].suffix.lower() in (".fits", ".fit", ".fts")


def read_fits_header(path: str | os.PathLike[str]) -> Any | None:
    """The header of the image that `read_image` reads from a FITS file; None for other files."""
    if not is_fits(path):
        return None
    path, extension = split_extension(path)
    with _fits_image(existing_file(path), extension) as unit:
        return unit.header.copy()


def existing_file(path: str | os.PathLike[str]) -> Path:
    """Return `path` as a Path once it is known to be a file."""
    found = Path(path).expanduser()
    if not found.exists():
        raise UserError(f"There is no file {found}.")
    if not found.is_file():
        raise UserError(f"{found} is not a file.")
    return found


def real_values(array: np.ndarray, name: str) -> np.ndarray:
    """Return `array` in native byte order once it is known to hold real numbers."""
    if array.dtype.kind not in "buif":
        raise UserError(f"{name} holds values of type {array.dtype}, not real numbers.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


@contextmanager
def decoding(path: str | Path, kind: str) -> Iterator[None]:
    """Turn whatever a decoder raises on a damaged file into one sentence that names the file."""
    try:
        yield
    except UserError:
        raise
    # Decoders stumble over damaged files in too many ways to list: struct.error, SyntaxError,
    # zlib.error, MemoryError from an absurd header.
    except Exception as error:
        words = " ".join(str(error).split()).replace(". ", "; ")
        detail = words.rstrip(".") or type(error).__name__
        raise UserError(f"Cannot read {path} as {kind}: {detail}.") from error


def read_npy(path: Path) -> np.ndarray:
    """Return the array of a `.npy` file; pickled objects are refused."""
    with decoding(path, "a NumPy array"), path.open("rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def read_npz(
    path: Path, names: Collection[str], others: Collection[str] = ()
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the entry of a `.npz` file that is called one of `names`, or is the only one.

    Args:
        path: The file.
        names: Names that the wanted entry may have.
        others: Names of entries to return too when they are there.

    Returns:
        The wanted array, and those of `others` that were found, by name.
    """
    with decoding(path, "a NumPy archive"), path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise UserError(f"{path} holds one array: its name should end in .npy.")
        keys = [key for key in archive.files if key not in others]
        chosen = keys if len(keys) == 1 else [key for key in keys if key in names]
        if len(chosen) != 1:
            raise UserError(
                f"{path} holds the entries {', '.join(archive.files) or '(none)'}; "
                f"exactly one should be named {' or '.join(names)}."
            )
        found = {key: archive[key] for key in archive.files if key in others}
        return archive[chosen[0]], found


def _read_npz_image(path: Path) -> np.ndarray:
    return read_npz(path, ("image", "arr_0"))[0]


def _read_pillow(path: Path) -> np.ndarray:
    from PIL import Image

    with decoding(path, "an image"), Image.open(path, formats=("PNG", "TIFF")) as image:
        if (pages := getattr(image, "n_frames", 1)) > 1:
            raise UserError(f"{path} holds {pages} images where one is expected.")
        image.load()
        if image.mode == "1":
            return np.asarray(image.convert("L"))
        if image.mode in _GREY_MODES:
            return np.array(image)
        return reduce_colour(np.asarray(image.convert("RGBA")), str(path))


def _read_fits(path: Path, extension: str | None = None) -> np.ndarray:
    with _fits_image(path, extension) as unit:
        data = np.asarray(unit.data)
        # Radio images carry axes of length 1 for frequency and polarisation.
        while data.ndim > 2 and data.shape[0] == 1:
            data = data[0]
        if data.ndim != 2:
            raise UserError(f"{path} has shape {data.shape} where (height, width) is expected.")
        return data


@contextmanager
def _fits_image(path: Path, extension: str | None) -> Iterator[Any]:
    """The chosen extension, or the first that holds an image."""
    try:
        from astropy.io import fits
    except ImportError as error:
        raise UserError(
            f"Reading {path} needs astropy: install it with `pip install latentuq[fits]`."
        ) from error
    units: Any
    with decoding(path, "a FITS image"), fits.open(path, memmap=False) as units:
        images = {
            number: unit
            for number, unit in enumerate(units)
            if unit.is_image and unit.data is not None
        }
        if not images:
            raise UserError(f"{path} holds no image.")
        for number, unit in images.items():
            names = (str(number), unit.name.lower())
            if extension is None or extension.lower() in names:
                yield unit
                return
        known = ", ".join(f"{number} {unit.name}".strip() for number, unit in images.items())
        raise UserError(f"{path} has no image extension {extension!r}; there are {known}.")


def _as_bytes(image: np.ndarray, path: Path) -> np.ndarray:
    values = image.astype(np.float64)
    if np.isnan(values).any():
        raise UserError(f"Cannot write NaN to {path}: use .tif or .npy, which keep it.")
    return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)


_READERS: dict[str, Callable[[Path], np.ndarray]] = {
    ".png": _read_pillow,
    ".tif": _read_pillow,
    ".tiff": _read_pillow,
    ".npy": read_npy,
    ".npz": _read_npz_image,
    ".fits": _read_fits,
    ".fit": _read_fits,
    ".fts": _read_fits,
}
