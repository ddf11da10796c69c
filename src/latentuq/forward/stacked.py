"""Stack: several operators that observe the same image."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from latentuq.core.errors import UserError
from latentuq.forward.operator import Operator, Shape


class Stack(Operator):
    """y = (A x, B x, ...), each flattened and laid end to end in one vector."""

    parts: tuple[Operator, ...]
    input_shape: Shape | None = eqx.field(static=True)

    def __init__(self, parts: tuple[Operator, ...]):
        known = [part.input_shape for part in parts if part.input_shape is not None]
        self.input_shape = shape = known[0] if known else None
        # Those that are bound already are left alone: stacks in stacks would take 2^depth steps.
        self.parts = tuple(
            part if shape in (None, part.input_shape) else part.bind(shape) for part in parts
        )

    def bind(self, shape: Shape) -> "Stack":
        return Stack(tuple(part.bind(shape) for part in self.parts))

    def apply(self, x: Float[Array, "*shape"]) -> Float[Array, " data"]:
        return jnp.concatenate([jnp.ravel(part.apply(x)) for part in self.parts])

    def observed(self, shown: Bool[Array, "*shape"]) -> Bool[Array, " data"]:
        return jnp.concatenate([jnp.ravel(part.observed(shown)) for part in self.parts])

    def join(self, *values: ArrayLike) -> Float[np.ndarray, " data"]:
        """Lays the parts' data, or one number per part (noise levels, say), end to end."""
        if len(values) != len(self.parts):
            raise UserError(f"{self!r} has {len(self.parts)} parts, but {len(values)} were given.")
        pieces = []
        for part, value in zip(self.parts, values, strict=True):
            given = np.asarray(value)
            if given.ndim and given.shape != part.output_shape:
                raise UserError(
                    f"{part!r} makes data of shape {part.output_shape}, not {given.shape}."
                )
            pieces.append(np.broadcast_to(given, part.output_shape).ravel())
        return np.concatenate(pieces)

    def split(self, y: Float[Array, " data"]) -> list[Float[Array, "..."]]:
        """Undoes `join`: the data of each part, in its own shape."""
        shapes = [part.output_shape for part in self.parts]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        return [
            piece.reshape(shape)
            for piece, shape in zip(jnp.split(y, ends[:-1]), shapes, strict=True)
        ]

    def __repr__(self) -> str:
        return f"stack({', '.join(map(repr, self.parts))})"


def stack(*operators: Operator) -> Stack:
    """Observes one image through each of several operators.

    As soon as one of them knows its image shape, the others are bound to it.
    """
    if not operators:
        raise UserError("stack needs at least one operator.")
    for operator in operators:
        if not isinstance(operator, Operator):
            raise UserError(f"stack takes operators, not {operator!r}.")
    return Stack(operators)
