"""Data from the units of their file to the scale of the prior, and questions where these are odd.

The clean image has units of its own, image = offset + scale x with x between 0 and 1, and data are
A image + noise. So A x + noise / scale = (data - offset A 1) / scale, exactly, for any linear A.
"""

import warnings

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from latentuq.core.errors import UserError
from latentuq.data.observation import Observation
from latentuq.forward.operator import Operator
from latentuq.likelihood.noise import GaussianNoise

# A constant image keeps its value but for the border of a blur: then data have the units of images.
_KEPT = 1e-3
# How many standard deviations of the noise data may lie beyond black and white.
_SPREAD = 5.0
# Beyond black and white by more than this, in units of white: noticed, and asked about.
_NOTICED, _ASKED = 0.1, 0.5
# The same where nobody knows the noise, and the largest noise that leaves anything to be seen.
_ASKED_IN_NOISE = 10.0
# Images whose largest value is below this are rather in other units than that dark.
_FAINT = 0.05


def to_prior_scale(
    observation: Observation, operator: Operator, noise: GaussianNoise | None
) -> Float[np.ndarray, "*data"]:
    """The data on the scale of the prior's images, behind a bound operator.

    Args:
        observation: The data in their own units.
        operator: What made them of the clean image.
        noise: The noise on the scale of the prior; None if its level is not known.

    Raises:
        UserError: Black and white cannot be what they are taken for.
    """
    ones, seen = _response(operator)
    if observation.raw.shape != ones.shape:
        raise UserError(
            f"The data have shape {observation.raw.shape}, but the operator makes {ones.shape}."
        )
    scaling = observation.scaling
    values = (observation.raw - scaling.offset * ones) / scaling.scale
    shown = seen & ~np.isnan(values)
    if _is_kept(ones, seen) and shown.any() and not observation.scale_is_given:
        _check_range(observation, values, shown, noise)
    return values


def keeps_units(operator: Operator) -> bool:
    """Whether data have the units of the image that a bound operator makes them of."""
    return _is_kept(*_response(operator))


def check_noise(observation: Observation, noise: GaussianNoise) -> None:
    """Asks for the units of a noise, on the scale of the prior, that leaves nothing to be seen."""
    level = float(np.median(np.asarray(noise.std)))
    if level > _ASKED_IN_NOISE:
        raise UserError(
            f"The noise of {level * observation.scaling.step:.4g} is {level:.3g} times as large as"
            f" the range of the image ({_taken(observation)}), so that nothing can be seen: give"
            f" the noise in the units of {observation.name}, or say what black and white are with"
            " --offset and --scale."
        )


def _taken(observation: Observation) -> str:
    scaling = observation.scaling
    return f"black is taken to be {scaling.offset:.6g} and white {scaling.white:.6g}"


def _response(
    operator: Operator,
) -> tuple[Float[np.ndarray, "*data"], Bool[np.ndarray, "*data"]]:
    """What the operator makes of an image of ones, and which data are observed."""
    shape = operator.input_shape or ()
    ones = np.asarray(operator(np.ones(shape)), np.float64)
    return ones, np.asarray(operator.observed(jnp.ones(shape, bool)))


def _is_kept(ones: Float[np.ndarray, "*data"], seen: Bool[np.ndarray, "*data"]) -> bool:
    return bool(seen.any() and abs(np.median(ones[seen]) - 1) < _KEPT)


def _check_range(
    observation: Observation,
    values: Float[np.ndarray, "*data"],
    shown: Bool[np.ndarray, "*data"],
    noise: GaussianNoise | None,
) -> None:
    """Asks what black and white are where data cannot be images with so much noise."""
    scaling = observation.scaling
    low, high = float(values[shown].min()), float(values[shown].max())
    level = None if noise is None else float(np.median(np.asarray(noise.std)))
    beyond = max(-low, high - 1) - _SPREAD * min(level or 0.0, _ASKED_IN_NOISE)
    raw = observation.raw[shown]
    values_of_file = observation.show(raw.min(), raw.max())
    text = f"{observation.name} has values from {values_of_file}, but {_taken(observation)}"
    if beyond > (_ASKED_IN_NOISE if level is None else _ASKED):
        raise _question(observation, text)
    if noise is not None:
        check_noise(observation, noise)
    if level is not None and beyond > _NOTICED:
        explained = f"a noise of {level * scaling.step:.3g}" if level else "no noise"
        warnings.warn(f"{text}; {explained} does not explain that.", stacklevel=3)
    elif low < high < _FAINT and (level is None or level < high - low):
        # Little of a dark image may be black; a whole one hardly is.
        if observation.kind != "uint8" and np.count_nonzero(shown) > shown.size / 2:
            raise _question(observation, text)
        warnings.warn(f"{text}: is the image so dark?", stacklevel=3)


def _question(observation: Observation, text: str) -> UserError:
    # Black before --invert: without --offset it would be 0.
    black = min(observation.scaling.offset, observation.scaling.white)
    offset = f"--offset {black:.6g} " if black else ""
    return UserError(
        f"{text}: say what they are with --offset BLACK --scale WHITE-MINUS-BLACK, or confirm it"
        f" with {offset}--scale {observation.scaling.step:.6g}."
    )
