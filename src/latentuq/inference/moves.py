"""Hamiltonian moves of many particles on a density, or on its way from the reference to it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from latentuq.core.compilation import bounded_jit
from latentuq.inference.mixture import normal_draws
from latentuq.inference.target import Target


class Kernel(NamedTuple):
    """How particles move: by the shape of the region that each of them belongs to.

    Attributes:
        factors: A factor of the momenta's inverse mass matrix, for each region.
        log_steps: Ln of the step size in each region.
    """

    factors: Float[Array | np.ndarray, "regions dim dim"]
    log_steps: Float[Array | np.ndarray, " regions"]


class Pace(NamedTuple):
    """How particles move; see `Settings`. The first two numbers are compiled in."""

    moves: int
    stops: int
    length: Float[Array, ""]
    most_leaps: Float[Array, ""]
    acceptance: Float[Array, ""]
    octaves: Float[Array, ""]


class Moved(NamedTuple):
    """Particles after the moves.

    Attributes:
        points: The places of the particles at each stop.
        log_densities: The values of ln p there.
        log_steps: Ln of the step size that suits the next moves, in each region.
        acceptance: The mean probability of acceptance.
        gradients: The number of gradients that each particle took.
    """

    points: Float[Array, "stops particles dim"]
    log_densities: Float[Array, "stops particles"]
    log_steps: Float[Array, " regions"]
    acceptance: Float[Array, ""]
    gradients: Int[Array, ""]


@bounded_jit
def move(
    key: Key[Array, ""],
    target: Target,
    powers: Float[Array, " 2"],
    points: Float[Array, "particles dim"],
    regions: Int[Array, " particles"],
    kernel: Kernel,
    pace: Pace,
) -> Moved:
    """Moves every particle by Hamiltonian Monte Carlo on a product of powers of p and reference.

    A particle keeps its region wherever it goes: were its kernel chosen by where it is, the moves
    would not leave the density as it is. A move has several stops: the way to each is a shorter
    move from the same start, accepted or not on its own, a place of the density at no cost. Step
    sizes follow the acceptance, and the number of leapfrog steps follows the smallest of them. A
    gradient that is not finite is no force, and a place without finite density is refused.
    """
    n, dim = points.shape
    factors, first_steps = jnp.asarray(kernel.factors), jnp.asarray(kernel.log_steps)
    members = jax.nn.one_hot(regions, len(factors), dtype=points.dtype)
    present = jnp.any(members > 0, axis=0)

    def tempered(u: Float[Array, " dim"]) -> tuple[Array, Array]:
        value = target.log_density(u)
        return powers[0] * value + powers[1] * target.log_reference(u), value

    evaluate = jax.vmap(jax.value_and_grad(tempered, has_aux=True))

    def scale(matrices: Array, vectors: Float[Array, "particles dim"]) -> Array:
        """Multiplies each vector by its region's matrix."""
        return jnp.einsum("kij,nj,nk->ni", matrices, vectors, members, optimize="optimal")

    def push(momenta: Array, gradients: Array, sizes: Array) -> Array:
        force = scale(jnp.swapaxes(factors, 1, 2), gradients)
        return momenta + 0.5 * sizes * jnp.where(jnp.isfinite(force), force, 0)

    def one_move(state, key):
        points, (values, log_densities), gradients, log_steps = state
        momentum_key, jitter_key, accept_key = jax.random.split(key, 3)
        momenta = normal_draws(momentum_key, (n, dim), points.dtype)
        # Few steps are much smaller than most: where a density is narrower than elsewhere, as in
        # the arms of a banana, no larger step would be accepted, and no particle would ever go.
        octaves = pace.octaves * jax.random.uniform(jitter_key, (n, 1), points.dtype) ** 2
        sizes = jnp.exp(members @ log_steps)[:, None] * jnp.exp2(-octaves)
        smallest = jnp.exp(jnp.min(jnp.where(present, log_steps, jnp.inf)))
        leaps = jnp.ceil(pace.length / pace.stops / smallest)
        leaps = jnp.clip(leaps, 2, pace.most_leaps).astype(int)

        def leap(_, state):
            here, momenta, _, gradients = state
            momenta = push(momenta, gradients, sizes)
            here = here + sizes * scale(factors, momenta)
            values, gradients = evaluate(here)
            return here, push(momenta, gradients, sizes), values, gradients

        def stretch(state, _):
            state = jax.lax.fori_loop(0, leaps, leap, state)
            return state, state

        start = (points, momenta, (values, log_densities), gradients)
        _, (there, arrived, (new_values, new_densities), new_gradients) = jax.lax.scan(
            stretch, start, None, length=pace.stops
        )
        gain = new_values - values + 0.5 * jnp.sum(momenta**2 - arrived**2, axis=-1)
        odds = jnp.where(jnp.isfinite(gain), jnp.exp(jnp.minimum(gain, 0)), 0)
        taken = jax.random.uniform(accept_key, gain.shape, points.dtype) < odds
        places = jnp.where(taken[..., None], there, points)
        densities = jnp.where(taken, new_densities, log_densities)
        by_region = jnp.mean(odds, axis=0) @ members / jnp.maximum(jnp.sum(members, axis=0), 1)
        error = jnp.where(present, by_region - pace.acceptance, 0)
        last = taken[-1]
        state = (
            places[-1],
            (jnp.where(last, new_values[-1], values), densities[-1]),
            jnp.where(last[:, None], new_gradients[-1], gradients),
            log_steps + error,
        )
        return state, (places, densities, jnp.mean(odds), pace.stops * leaps)

    begun, gradients = evaluate(points)
    (_, _, _, log_steps), (places, densities, odds, gradients) = jax.lax.scan(
        one_move,
        (points, begun, gradients, first_steps),
        jax.random.split(key, pace.moves),
    )
    return Moved(
        places.reshape(-1, n, dim),
        densities.reshape(-1, n),
        log_steps,
        jnp.mean(odds),
        jnp.sum(gradients) + 1,
    )
