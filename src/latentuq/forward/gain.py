"""Gain: one factor per pixel."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from latentuq.forward.operator import PixelwiseOperator, Shape, finite_float32, size


class Gain(PixelwiseOperator):
    """Multiplies every pixel by its gain (vignetting, exposure); one number means all alike."""

    gain: Float[Array, "*shape"]
    input_shape: Shape | None = eqx.field(static=True)

    def __init__(self, gain: object):
        self.gain = finite_float32(gain, "The gain")
        self.input_shape = self.gain.shape or None

    def apply(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return self.gain * x

    def pixel_factors(self) -> Float[np.ndarray, "*shape"]:
        return np.broadcast_to(np.asarray(self.gain, np.float64), self.input_shape or ())

    def parameters(self) -> Mapping[str, Any]:
        return {"gain": np.asarray(self.gain)}

    def __repr__(self) -> str:
        return f"Gain({size(self.gain.shape) or 'one number'})"
