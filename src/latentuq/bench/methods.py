"""Every method that is compared, with its authors' recommended settings."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.baselines import BaselineResult
from latentuq.posterior import Posterior, solve
from latentuq.problem import InverseProblem

DRAWS = 1000
"""What is asked of each method, where it lets one choose."""

STAGE = "seconds in "
"""How the history of our own runs names the time of each stage."""

Run = Callable[[Key[Array, ""], InverseProblem, Posterior], BaselineResult]


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of the comparison.

    Attributes:
        title: For tables and figures.
        run: Takes a key, the problem, and our posterior of it: some methods start from its modes.
        slow: Takes minutes per problem; left out unless asked for.
    """

    title: str
    run: Run
    slow: bool = False


def run_ours(budget: str) -> Run:
    """Our own inference as if it were a baseline, run twice: what the first took longer, compiled.

    Which functions are needed depends on the key, so only the same key has nothing left to compile.
    """

    def timed(key: Key[Array, ""], problem: InverseProblem) -> tuple[Posterior, Array, float]:
        solve_key, draw_key = jax.random.split(key)
        start = time.perf_counter()
        post = solve(solve_key, problem, budget=budget)
        draws = jax.block_until_ready(post.sample(draw_key, DRAWS))
        return post, draws, time.perf_counter() - start

    def run(key: Key[Array, ""], problem: InverseProblem, _: Posterior) -> BaselineResult:
        first = timed(key, problem)[2]
        post, draws, seconds = timed(key, problem)
        d = post.diagnostics
        return BaselineResult(
            draws=np.asarray(draws),
            log_evidence=post.log_evidence,
            log_evidence_error=post.log_evidence_error,
            seconds=seconds,
            compile_seconds=max(0.0, first - seconds),
            gradients=d.counts.gradients,
            forward_equivalents=d.forward_equivalents,
            history={
                f"{STAGE}{stage}": np.array([seconds]) for stage, seconds in d.seconds.items()
            },
        )

    return run


def _smc(key: Key[Array, ""], problem: InverseProblem, _: Posterior) -> BaselineResult:
    from latentuq.baselines.smc import smc

    return smc(key, problem.log_density, problem.dim)


def _laplace(key: Key[Array, ""], problem: InverseProblem, post: Posterior) -> BaselineResult:
    from latentuq.baselines.laplace_mixture import laplace_mixture

    result = laplace_mixture(key, problem.log_density, post.modes, draws=DRAWS)
    # It needs the modes: the time of the search that found them is part of it.
    seconds = post.diagnostics.seconds["search"]
    return dataclasses.replace(result, seconds=result.seconds + seconds)


def _adam(batched: bool) -> Run:
    def run(key: Key[Array, ""], problem: InverseProblem, _: Posterior) -> BaselineResult:
        from latentuq.baselines.adam import adam_recipe

        return adam_recipe(key, problem.log_density, problem.dim, batched=batched, draws=DRAWS)

    return run


def _svi(family: Any, published: bool = False) -> Run:
    def run(key: Key[Array, ""], problem: InverseProblem, _: Posterior) -> BaselineResult:
        from latentuq.baselines.svi import FAST, PAPER, svi

        settings = PAPER[family] if published else FAST
        return svi(
            key, problem.log_density, problem.dim, family=family, settings=settings, draws=DRAWS
        )

    return run


def _nuts(from_modes: bool) -> Run:
    def run(key: Key[Array, ""], problem: InverseProblem, post: Posterior) -> BaselineResult:
        from latentuq.baselines.nuts import nuts

        starts = _heavy_modes(post) if from_modes else None
        return nuts(key, problem.log_density, problem.dim, starts=starts)

    return run


def _heavy_modes(post: Posterior) -> Float[Array, "modes dim"]:
    return post.modes[jnp.asarray(post.weights) > 0.01]


def _pathfinder(key: Key[Array, ""], problem: InverseProblem, _: Posterior) -> BaselineResult:
    from latentuq.baselines.pathfinder import pathfinder

    return pathfinder(key, problem.log_density, problem.dim, draws=DRAWS)


def _miwae(key: Key[Array, ""], problem: InverseProblem, _: Posterior) -> BaselineResult:
    from latentuq.baselines.miwae import miwae

    return miwae(key, problem)


def _pseudo_gibbs(key: Key[Array, ""], problem: InverseProblem, _: Posterior) -> BaselineResult:
    from latentuq.baselines.gibbs import pseudo_gibbs

    return pseudo_gibbs(key, problem)


def _metropolis(key: Key[Array, ""], problem: InverseProblem, _: Posterior) -> BaselineResult:
    from latentuq.baselines.gibbs import metropolis_within_gibbs

    return metropolis_within_gibbs(key, problem)


def _cross_coding(key: Key[Array, ""], problem: InverseProblem, _: Posterior) -> BaselineResult:
    from latentuq.baselines.cross_coding import cross_coding

    return cross_coding(key, problem)


METHODS = {
    "latentuq": Method("latentuq", run_ours("default")),
    "preview": Method("latentuq, preview", run_ours("preview")),
    "laplace": Method("Laplace at our modes", _laplace),
    "adam-batched": Method("paper's Adam recipe, batched", _adam(batched=True)),
    "adam": Method("paper's Adam recipe, as published", _adam(batched=False), slow=True),
    "mean-field": Method("mean-field SVI, fast", _svi("mean-field")),
    "full-rank": Method("full-rank SVI, fast", _svi("full-rank")),
    "mean-field-paper": Method(
        "mean-field SVI, paper's settings", _svi("mean-field", published=True), slow=True
    ),
    "full-rank-paper": Method(
        "full-rank SVI, paper's settings", _svi("full-rank", published=True), slow=True
    ),
    "pathfinder": Method("Pathfinder", _pathfinder),
    "nuts": Method("NUTS from the prior", _nuts(from_modes=False)),
    "nuts-modes": Method("NUTS from our modes", _nuts(from_modes=True)),
    "smc": Method("SMC from the prior", _smc),
    "miwae": Method("MIWAE", _miwae),
    "pseudo-gibbs": Method("pseudo-Gibbs", _pseudo_gibbs),
    "metropolis": Method("Metropolis within Gibbs", _metropolis),
    "cross-coding": Method("cross-coding", _cross_coding),
}
"""By the names that `latentuq bench --methods` takes."""
