"""Downsample: the mean of every block of n x n pixels."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from latentuq.core.errors import UserError
from latentuq.forward.operator import Operator, Shape, size


class Downsample(Operator):
    """y[i, j] = mean of x over block (i, j) of n x n pixels; n must divide the image's sides."""

    n: int = eqx.field(static=True)
    input_shape: Shape | None = eqx.field(static=True)

    def __init__(self, n: int):
        if int(n) != n or n < 1:
            raise UserError(f"Downsample takes a whole number of pixels, 1 or more, not {n}.")
        self.n, self.input_shape = int(n), None

    def check(self, shape: Shape) -> None:
        if any(length % self.n for length in shape):
            raise UserError(
                f"Blocks of {self.n} pixels do not tile an image of {size(shape)} pixels; crop it"
                " or choose a divisor of its sides."
            )

    def apply(self, x: Float[Array, "*shape"]) -> Float[Array, "*data"]:
        blocks = [part for length in x.shape for part in (length // self.n, self.n)]
        return jnp.mean(x.reshape(blocks), axis=tuple(range(1, 2 * x.ndim, 2)))

    @property
    def disjoint(self) -> bool:
        return True

    def input_shape_for(self, output_shape: Shape) -> Shape:
        return tuple(length * self.n for length in output_shape)

    def parameters(self) -> Mapping[str, Any]:
        return {"n": self.n}

    def __repr__(self) -> str:
        return f"Downsample({self.n})"
