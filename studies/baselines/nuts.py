"""The no-U-turn sampler: exact in the limit, but a chain seldom leaves the mode it is in.

The chains of each half run side by side and wait for the longest trajectory of each step, so the
time grows faster than the gradients that are counted.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from latentuq import UserError
from latentuq.core.compilation import bounded_jit
from latentuq.core.cores import one_core
from latentuq.inference.result import Counts
from latentuq.inference.target import Target, log_densities, may_wait
from studies.baselines.result import BaselineResult, LogDensity
from studies.baselines.timing import Timer


class Chains(NamedTuple):
    """What the chains visited.

    Attributes:
        positions: States after the warm-up.
        divergent: Whether the trajectory to each was cut off.
        leapfrogs: Gradients of that trajectory.
    """

    positions: Float[Array, "chains draws dim"]
    divergent: Bool[Array, "chains draws"]
    leapfrogs: Int[Array, "chains draws"]


def nuts(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    dim: int,
    *,
    chains: int = 8,
    warmup: int = 1000,
    draws: int = 500,
    starts: Sequence[Any] | Float[Array, "n dim"] | None = None,
    scale: float = 1.0,
) -> BaselineResult:
    """Runs independent chains; returns all their states after the warm-up.

    Step size and mass matrix (diagonal) are adapted to each chain, as in Stan. There is no
    evidence. `history` holds the split R-hat of every coordinate, the divergent steps of every
    chain after its warm-up, and the gradients of every chain in all.

    Each chain adapts in `warmup` steps, which are dropped, and keeps `draws` steps. The chains
    begin at the `starts` in turn, or else at draws of N(0, scale^2 I).
    """
    target = Target(log_density_fn, dim, scale=scale)
    start_key, warmup_key, draw_key = jax.random.split(key, 3)
    if starts is None:
        points = target.sample_reference(start_key, chains)
    else:
        points = jnp.asarray(starts, jnp.float32)[jnp.arange(chains) % len(starts)]
    timer = Timer()
    if not np.all(np.isfinite(timer.run(log_densities, target.log_density, points))):
        raise UserError("The log density is not finite where a chain starts; give other starts.")
    with one_core(may_wait(target)):
        keys = jax.random.split(warmup_key, chains)
        tuned = timer.run_halves(_warm_up, keys, target, points, warmup, divided=[0, 2])
        states, parameters, leapfrogs = tuned
        keys = jax.random.split(draw_key, chains)
        visited = timer.run_halves(
            _sample, keys, target, states, parameters, draws, divided=[0, 2, 3]
        )
    # One gradient starts a chain, one more per leapfrog step.
    gradients = 1 + np.asarray(leapfrogs).sum(1) + np.asarray(visited.leapfrogs).sum(1)
    counts = Counts(forwards=chains, gradients=int(np.sum(gradients)))
    return timer.result(
        np.asarray(visited.positions).reshape(chains * draws, dim),
        counts,
        rhat=split_rhat(visited.positions),
        divergences=np.asarray(visited.divergent).sum(1).astype(float),
        gradients=gradients.astype(float),
    )


def split_rhat(positions: Float[Array, "chains draws dim"]) -> Float[np.ndarray, " dim"]:
    """Split R-hat of each coordinate (Gelman et al. 2013): every chain counts as two halves.

    R-hat^2 = ((h - 1) W + B) / (h W) with h draws in a half, W the mean variance within halves and
    B / h the variance between their means.
    """
    values = np.asarray(positions, np.float64)
    half = values.shape[1] // 2
    halves = np.concatenate([values[:, :half], values[:, half : 2 * half]])
    within = np.mean(np.var(halves, axis=1, ddof=1), axis=0)
    between = np.var(np.mean(halves, axis=1), axis=0, ddof=1)
    return np.sqrt((half - 1) / half + between / within)


@bounded_jit
def _warm_up(
    keys: Key[Array, " chains"], target: Target, points: Float[Array, "chains dim"], steps: int
) -> tuple[Any, Any, Int[Array, "chains steps"]]:
    """States of the adapted chains, their parameters, and the gradients of each step."""
    import blackjax

    def warm_up(key, point):
        adaptation: Any = blackjax.window_adaptation(
            blackjax.nuts,
            target.log_density,
            adaptation_info_fn=lambda state, info, adapted: info.num_integration_steps,
        )
        (state, parameters), leapfrogs = adaptation.run(key, point, steps)
        return state, parameters, leapfrogs

    return jax.vmap(warm_up)(keys, points)


@bounded_jit
def _sample(
    keys: Key[Array, " chains"], target: Target, states: Any, parameters: Any, draws: int
) -> Chains:
    from blackjax.mcmc import nuts as sampler

    kernel: Any = sampler.build_kernel()

    def chain(key, state, parameters):
        def step(state, step_key):
            state, info = kernel(step_key, state, target.log_density, **parameters)
            return state, Chains(state.position, info.is_divergent, info.num_integration_steps)

        return jax.lax.scan(step, state, jax.random.split(key, draws))[1]

    return jax.vmap(chain)(keys, states, parameters)
