"""Arrays from `.npy` and `.npz` files, whose headers are read before their values."""

import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import IO

import numpy as np

from latentuq.core.errors import UserError
from latentuq.core.reading import check_size, decoding


def read_npy(path: Path, many: bool = False) -> np.ndarray:
    """Return the array of a `.npy` file; pickled objects are refused.

    Args:
        path: The file.
        many: Whether the array may be a whole data set.
    """
    with decoding(path, "a NumPy array"), path.open("rb") as file:
        return _read_array(file, str(path), many)


def read_npz(
    path: Path, names: Collection[str], others: Collection[str] = (), many: bool = False
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the entry of a `.npz` file that is called one of `names`, or is the only one.

    Args:
        path: The file.
        names: Names that the wanted entry may have.
        others: Names of entries to return too when they are there.
        many: Whether the arrays may be whole data sets.

    Returns:
        The wanted array, and those of `others` that were found, by name.
    """
    with decoding(path, "a NumPy archive"), zipfile.ZipFile(path) as archive:
        members = {name.removesuffix(".npy"): name for name in archive.namelist()}
        keys = [key for key in members if key not in others]
        chosen = keys if len(keys) == 1 else [key for key in keys if key in names]
        if len(chosen) != 1:
            raise UserError(
                f"{path} holds the entries {', '.join(members) or '(none)'}; "
                f"exactly one should be named {' or '.join(names)}."
            )

        def read(key: str) -> np.ndarray:
            with archive.open(members[key]) as file:
                return _read_array(file, f"{key} in {path}", many)

        return read(chosen[0]), {key: read(key) for key in members if key in others}


def _read_array(file: IO[bytes], name: str, many: bool) -> np.ndarray:
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise UserError(f"{name} does not hold an array of numbers.")
    shape, _, dtype = readers[version](file)
    check_size(dtype.itemsize * math.prod(shape), name, many)
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)
