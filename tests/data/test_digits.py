import subprocess
import sys

import numpy as np
import pytest

from latentuq.core.errors import UserError
from latentuq.data.digits import load_digits


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


def test_import_is_light():
    code = (
        "import sys, latentuq.data; "
        "print([m for m in ('PIL', 'matplotlib', 'rich', 'astropy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
