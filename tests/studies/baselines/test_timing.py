"""Halves that run at the same time give what the whole gives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from studies.baselines.timing import Timer


@eqx.filter_jit
def walk(keys, width, states, steps):
    """Rows that know nothing of each other, in a tree."""
    noise = jax.vmap(lambda key: jax.random.normal(key, (steps,)))(keys)
    return {"ends": states["points"] + width * noise.sum(1), "paths": noise}


@pytest.mark.parametrize("rows", [1, 2, 5, 6])
def test_halves_make_the_whole(rows):
    keys = jax.random.split(jax.random.key(0), rows)
    states = {"points": jnp.arange(float(rows))}
    timer = Timer()
    found = timer.run_halves(walk, keys, 0.5, states, 3, divided=[0, 2])
    jax.tree.map(np.testing.assert_array_equal, found, walk(keys, 0.5, states, 3))
    assert timer.seconds > 0


def test_compilation_is_kept_apart():
    double = jax.jit(lambda x: 2 * x)
    first, second = Timer(), Timer()
    first.run(double, jnp.ones(3))
    second.run(double, jnp.ones(3))
    assert first.compile_seconds > first.seconds
    assert second.compile_seconds == 0
    assert second.seconds > 0
