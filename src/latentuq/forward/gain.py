"""Gain: one factor per pixel."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from latentuq.forward.operator import (
    Operator,
    Shape,
    check_shape,
    finite_float32,
    size,
    with_fields,
)


class Gain(Operator):
    """Multiplies every pixel by its gain (vignetting, exposure); one number means all alike."""

    gain: Float[Array, "*shape"]
    input_shape: Shape | None = eqx.field(static=True)

    def __init__(self, gain: object):
        self.gain = finite_float32(gain, "The gain")
        self.input_shape = self.gain.shape or None

    def bind(self, shape: Shape) -> "Gain":
        if self.input_shape is None:
            return with_fields(self, gain=jnp.broadcast_to(self.gain, shape), input_shape=shape)
        check_shape(self, shape)
        return self

    def apply(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return self.gain * x

    def observed(self, shown: Bool[Array, "*shape"]) -> Bool[Array, "*shape"]:
        return shown

    def pixels_of(
        self, data: Int[np.ndarray, " n"]
    ) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        return data, np.asarray(self.gain, np.float64).ravel()[data]

    @property
    def disjoint(self) -> bool:
        return True

    def input_shape_for(self, output_shape: Shape) -> Shape:
        return output_shape

    def __repr__(self) -> str:
        return f"Gain({size(self.gain.shape) or 'one number'})"
