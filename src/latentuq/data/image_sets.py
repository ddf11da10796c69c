"""Clean images to train on, from a dataset, an array file, an IDX file or a folder of images."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from latentuq.core.errors import UserError
from latentuq.core.reading import check_size, existing_file, read_path
from latentuq.core.text import show_size
from latentuq.data.archives import idx_name
from latentuq.data.array_files import find_opener
from latentuq.data.datasets import load_dataset, to_unit
from latentuq.data.idx import read_idx
from latentuq.data.images import (
    IMAGE_SUFFIXES,
    image_files,
    read_image,
    real_values,
    split_extension,
)
from latentuq.data.numpy_files import read_npz
from latentuq.data.publications import PUBLICATIONS, TEST_IMAGES, TRAIN_IMAGES, dataset_names
from latentuq.data.scaling import Scaling, fit_scaling
from latentuq.data.stacks import open_stack, stack_of

_TRAIN_ENTRIES = ("images", "train_images", "x_train", "arr_0")
_TEST_ENTRIES = ("test_images", "x_test")


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Training images scaled to [0, 1], with the held-out ones when the source names them.

    Attributes:
        train: The training images; read-only.
        test: Held-out images on the same scale (they may leave [0, 1] a little); read-only.
        scaling: The map between the source's units and [0, 1].
        checksum: SHA-256 of `train`: its type, shape and bytes.
        source: The dataset or path as the user named it.
    """

    train: Float32[np.ndarray, "train height width"]
    test: Float32[np.ndarray, "test height width"] | None
    scaling: Scaling
    checksum: str
    source: str


def read_images(path: str | os.PathLike[str]) -> ImageSet:
    """Return training images of any height and width, scaled to [0, 1].

    8-bit values are divided by 255, floats within [0, 1] are kept, and anything else is mapped
    from the minimum and maximum of the training images.

    Args:
        path: The name of a dataset of grey images, such as `"mnist"`; a `.npy` of shape (n, height,
            width); a `.npz` with one array, or an entry `images`, `train_images`, `x_train` or
            `arr_0` (and optionally `test_images` or `x_test`); an IDX file, gzipped or not; or a
            folder of equally sized PNG, JPEG, WebP, TIFF or FITS images, taken in the order of
            their names, or of IDX files named as in MNIST, of which labels and test images may be
            missing; or what else `open_stack` reads: a Zarr store, a NetCDF file or a FITS cube.

    Raises:
        UserError: Something is missing, damaged, of unequal size, not finite or constant.
    """
    source = os.fspath(path)
    if source in PUBLICATIONS:
        return _read_dataset(source)
    found, part = split_extension(read_path(source))
    opener = find_opener(found)
    if found.is_dir() and not opener:
        files = image_files(found)
        idx = {idx_name(file.name): file for file in found.iterdir()}
        if not files and TRAIN_IMAGES in idx:
            test = read_idx(idx[TEST_IMAGES]) if TEST_IMAGES in idx else None
            return make_image_set(read_idx(idx[TRAIN_IMAGES]), test, source)
        return make_image_set(_read_folder(found, files), None, source)
    if not found.exists():
        raise UserError(
            f"{source} is neither a dataset ({dataset_names('or')}) nor a file or folder."
        )
    if found.suffix.lower() == ".npz" and part is None:
        train, held_out = read_npz(existing_file(found), _TRAIN_ENTRIES, _TEST_ENTRIES, many=True)
        test = next((held_out[name] for name in _TEST_ENTRIES if name in held_out), None)
        return make_image_set(train, test, source)
    if opener:
        stack = open_stack(source)
        return make_image_set(stack.read(0, len(stack)), None, source)
    raise UserError(
        f"{source} is not a dataset ({dataset_names('or')}), a .npz, .npy or IDX file, "
        "or a folder of images."
    )


def _read_dataset(name: str) -> ImageSet:
    known = load_dataset(name)
    if known.train_images.ndim != 3:
        raise UserError(f"{name} holds images in colour, which priors cannot be trained on yet.")
    train, test = (_frozen(to_unit(images)) for images in (known.train_images, known.test_images))
    return ImageSet(train, test, known.units, stack_of(train, name).checksum(), name)


def _read_folder(folder: Path, files: list[Path]) -> np.ndarray:
    if not files:
        raise UserError(f"The folder {folder} holds no {', '.join(IMAGE_SUFFIXES)} images.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = read_image(files[0])
        check_size(len(files) * first.nbytes, f"The folder {folder}", many=True)
        images = np.empty((len(files), *first.shape), first.dtype)
        for slot, file in zip(images, files, strict=True):
            image = first if file == files[0] else read_image(file)
            _check_like(image, str(file), first, files[0].name)
            if not np.isfinite(image).all():
                raise UserError(f"{file} holds NaN or infinite values, which cannot be trained on.")
            slot[...] = image
    # One note for the folder, not one for each of thousands of files.
    if caught:
        more = f" (and {len(caught) - 1} more such notes)" if len(caught) > 1 else ""
        warnings.warn(f"{caught[0].message}{more}", stacklevel=3)
    return images


def _check_like(image: np.ndarray, name: str, other: np.ndarray, other_name: str) -> None:
    if image.shape != other.shape:
        raise UserError(
            f"{name} is {show_size(image.shape)} pixels but {other_name} is"
            f" {show_size(other.shape)}: all images should have one size."
        )
    if image.dtype != other.dtype:
        raise UserError(
            f"{name} holds {image.dtype} values but {other_name} holds {other.dtype}: "
            "all images should have one type."
        )


def make_image_set(
    train: np.ndarray, test: np.ndarray | None = None, source: str = "The array"
) -> ImageSet:
    """Return arrays of raw images, checked and scaled to [0, 1]; `source` is what errors say."""
    train = _checked(train, source)
    scaling = fit_scaling(train, source)
    if train.dtype == np.uint8 and train.max() == 1:
        warnings.warn(
            f"{source} is 8-bit with no value above 1, taken as 0 to 255; "
            "store it as float if 1 means white.",
            stacklevel=3,
        )
    if test is not None:
        name = f"The test entry of {source}"
        test = _checked(test, name)
        _check_like(test[0], name, train[0], "a training image")
        test = _frozen(scaling.to_unit(test))
    unit = _frozen(scaling.to_unit(train))
    return ImageSet(unit, test, scaling, stack_of(unit, source).checksum(), source)


def _checked(images: np.ndarray, name: str) -> np.ndarray:
    images = real_values(images, name)
    if images.ndim != 3 or 0 in images.shape:
        raise UserError(f"{name} has shape {images.shape} where (n, height, width) is expected.")
    finite = np.isfinite(images).all(axis=(1, 2))
    if not finite.all():
        raise UserError(
            f"{name} holds NaN or infinite values, first in image {int(np.argmin(finite))}, "
            "which cannot be trained on."
        )
    return images


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array
