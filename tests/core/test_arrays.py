import numpy as np
import pytest

from latentuq.core.arrays import read_finite, read_real
from latentuq.core.errors import UserError


def test_numbers_are_copied_to_float64():
    given = np.ones(3, np.float32)
    read = read_real(given, "y")
    read[0] = np.nan
    assert read.dtype == np.float64
    assert given[0] == 1
    np.testing.assert_array_equal(read_real([True, 2, np.inf], "y"), [1, 2, np.inf])


@pytest.mark.parametrize("values", ["ten", 1j, [[1, 2], [3]], None, [object()]])
def test_what_is_not_a_number_is_named(values):
    with pytest.raises(UserError, match=r"^The gain must be made of real numbers, not "):
        read_real(values, "The gain")


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e39])
def test_what_float32_cannot_hold_is_named(value):
    with pytest.raises(UserError, match=f"^The gain contains {value:g};".replace("+", r"\+")):
        read_finite([1.0, value], "The gain")
