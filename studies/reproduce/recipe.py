"""The paper's search: Adam from draws of the prior, with and without annealing."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, Key

from latentuq.core.compilation import bounded_jit
from latentuq.inference.result import Counts
from latentuq.inference.target import Target
from studies.baselines.adam import LEARNING_RATES, annealed_weights, descend_all
from studies.baselines.laplace_mixture import (
    SAME,
    LaplaceFit,
    distinct_minima,
    fit_points,
    mix,
    sample_mixture,
    squared_distances,
)
from studies.baselines.result import LogDensity
from studies.baselines.schedule import staged_rates
from studies.baselines.timing import Timer
from studies.reproduce import published
from studies.reproduce.plan import RELEVANT

ARRIVED = 0.05
"""What a Newton step may still gain, in nats, at a minimum."""

_DRAWS = 400
_HALVINGS = 8
_TRIES = 4000


def run_recipe(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    dim: int,
    *,
    annealed: bool,
    steps: Sequence[int],
    starts: int = published.APPENDIX_STARTS,
) -> dict[str, Any]:
    """Descends, tells minima from other points, and weighs the minima as the paper does.

    Returns:
        `ends`: -ln p where each start ended. `definite`: whether the Hessian there is positive
        definite, which is all that the recipe asks of a minimum. `gains`: what a Newton step
        from there would gain, in nats; large where the descent had not arrived. `basins`: which of
        the separate minima (deepest first) it is, -1 for none. `weights`: the weights of these
        minima. `draws`: draws of their Laplace mixture.
    """
    start_key, draw_key = jax.random.split(key)
    target = Target(log_density_fn, dim)
    rates = staged_rates(LEARNING_RATES, steps)
    weights = annealed_weights(steps) if annealed else jnp.ones(rates.size)
    timer = Timer()
    points = target.sample_reference(start_key, starts)
    ends = timer.run(descend_all, target, points, rates, weights)
    fits, log_densities = timer.run(fit_points, target, ends)
    gains = _newton_gains(target, fits)
    kept = distinct_minima(fits, log_densities)
    counts = Counts(forwards=starts, gradients=starts * rates.size, hessians=starts)
    cell: dict[str, Any] = {
        "starts": starts,
        "steps": int(rates.size),
        "seconds": timer.seconds,
        "forward_equivalents": counts.forward_equivalents(dim),
        "ends": np.round(-np.asarray(log_densities, np.float64), 3).tolist(),
        "definite": (~np.asarray(fits.repaired)).tolist(),
        "gains": np.round(np.asarray(gains, np.float64), 5).tolist(),
        "basins": _basins(fits, kept).tolist(),
        "minima": int(kept.size),
    }
    if not kept.size:
        return cell | {"weights": [], "log_evidence": None, "draws": []}
    mixture = mix(fits, kept)
    draws = sample_mixture(draw_key, mixture, _DRAWS)
    return cell | {
        "weights": np.exp(np.asarray(mixture.log_weights, np.float64))[kept].tolist(),
        "log_evidence": float(logsumexp(fits.log_mass[kept])),
        "draws": np.round(np.asarray(draws), 3).tolist(),
    }


@bounded_jit
def _newton_gains(target: Target, fits: LaplaceFit) -> Float[Array, " starts"]:
    """The most that a Newton step from each point, or a part of it, adds to ln p.

    This is half of grad^T H^-1 grad for a smooth function, and nothing at a minimum; nor is it
    anything at a minimum in a kink, as a LeakyReLU makes them, where the gradient does not vanish.
    """

    def gain(fit):
        step = fit.factor @ (fit.factor.T @ jax.grad(target.log_density)(fit.mean))
        parts = 0.5 ** jnp.arange(_HALVINGS)
        reached = jax.vmap(lambda part: target.log_density(fit.mean + part * step))(parts)
        return jnp.maximum(jnp.max(reached) - target.log_density(fit.mean), 0.0)

    return jax.vmap(gain)(fits)


def _basins(fits: LaplaceFit, kept: Int[np.ndarray, " minima"]) -> Int[np.ndarray, " starts"]:
    """The separate minimum that each end is, by the distance that told them apart."""
    basins = np.full(len(fits.mean), -1)
    for index in np.flatnonzero(~np.asarray(fits.repaired)) if kept.size else []:
        distances = squared_distances(fits, kept, int(index))
        if distances.min() < SAME:
            basins[index] = int(np.argmin(distances))
    return basins


def are_minima(cell: Mapping[str, Any]) -> list[bool]:
    """Which ends of a recipe are minima: curved upwards, and a Newton step gains nothing."""
    pairs = zip(cell["definite"], cell["gains"], strict=True)
    return [definite and gain < ARRIVED for definite, gain in pairs]


def cost_of_ten(cell: Mapping[str, Any]) -> float:
    """Forward equivalents of the paper's ten starts, as a part of those that were made."""
    return cell["forward_equivalents"] * published.STARTS / cell["starts"]


def chance_of_all(basins: Sequence[int], weights: Sequence[float], number: int) -> float | None:
    """The probability that so many of the starts reach every relevant minimum.

    Starts are drawn without repetition from those that were made, so this knows nothing of minima
    that none of them reached. It is None where there is no minimum.
    """
    heavy = {place for place, weight in enumerate(weights) if weight >= RELEVANT}
    if not heavy:
        return None
    rng = np.random.default_rng(0)
    reached = [heavy <= set(rng.permutation(basins)[:number].tolist()) for _ in range(_TRIES)]
    return float(np.mean(reached))
