"""Perceptrons whose equal layers are stacked: compile time does not grow with depth."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "tanh": jnp.tanh,
    "softplus": jax.nn.softplus,
    "leaky_relu": lambda h: jax.nn.leaky_relu(h, 0.2),
}


class Linear(eqx.Module):
    """h -> h W + b, with W stored input-first so that a batch multiplies from the left."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __call__(self, h: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        return h @ self.weight + self.bias


def init_linear(key: Key[Array, ""], inputs: int, outputs: int, gain: float = 1.0) -> Linear:
    """Draws weights with variance gain^2 / inputs; the bias is zero."""
    weight = gain * jax.random.normal(key, (inputs, outputs)) / jnp.sqrt(inputs)
    return Linear(weight, jnp.zeros(outputs))


class ResidualNetwork(eqx.Module):
    """A linear entry, residual blocks h -> h + W2 a(W1 a(h)), and a linear exit.

    The blocks' weights are stacked along a leading axis and applied by `lax.scan`.
    """

    entry: Linear
    blocks: tuple[Linear, Linear]
    exit: Linear
    activation: str = eqx.field(static=True)

    def __call__(self, h: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        activate = ACTIVATIONS[self.activation]

        def apply_block(h, block):
            first, second = block
            return h + second(activate(first(activate(h)))), None

        h, _ = jax.lax.scan(apply_block, self.entry(h), self.blocks)
        return self.exit(activate(h))


def init_residual_network(
    key: Key[Array, ""], inputs: int, outputs: int, width: int, blocks: int, activation: str
) -> ResidualNetwork:
    """Draws a network whose blocks start small, so that it begins close to a linear map."""
    entry_key, exit_key, *block_keys = jax.random.split(key, 2 + 2 * blocks)

    def stack(keys, gain):
        layers = [init_linear(k, width, width, gain) for k in keys]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)

    return ResidualNetwork(
        entry=init_linear(entry_key, inputs, width),
        blocks=(stack(block_keys[:blocks], 1.4), stack(block_keys[blocks:], 1.4 / blocks**0.5)),
        exit=init_linear(exit_key, width, outputs, 0.5),
        activation=activation,
    )
