"""Adam with a learning rate for every step."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def staged_rates(learning_rates: Sequence[float], steps: Sequence[int]) -> Float[Array, " steps"]:
    """The learning rate of every step: each stage's own, for as many steps as it has."""
    return jnp.asarray(np.repeat(np.asarray(learning_rates, np.float32), steps))


def run_adam(
    loss: Callable[[Any, Any], Float[Array, ""]],
    start: Any,
    rates: Float[Array, " steps"],
    settings: Any,
) -> tuple[Any, Float[Array, " steps"]]:
    """Descends a loss that every step sees with its own setting; Adam's moments are kept.

    Returns:
        Where the descent ends, and the loss before each step.
    """
    import optax

    adam = optax.scale_by_adam()

    def step(carry, each):
        point, state = carry
        rate, setting = each
        value, gradient = jax.value_and_grad(loss)(point, setting)
        directions, state = adam.update(gradient, state)
        point = jax.tree.map(lambda part, direction: part - rate * direction, point, directions)
        return (point, state), value

    (end, _), values = jax.lax.scan(step, (start, adam.init(start)), (rates, settings))
    return end, values
