"""Arrays in files and folders, of which slices are read without the rest."""

import math
import re
import zipfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from latentuq.core.errors import UserError
from latentuq.core.reading import check_size, decoding
from latentuq.data.idx import read_idx
from latentuq.data.images import FITS_SUFFIXES, choose_unit, image_suffix, open_fits, refuse_part
from latentuq.data.numpy_files import read_npz

# The names that images have in files of several arrays.
_USUAL = ("images", "train_images", "x_train", "y", "arr_0")
_IDX_NAME = re.compile(r"(ubyte|\.idx)(\.gz)?$")
_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")


class Values(Protocol):
    """An array that may lie in a file: slices along its first axis can be read."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    def __getitem__(self, key: slice, /) -> Any: ...


Opener = Callable[[Path, str | None], tuple[Values, int]]
"""Makes, of a path and the name of one of several arrays there, the array and how many of its
entries are stored as one piece."""


def find_opener(path: Path) -> Opener | None:
    """What opens the array that a file or a folder holds, told by names; None if nothing does."""
    if path.is_dir():
        return _open_zarr if any((path / name).exists() for name in _ZARR_FILES) else None
    return _open_idx if _IDX_NAME.search(path.name) else _OPENERS.get(image_suffix(path))


def _open_npy(path: Path, part: str | None) -> tuple[Values, int]:
    refuse_part(path, part)
    with decoding(path, "a NumPy array"):
        return np.lib.format.open_memmap(path, mode="r"), 1


def _open_npz(path: Path, part: str | None) -> tuple[Values, int]:
    # What a zip holds is compressed and cannot be mapped: it is read once.
    with decoding(path, "a NumPy archive"), zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    return read_npz(path, (_choose(path, part, names),), many=True)[0], 1


def _open_idx(path: Path, part: str | None) -> tuple[Values, int]:
    refuse_part(path, part)
    return read_idx(path), 1


def _open_netcdf(path: Path, part: str | None) -> tuple[Values, int]:
    import xarray

    with decoding(path, "a NetCDF file"):
        # Only the images are decoded: times and coordinates may be wrong, or large.
        dataset = xarray.open_dataset(
            path,
            engine="h5netcdf",
            cache=False,
            decode_times=False,
            decode_coords=False,
            create_default_indexes=False,
        )
        arrays = {str(name): array for name, array in dataset.variables.items() if array.ndim > 1}
        array = arrays[_choose(path, part, arrays)]
        return array, _entries_together(array, array.encoding.get("chunksizes"), path)


def _open_zarr(path: Path, part: str | None) -> tuple[Values, int]:
    try:
        import zarr
    except ImportError as error:
        raise UserError(
            f"Reading {path} needs zarr: install it with `pip install latentuq[batch]`."
        ) from error
    array: Any
    with decoding(path, "a Zarr store"):
        array = zarr.open(path, mode="r")
        if isinstance(array, zarr.Group):
            members: Any = array.members(max_depth=None)
            arrays = {name: each for name, each in members if getattr(each, "ndim", 0) > 1}
            array = arrays[_choose(path, part, arrays)]
        else:
            refuse_part(path, part)
        if "pickle" in str((array.filters, array.compressors)).lower():
            raise UserError(f"{path} holds pickled objects, which are never read: store numbers.")
        return array, _entries_together(array, array.chunks, path)


@dataclass(frozen=True)
class _Cube:
    """The values of a FITS unit, with the type they have once BSCALE and BZERO are applied."""

    section: Any
    shape: tuple[int, ...]
    dtype: np.dtype

    def __getitem__(self, key: slice) -> np.ndarray:
        return self.section[key]


def _open_fits(path: Path, part: str | None) -> tuple[Values, int]:
    with decoding(path, "a FITS cube"):
        unit = choose_unit(open_fits(path, many=True), path, part)
        if len(unit.shape) < 3:
            raise UserError(f"{path} has shape {unit.shape} where (n, height, width) is expected.")
        check_size(8 * math.prod(unit.shape[1:]), f"An image of {path}")
        # Tiles are compressed together, and their table is read at once.
        tile = getattr(unit, "tile_shape", None)
        together = _entries_together(unit.section, tile, path)
        if tile is not None:
            check_size(unit.fileinfo()["datSpan"], str(path), many=True)
        # The last image tells the type, and whether the file has been cut off.
        last = unit.section[unit.shape[0] - 1 : unit.shape[0]] if all(unit.shape) else np.empty(0)
        return _Cube(unit.section, unit.shape, last.dtype), together


_OPENERS: dict[str, Opener] = {
    ".npy": _open_npy,
    ".npz": _open_npz,
    ".nc": _open_netcdf,
    ".h5netcdf": _open_netcdf,
    **dict.fromkeys(FITS_SUFFIXES, _open_fits),
}
ARRAY_SUFFIXES = tuple(_OPENERS)
"""The ends of the names of files that hold arrays."""


def _choose(path: Path, part: str | None, names: Collection[str]) -> str:
    """The array in brackets; without them the only one, or the only one with a usual name."""
    if part is None:
        chosen = [*names] if len(names) == 1 else [name for name in names if name in _USUAL]
    else:
        chosen = [name for name in names if name == part]
    if len(chosen) == 1:
        return chosen[0]
    if not names:
        raise UserError(f"{path} holds no array of images.")
    known = ", ".join(names)
    raise UserError(f"{path} holds {known}: choose one, as in {path.name}[{next(iter(names))}].")


def _entries_together(array: Values, piece: tuple[int, ...] | None, path: Path) -> int:
    """How many entries a piece of that shape holds, all of which are unpacked for one of them."""
    check_size(8 * math.prod(piece or ()), f"A piece of {path}", many=True)
    return min(piece[0], max(1, array.shape[0])) if piece else 1
