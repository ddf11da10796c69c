"""Sweep: very many starts descend by gradients alone, so that rare modes are met as well.

A Hessian costs dim + 1 gradients, and a gradient the same in any dimension.
L-BFGS brings a start close to its minimum, and Newton's method then polishes one for each mode.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from latentuq.core.batches import in_chunks
from latentuq.core.compilation import bounded_jit
from latentuq.core.randomness import host_generator
from latentuq.inference.modes import REACH_NATS, SearchState
from latentuq.inference.search import ROUND_STARTS, descend_from, draw_reference
from latentuq.inference.target import Counts, Target

# The starts of one program.
_CHUNK = 512
_MOST_STEPS = 60
_MEMORY = 8
# The decrease of psi, in nats, that is still to be had where a descent has arrived.
_ARRIVED = 1e-3
_SHORTEST = 1e-4
# An end belongs to a mode within this squared Mahalanobis distance, if it is not a nat higher.
_NEAR, _LEVEL = 1.0, 1.0
# The rounds of ends that are handed to Newton's method, at most.
_ROUNDS = 10


class _Lane(NamedTuple):
    """A descent: where it is, psi and its gradient there, and where it looks next."""

    point: Float[Array, " dim"]
    value: Float[Array, ""]
    gradient: Float[Array, " dim"]
    direction: Float[Array, " dim"]
    length: Float[Array, ""]
    memory: optax.OptState

    @property
    def active(self) -> Bool[Array, ""]:
        gain = jnp.sum(self.gradient * self.direction)
        return jnp.isfinite(self.value) & (gain > _ARRIVED) & (self.length > _SHORTEST)


def sweep(
    key: Key[Array, ""],
    target: Target,
    state: SearchState,
    likely: Float[np.ndarray, "n dim"],
    number: int,
) -> SearchState:
    """Descends from so many draws of the reference and from likely places; adds what was found."""
    rng = host_generator(key)
    starts = np.concatenate([draw_reference(rng, target, number), likely]).astype(target.dtype)
    order = rng.permutation(len(starts))
    found, starts = state, starts[order]
    ends, values, gradients = in_chunks(partial(_descend, target), _CHUNK, starts, cores=True)
    ends, values = ends.astype(np.float64), values.astype(np.float64)
    basins = _basins(ends, values, found)
    for _ in range(_ROUNDS):
        deepest = min([mode.value for mode in found.modes] + [float(values.min())])
        left = np.flatnonzero((basins < 0) & (values < deepest + REACH_NATS))
        if not len(left):
            break
        chosen = rng.choice(left, ROUND_STARTS)
        found = descend_from(found, target, ends[chosen].astype(starts.dtype))
        basins = _basins(ends, values, found)
        if np.all(basins[left] < 0):
            break
    # The ends that were handed on are no starts of their own.
    first_hits = [np.flatnonzero(basins == index) for index in range(len(found.modes))]
    known = len(state.modes)
    late = [len(state.values) + (int(hits[0]) if len(hits) else 0) for hits in first_hits[known:]]
    return SearchState(
        found.modes,
        (*state.found_at, *late),
        np.concatenate([state.values, values]),
        np.concatenate([state.basins, basins]),
        np.concatenate([state.independent, order < number]),
        found.counts + Counts(gradients=int(gradients.sum())),
    )


def _basins(
    ends: Float[np.ndarray, "n dim"], values: Float[np.ndarray, " n"], found: SearchState
) -> Int[np.ndarray, " n"]:
    """Finds the mode that each end is at, -1 for none."""
    basins = np.full(len(ends), -1)
    nearest = np.full(len(ends), _NEAR)
    for index, mode in enumerate(found.modes):
        gaps = ends - mode.point
        distances = np.sum((gaps @ mode.hessian) * gaps, axis=1)
        here = (distances < nearest) & (values < mode.value + _LEVEL)
        basins[here], nearest[here] = index, distances[here]
    return basins


@bounded_jit
def _descend(
    target: Target, starts: Float[Array, "starts dim"]
) -> tuple[Float[Array, "starts dim"], Float[Array, " starts"], Int[Array, " starts"]]:
    """Descends by L-BFGS: the ends, the values of psi there, and the gradients that each took."""
    method = optax.scale_by_lbfgs(memory_size=_MEMORY)

    def psi(u: Float[Array, " dim"]) -> Float[Array, ""]:
        return -target.log_density(u)

    evaluate = jax.value_and_grad(psi)

    def towards(lane: _Lane) -> _Lane:
        """Looks from where the lane is: downhill, even if the curvatures seen say otherwise."""
        looked = method.update(lane.gradient, lane.memory, lane.point)
        fresh = method.update(lane.gradient, method.init(lane.point), lane.point)
        downhill = jnp.sum(jnp.asarray(looked[0]) * lane.gradient) > 0
        direction, memory = jax.tree.map(partial(jnp.where, downhill), looked, fresh)
        return lane._replace(direction=direction, memory=memory, length=jnp.ones_like(lane.length))

    def begin(u: Float[Array, " dim"]) -> _Lane:
        value, gradient = evaluate(u)
        lane = _Lane(u, value, gradient, u, jnp.ones((), u.dtype), method.init(u))
        return towards(lane)

    def step(lane: _Lane) -> _Lane:
        there = lane.point - lane.length * lane.direction
        value, gradient = evaluate(there)
        gain = lane.length * jnp.sum(lane.gradient * lane.direction)
        better = value < lane.value - 1e-4 * gain
        moved = towards(lane._replace(point=there, value=value, gradient=gradient))
        stayed = lane._replace(length=lane.length / 4)
        lanes = jax.tree.map(partial(jnp.where, better), moved, stayed)
        return jax.tree.map(partial(jnp.where, lane.active), lanes, lane)

    def more(state: tuple[_Lane, Array]) -> Bool[Array, ""]:
        lanes, steps = state
        return (steps < _MOST_STEPS) & jnp.any(jax.vmap(lambda lane: lane.active)(lanes))

    state = jax.vmap(begin)(starts), jnp.asarray(0)
    lanes, steps = jax.lax.while_loop(
        more, lambda state: (jax.vmap(step)(state[0]), state[1] + 1), state
    )
    return lanes.point, lanes.value, jnp.full(len(starts), steps + 1)
