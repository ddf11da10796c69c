"""Hamiltonian moves that spread particles over a density."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from latentuq.core.compilation import bounded_jit
from latentuq.inference.mixture import normal_draws
from latentuq.inference.target import Target

# The step size is steered towards this mean acceptance, and varies by this fraction.
_ACCEPTANCE = 0.75
_JITTER = 0.2


class Moved(NamedTuple):
    """Particles after the moves.

    Attributes:
        points: The places of the particles at each stop.
        acceptance: The mean probability of acceptance over the stops, move by move.
        step: The size that suits the next steps.
    """

    points: Float[Array, "stops particles dim"]
    acceptance: Float[Array, " moves"]
    step: Float[Array, ""]

    @property
    def last(self) -> Float[Array, "particles dim"]:
        """The places where the particles are now."""
        return self.points[-1]


@bounded_jit
def move(
    key: Key[Array, ""],
    target: Target,
    points: Float[Array, "particles dim"],
    factor: Float[Array, "dim dim"],
    *,
    moves: int,
    stops: int,
    leaps: int,
    step: Float[Array, ""] | float,
) -> Moved:
    """Moves every particle by Hamiltonian Monte Carlo.

    One factor preconditions all momenta: were it chosen by where a particle is, the moves would not
    leave the density as it is. The step size follows the acceptance. A gradient that is not finite
    is no force, and a place where the density is not finite is refused.

    Args:
        key: The randomness.
        target: The density.
        points: The particles.
        factor: A factor of the momenta's inverse mass matrix.
        moves: The number of moves, one after the other.
        stops: The number of stops of one move. The way to each is a shorter move from the same
            start, and accepted or not on its own: a place of the density at no cost.
        leaps: The number of steps from stop to stop.
        step: The size of the first steps.
    """
    n, dim = points.shape

    evaluate = jax.vmap(jax.value_and_grad(target.log_density))

    def kick(momenta, gradients, size):
        force = gradients @ factor
        return momenta + 0.5 * size * jnp.where(jnp.isfinite(force), force, 0)

    def one_move(state, key):
        points, values, gradients, log_step = state
        momentum_key, jitter_key, accept_key = jax.random.split(key, 3)
        momenta = normal_draws(momentum_key, (n, dim), points.dtype)
        jitter = 1 + _JITTER * (2 * jax.random.uniform(jitter_key, (n, 1), points.dtype) - 1)
        size = jnp.exp(log_step) * jitter

        def leap(state, _):
            here, momenta, _, gradients = state
            momenta = kick(momenta, gradients, size)
            here = here + size * (momenta @ factor.T)
            values, gradients = evaluate(here)
            return (here, kick(momenta, gradients, size), values, gradients), None

        def stretch(state, _):
            state, _ = jax.lax.scan(leap, state, None, length=leaps)
            return state, state[:3]

        start = (points, momenta, values, gradients)
        (*_, last_gradients), (there, arrived, new_values) = jax.lax.scan(
            stretch, start, None, length=stops
        )
        gain = new_values - values + 0.5 * jnp.sum(momenta**2 - arrived**2, axis=-1)
        odds = jnp.where(jnp.isfinite(gain), jnp.exp(jnp.minimum(gain, 0)), 0)
        taken = jax.random.uniform(accept_key, gain.shape, points.dtype) < odds
        acceptance = jnp.mean(odds)
        places = jnp.where(taken[..., None], there, points)
        state = (
            places[-1],
            jnp.where(taken[-1], new_values[-1], values),
            jnp.where(taken[-1, :, None], last_gradients, gradients),
            log_step + acceptance - _ACCEPTANCE,
        )
        return state, (places, acceptance)

    values, gradients = evaluate(points)
    log_step = jnp.log(jnp.asarray(step, points.dtype))
    (_, _, _, log_step), (visited, acceptance) = jax.lax.scan(
        one_move, (points, values, gradients, log_step), jax.random.split(key, moves)
    )
    return Moved(visited.reshape(-1, n, dim), acceptance, jnp.exp(log_step))
