"""The MNIST test digits that come with the package, so that a demo needs no download."""

from dataclasses import dataclass
from importlib import resources

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from latentuq.core.errors import UserError


@dataclass(frozen=True, eq=False)
class Digits:
    """A few MNIST test images in [0, 1]; `indices` are their places in the test set."""

    images: Float32[np.ndarray, "n 28 28"]
    labels: UInt8[np.ndarray, " n"]
    indices: Int64[np.ndarray, " n"]

    def digit(self, index: int) -> Float32[np.ndarray, "28 28"]:
        """Return the image at place `index` of the MNIST test set."""
        found = np.flatnonzero(self.indices == index)
        if found.size == 0:
            raise UserError(
                f"MNIST test image {index} does not come with the package (`indices` lists those "
                "that do); use load_dataset('mnist')."
            )
        return self.images[found[0]]


def load_digits() -> Digits:
    """Return the digits that come with the package: 40 MNIST test images of all classes.

    They are the first 39 of the test set, among which there is no 8, and its first 8. `digits.npz`
    holds them as 8-bit values, with their labels and their places.
    """
    with (
        resources.files("latentuq.data").joinpath("digits.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        images = arrays["images"].astype(np.float32) / 255
        labels, indices = arrays["labels"], arrays["indices"]
    for array in (images, labels, indices):
        array.setflags(write=False)
    return Digits(images, labels, indices)
