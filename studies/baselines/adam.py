"""The paper's recipe: annealed Adam from prior draws, then a Laplace mixture.

Boehm, Lanusse and Seljak (2019), arXiv 1910.10046, appendix A and the notebooks published with it.
Each start descends -ln prior - weight * ln likelihood by Adam, with a likelihood weight that rises
from 0.2 to 0.5 in the first stage and is 1 after it. End points with a Hessian that is not positive
definite are discarded, copies are merged, and the minima become a mixture, see `laplace_mixture`.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Key

from latentuq import UserError
from latentuq.core.compilation import bounded_jit
from latentuq.core.cores import one_core
from latentuq.inference.result import Counts
from latentuq.inference.target import Target, may_wait
from studies.baselines.laplace_mixture import distinct_minima, fit_points, mix, sample_mixture
from studies.baselines.result import BaselineResult, LogDensity
from studies.baselines.schedule import run_adam, staged_rates
from studies.baselines.timing import Timer

LEARNING_RATES = (0.1, 0.01, 0.001)
STEPS = (10000, 5000, 3000)
"""The numbers of steps at each learning rate, as published for solidmask."""
SHORT_STEPS = (1100, 400, 100)
"""The numbers of steps where the paper times the recipe against SVI, on masknoise05."""


def adam_recipe(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    dim: int,
    *,
    starts: int = 10,
    steps: Sequence[int] = STEPS,
    batched: bool = True,
    draws: int = 1000,
    scale: float = 1.0,
) -> BaselineResult:
    """Finds modes by annealed Adam and draws from the Laplace mixture at them.

    The evidence is the sum of the modes' Laplace masses: the paper's weights imply it, and where
    modes overlap it counts mass more than once. `history` holds -ln p at each start's end point,
    and the weights and log masses of the minima kept, deepest first.

    The paper takes 10 to 20 starts. They descend all at once, in two halves, if `batched`, else one
    after another, as published; `steps` are those of each stage.
    """
    rates = staged_rates(LEARNING_RATES, steps)
    target = Target(log_density_fn, dim, scale=scale)
    weights = annealed_weights(steps)
    start_key, draw_key = jax.random.split(key)
    timer = Timer()
    points = target.sample_reference(start_key, starts)
    if batched:
        with one_core(may_wait(target)):
            ends = timer.run_halves(descend_all, target, points, rates, weights, divided=[1])
    else:
        ends = jnp.stack(
            [timer.run(_descend_one, target, point, rates, weights) for point in points]
        )
    fits, log_densities = timer.run(fit_points, target, ends)
    kept = distinct_minima(fits, log_densities)
    if kept.size == 0:
        raise UserError(f"None of {starts} starts ended in a minimum; take more starts or steps.")
    mixture = mix(fits, kept)
    counts = Counts(forwards=starts, gradients=starts * rates.size, hessians=starts)
    return timer.result(
        timer.run(sample_mixture, draw_key, mixture, draws),
        counts,
        logsumexp(fits.log_mass[kept]),
        losses=-np.asarray(log_densities),
        weights=np.exp(mixture.log_weights)[kept],
        log_masses=np.asarray(fits.log_mass)[kept],
    )


def annealed_weights(steps: Sequence[int]) -> Float[Array, " steps"]:
    """The published weight of the likelihood at each step.

    exp(j / n - 1) / 2 at step j of the n of the first stage, rounded to one decimal; 1 thereafter.
    """
    first, *others = steps
    rising = np.round(0.5 * np.exp(np.arange(first) / first - 1), 1)
    return jnp.asarray(np.concatenate([rising, np.ones(sum(others))]), jnp.float32)


def _descend(
    target: Target,
    start: Float[Array, " dim"],
    rates: Float[Array, " steps"],
    weights: Float[Array, " steps"],
) -> Float[Array, " dim"]:
    """Where Adam ends; its moments are kept from stage to stage, as published."""

    def loss(u, weight):
        log_prior = target.log_reference(u)
        return -log_prior - weight * (target.log_density_fn(u) - log_prior)

    return run_adam(loss, start, rates, weights)[0]


_descend_one = bounded_jit(_descend)


@bounded_jit
def descend_all(
    target: Target,
    starts: Float[Array, "starts dim"],
    rates: Float[Array, " steps"],
    weights: Float[Array, " steps"],
) -> Float[Array, "starts dim"]:
    """Where Adam ends from each start, with a learning rate and a likelihood weight per step."""
    return jax.vmap(lambda start: _descend(target, start, rates, weights))(starts)
