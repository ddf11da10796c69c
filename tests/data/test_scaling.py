import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentuq.core.errors import UserError
from latentuq.data.scaling import Scaling, fit_scaling


@settings(max_examples=50, deadline=None)
@given(
    offset=st.floats(-1e3, 1e3),
    scale=st.floats(1e-3, 1e5),
    x=st.floats(0, 1),
)
def test_to_unit_undoes_from_unit(offset, scale, x):
    scaling = Scaling(offset, scale)
    # Two roundings of a float64 near |offset| + scale, then one of a float32 near 1.
    tolerance = 4 * np.finfo(np.float64).eps * (abs(offset) / scale + 1) + 1.2e-7
    assert scaling.to_unit(np.float64(scaling.from_unit(x))) == pytest.approx(x, abs=tolerance)


def test_to_unit_is_float32_and_leaves_its_argument_alone():
    raw = np.array([0.25, 4.0], np.float32)
    unit = Scaling(1.0, 2.0).to_unit(raw)
    assert unit.dtype == np.float32
    assert unit.tolist() == [-0.375, 1.5]
    assert raw.tolist() == [0.25, 4.0]
    same = Scaling(0.0, 1.0).to_unit(raw)
    assert not np.shares_memory(same, raw)


def test_a_small_range_on_a_large_offset_keeps_its_digits():
    raw = 1e9 + np.linspace(0, 1, 5)
    assert Scaling(1e9, 1.0).to_unit(raw) == pytest.approx(np.linspace(0, 1, 5), abs=2e-7)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (np.array([3, 200], np.uint8), Scaling(0.0, 255.0)),
        (np.array([0.2, 0.9]), Scaling(0.0, 1.0)),
        (np.array([False, True]), Scaling(0.0, 1.0)),
        (np.array([100, 300], np.uint16), Scaling(100.0, 200.0)),
        (np.array([-1.0, 1.0]), Scaling(-1.0, 2.0)),
        (np.array([0, 1], np.int32), Scaling(0.0, 1.0)),
    ],
)
def test_the_rule_for_each_kind_of_value(raw, expected):
    assert fit_scaling(raw, "x") == expected


def test_constant_images_and_bad_scalings_are_refused():
    with pytest.raises(UserError, match=r"pixels of a\.npy are equal to 7"):
        fit_scaling(np.full((3, 2, 2), 7, np.uint8), "a.npy")
    for offset, scale in ((0.0, 0.0), (float("nan"), 1.0), (0.0, float("inf"))):
        with pytest.raises(UserError, match="scale other than 0"):
            Scaling(offset, scale)


def test_a_negative_turns_black_and_white_round():
    negative = Scaling(100.0, 400.0).inverted()
    assert negative.to_unit(np.array([100.0, 500.0, 200.0])).tolist() == [1.0, 0.0, 0.75]
    assert negative.from_unit(0.75) == 200.0
    assert (negative.white, negative.step) == (100.0, 400.0)
    assert negative.inverted() == Scaling(100.0, 400.0)
