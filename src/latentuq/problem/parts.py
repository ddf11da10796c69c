"""Data and noise of a stack of operators, given as a list with one entry for each part."""

from typing import Any, cast

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from latentuq.core.arrays import read_real
from latentuq.core.errors import UserError
from latentuq.forward.operator import Composed, Operator
from latentuq.forward.stacked import Stack
from latentuq.likelihood.noise import GaussianNoise

Parts = list[Any] | tuple[Any, ...]


def join_data(operator: Operator, y: ArrayLike | Parts) -> ArrayLike:
    """The data as one array: a list of arrays, one for each part of a stack, is laid end to end.

    A list of plain numbers is one vector, with or without a stack.
    """
    stack = _stack(operator)
    if stack is None or not isinstance(y, list | tuple) or not any(map(_is_array, y)):
        return y  # pyright: ignore[reportReturnType]
    return stack.join(*(read_real(each, "Each part of y") for each in y))


def join_noise(operator: Operator, noise: GaussianNoise | Parts) -> GaussianNoise:
    """The noise of all data; a list has one noise, level or map for each part of a stack."""
    if isinstance(noise, GaussianNoise):
        return noise
    stack = _stack(operator)
    if stack is None or not isinstance(noise, list | tuple):
        raise UserError(f"The noise must be of type GaussianNoise, not {noise!r}.")
    return GaussianNoise(stack.join(*map(_level, noise)))


def _is_array(value: object) -> bool:
    return isinstance(value, list | tuple) or np.ndim(cast(Any, value)) > 0


def _level(noise: object) -> Float[np.ndarray, "..."]:
    """The standard deviations of one part."""
    noise = noise if isinstance(noise, GaussianNoise) else GaussianNoise(noise)
    if noise.factor is not None:
        raise UserError(
            "A part of a stack cannot have a noise covariance of its own: give one covariance for"
            " all data."
        )
    return np.asarray(noise.std)


def _stack(operator: Operator) -> Stack | None:
    """The stack that makes the data, if one does."""
    while isinstance(operator, Composed):
        operator = operator.outer
    return operator if isinstance(operator, Stack) else None
