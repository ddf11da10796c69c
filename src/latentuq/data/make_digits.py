"""How `digits.npz` was made: `python -m latentuq.data.make_digits PATH`, from the cached MNIST."""

import os
import sys

import numpy as np

from latentuq.core.files import atomic_path
from latentuq.data.datasets import load_dataset

# The first 39 have no 8; image 61 is the first one.
INDICES = np.array([*range(39), 61], dtype=np.int64)


def write_digits(path: str | os.PathLike[str]) -> None:
    """Write the MNIST test images at `INDICES` as 8-bit values, with labels and indices."""
    mnist = load_dataset("mnist")
    with atomic_path(path) as beside, beside.open("wb") as file:
        np.savez_compressed(
            file,
            images=np.rint(mnist.test_images[INDICES] * 255).astype(np.uint8),
            labels=mnist.test_labels[INDICES],
            indices=INDICES,
        )


if __name__ == "__main__":
    write_digits(sys.argv[1])
