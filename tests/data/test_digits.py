import subprocess
import sys

import numpy as np
import pytest

from latentuq.core.errors import UserError
from latentuq.data import load_digits, make_digits
from latentuq.data.datasets import Dataset


def test_digits_are_from_the_canonical_test_set():
    digits = load_digits()
    assert digits.images.shape == (40, 28, 28)
    assert digits.images.dtype == np.float32
    assert digits.images.min() == 0
    assert digits.images.max() == 1
    assert digits.indices.tolist() == [*range(39), 61]
    # The labels of the test set as published; images 1, 6 and 12 are the paper's 2, 4 and 9.
    assert "".join(map(str, digits.labels[:20])) == "72104149590690159734"
    assert set(digits.labels.tolist()) == set(range(10))
    with pytest.raises(ValueError, match="read-only"):
        digits.images[0] = 0


def test_digit_is_found_by_its_place_in_the_test_set():
    digits = load_digits()
    assert np.array_equal(digits.digit(12), digits.images[12])
    assert np.array_equal(digits.digit(61), digits.images[39])
    for absent in (-1, 39):
        with pytest.raises(UserError, match=f"image {absent} does not come with the package"):
            digits.digit(absent)


def test_write_digits_keeps_every_value(tmp_path, monkeypatch):
    digits = load_digits()
    images, labels = np.zeros((62, 28, 28), np.float32), np.zeros(62, np.uint8)
    images[digits.indices], labels[digits.indices] = digits.images, digits.labels
    shown = Dataset(images, labels, images, labels)
    monkeypatch.setattr(make_digits, "load_dataset", lambda name: shown)
    make_digits.write_digits(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as written:
        assert written["images"].dtype == np.uint8
        assert np.array_equal(written["images"].astype(np.float32) / 255, digits.images)
        assert np.array_equal(written["labels"], digits.labels)
        assert np.array_equal(written["indices"], digits.indices)


def test_import_is_light():
    code = (
        "import sys, latentuq.data; "
        "print([m for m in ('PIL', 'matplotlib', 'rich', 'astropy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
