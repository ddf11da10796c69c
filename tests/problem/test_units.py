"""Data in any units, behind any operator, on the scale of the prior."""

import warnings

import numpy as np
import pytest

from example_operators import example_operators
from latentuq.core.errors import UserError
from latentuq.data.observation import Observation
from latentuq.data.scaling import Scaling
from latentuq.forward.blur import Blur
from latentuq.forward.gain import Gain
from latentuq.forward.mask import RegionMask
from latentuq.likelihood.noise import GaussianNoise
from latentuq.problem.units import keeps_units, to_prior_scale

SHAPE = (8, 6)
OPERATORS = example_operators(SHAPE)
COUNTS, UNIT = Scaling(100.0, 3000.0), Scaling(0.0, 1.0)
IDENTITY = Gain(1.0).bind(SHAPE)
X = np.random.default_rng(0).random(SHAPE)


@pytest.mark.parametrize("scaling", [COUNTS, COUNTS.inverted(), Scaling(0.0, 255.0)])
@pytest.mark.parametrize("name", OPERATORS)
def test_units_go_through_any_operator_exactly(name, scaling):
    operator = OPERATORS[name].bind(SHAPE)
    raw = np.asarray(operator(scaling.from_unit(X)), np.float64)
    values = to_prior_scale(Observation("y", raw, scaling), operator, GaussianNoise(0.1))
    # Sums of float32 numbers of up to 3100, divided by the scale.
    tolerance = 1e-6 * np.abs(raw).max() / scaling.step
    np.testing.assert_allclose(values, np.asarray(operator(X)), atol=max(tolerance, 1e-6))


def test_which_operators_keep_units():
    kept = {name for name, operator in OPERATORS.items() if keeps_units(operator.bind(SHAPE))}
    assert {"mask", "random-mask", "downsample"} <= kept
    assert not {"projection", "matrix"} & kept
    assert not keeps_units(Gain(0.5).bind(SHAPE))
    assert keeps_units((RegionMask(columns=(0, 1)) @ Blur(0.5, boundary="reflect")).bind(SHAPE))


def state(raw, scaling=UNIT, level=0.0, **given):
    noise = None if level is None else GaussianNoise(level)
    observation = Observation("y.npy", np.asarray(raw, float), scaling, **given)
    return to_prior_scale(observation, IDENTITY, noise)


@pytest.mark.parametrize(
    ("raw", "scaling", "level"),
    [
        (3000 * X, UNIT, 0.1),
        (3000 * X, UNIT, None),
        (255 * X, UNIT, 0.5),
        (X / 255, UNIT, 0.0),
        (X, COUNTS, 0.0),
        (X, COUNTS, None),
        (X - 2, UNIT, 0.1),
    ],
)
def test_other_units_are_asked_about_and_taken_if_they_are_confirmed(raw, scaling, level):
    with pytest.raises(UserError, match=r"y\.npy has values from .* --offset BLACK --scale WHITE"):
        state(raw, scaling, level)
    with warnings.catch_warnings(action="error"):
        values = state(raw, scaling, level, scale_is_given=True)
    np.testing.assert_allclose(values, scaling.to_unit(raw), atol=1e-6 * np.abs(values).max())


@pytest.mark.parametrize("scaling", [COUNTS, COUNTS.inverted()])
def test_what_confirms_the_units_keeps_black_where_it_was(scaling):
    with pytest.raises(UserError, match="confirm it with --offset 100 --scale 3000"):
        state(1e4 * X, scaling, 0.1)


@pytest.mark.parametrize("level", [0.1, 0.5, 2.0])
def test_noise_that_was_stated_explains_what_lies_beyond_black_and_white(level):
    noisy = X + level * np.random.default_rng(1).normal(size=SHAPE)
    with warnings.catch_warnings(action="error"):
        state(noisy, level=level)
        state(noisy, level=None)
    with pytest.raises(UserError) if level > 0.2 else pytest.warns(UserWarning, match="no noise"):
        state(noisy)


def test_noise_that_hides_everything_is_asked_about():
    with pytest.raises(UserError, match="The noise of 874 is 874 times as large as the range"):
        state(X, level=874.0)


def test_little_of_an_image_may_be_dark():
    dark = np.where(np.indices(SHAPE)[0] < 2, 0.01 * X, np.nan)
    with pytest.warns(UserWarning, match="is the image so dark"):
        state(dark)
    with pytest.warns(UserWarning, match="is the image so dark"):
        state(2 * X, Scaling(0.0, 255.0), kind="uint8")
    with warnings.catch_warnings(action="error"):
        state(np.zeros(SHAPE))
        state(0.01 * X, level=0.05)


def test_hidden_data_have_no_say():
    raw = np.where(np.indices(SHAPE)[1] < 3, X, 1e6)
    operator = RegionMask(columns=(3, 5)).bind(SHAPE)
    with warnings.catch_warnings(action="error"):
        to_prior_scale(Observation("y", raw), operator, GaussianNoise(0.1))
