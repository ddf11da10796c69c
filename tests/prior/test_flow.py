from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq.prior.architecture import FlowSize
from latentuq.prior.flow import LOG_SCALE_LIMIT, init_flow


@cache
def random_flow(dim, depth=8, width=16, activation="silu"):
    """A flow far from the identity: every coupling's last layer is drawn too."""
    flow = init_flow(
        jax.random.key(0),
        FlowSize(depth=depth, width=width, activation=activation),
        jnp.linspace(-1, 1, dim),
        jnp.linspace(0.5, 2, dim),
    )
    last = flow.couplings.layers[2].weight
    noise = 0.1 * jax.random.normal(jax.random.key(1), last.shape)
    return eqx.tree_at(lambda f: f.couplings.layers[2].weight, flow, noise)


@pytest.mark.parametrize(("dim", "activation"), [(1, "silu"), (5, "silu"), (10, "leaky_relu")])
def test_round_trip(dim, activation):
    flow = random_flow(dim, activation=activation)
    u = jax.random.normal(jax.random.key(2), (200, dim))
    z, forward_log_det = jax.vmap(flow.forward)(u)
    back, inverse_log_det = jax.vmap(flow.inverse)(z)
    assert float(jnp.max(jnp.abs(back - u))) < 1e-4
    np.testing.assert_allclose(forward_log_det, -inverse_log_det, atol=1e-4)
    if dim > 1:
        assert float(jnp.max(jnp.abs(z - u))) > 0.5


def test_log_determinant_equals_autodiff():
    flow = random_flow(5)
    u = jax.random.normal(jax.random.key(3), (5, 5))
    expected = jnp.linalg.slogdet(jax.vmap(jax.jacfwd(flow))(u))[1]
    np.testing.assert_allclose(jax.vmap(flow.forward)(u)[1], expected, atol=1e-4)
    assert float(jnp.std(expected)) > 0.1


def test_log_prob_integrates_to_one_on_a_grid():
    flow = random_flow(2, depth=4)
    axis = jnp.linspace(-30, 30, 1201)
    grid = jnp.stack(jnp.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    total = jnp.sum(jnp.exp(jax.vmap(flow.log_prob)(grid))) * (axis[1] - axis[0]) ** 2
    # The density is smooth on the scale of the grid (0.05) and negligible at its edge.
    assert abs(float(total) - 1) < 1e-2


def test_log_scales_stay_within_their_limit():
    flow = random_flow(4)
    weights = flow.couplings.layers[2].weight * 1e4
    flow = eqx.tree_at(lambda f: f.couplings.layers[2].weight, flow, weights)
    coupling = jax.tree.map(lambda leaf: leaf[0], flow.couplings)
    log_scale, _ = coupling.scale_and_shift(flow.kept[0], jnp.ones(4), flow.activation)
    assert float(jnp.max(jnp.abs(log_scale))) <= LOG_SCALE_LIMIT


def test_every_coordinate_is_moved_and_conditions_the_others():
    flow = random_flow(6)
    dependence = jnp.abs(jax.jacfwd(flow)(jnp.full(6, 0.3)))
    assert float(jnp.min(dependence)) > 0


def test_second_derivatives_match_finite_differences():
    flow = random_flow(3)

    def total(u):
        return jnp.sum(flow(u) ** 2)

    u, step = jnp.array([0.2, -0.4, 0.9]), 1e-2
    hessian = jax.hessian(total)(u)
    for i, direction in enumerate(jnp.eye(3)):
        ahead, behind = jax.grad(total)(u + step * direction), jax.grad(total)(u - step * direction)
        np.testing.assert_allclose(hessian[i], (ahead - behind) / (2 * step), rtol=0.02, atol=0.02)
