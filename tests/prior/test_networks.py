import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq.prior import architecture
from latentuq.prior.networks import ACTIVATIONS, init_residual_network


def test_the_activations_that_flags_name_are_those_that_exist():
    assert tuple(ACTIVATIONS) == architecture.ACTIVATIONS


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_stacked_blocks_equal_the_written_out_network(activation):
    network = init_residual_network(jax.random.key(0), 3, 5, 7, 2, activation)
    act = ACTIVATIONS[activation]
    h = jax.random.normal(jax.random.key(1), (3,))
    expected = h @ network.entry.weight + network.entry.bias
    first, second = network.blocks
    for i in range(2):
        inner = act(expected) @ first.weight[i] + first.bias[i]
        expected = expected + act(inner) @ second.weight[i] + second.bias[i]
    expected = act(expected) @ network.exit.weight + network.exit.bias
    np.testing.assert_allclose(network(h), expected, rtol=1e-5, atol=1e-6)


def test_compiled_size_does_not_grow_with_depth():
    def lines(blocks):
        network = init_residual_network(jax.random.key(0), 3, 5, 7, blocks, "silu")
        return len(jax.jit(lambda h: network(h)).lower(jnp.ones(3)).as_text().splitlines())

    assert lines(8) == lines(2)


def test_smooth_networks_have_curvature_and_leaky_ones_have_none():
    def curvature(activation):
        network = init_residual_network(jax.random.key(0), 3, 5, 16, 2, activation)
        return float(jnp.max(jnp.abs(jax.hessian(network)(jnp.ones(3)))))

    assert curvature("silu") > 1e-3
    assert curvature("leaky_relu") == 0.0
