"""Every method that is compared; docs/comparison.md says where its settings come from."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.posterior import Posterior, solve
from latentuq.problem import InverseProblem
from studies.baselines import BaselineResult

DRAWS = 4096
"""What is asked of the methods whose draws cost nothing: as many as SMC returns."""

STAGE = "seconds in "
"""How the history of our own runs names the time of each stage."""

CERTIFICATE = ("verdict", "khat", "ess")
"""What else it names."""


class Task(NamedTuple):
    """What a method is given.

    Attributes:
        problem: To be solved.
        posterior: Ours of it; some methods start from its modes.
        starts: Minimisations of the paper's search.
    """

    problem: InverseProblem
    posterior: Posterior
    starts: int


Run = Callable[[Key[Array, ""], Task], BaselineResult]


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of the comparison.

    Attributes:
        title: For tables and figures.
        run: Takes a key and a task.
        slow: Takes minutes per problem; left out unless asked for.
        repeats: Most runs on a problem; None: as many as are asked for.
    """

    title: str
    run: Run
    slow: bool = False
    repeats: int | None = None


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

    def run(key: Key[Array, ""], task: Task) -> BaselineResult:
        first = timed(key, task.problem)[2]
        post, draws, seconds = timed(key, task.problem)
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
                **{f"{STAGE}{stage}": np.array(seconds) for stage, seconds in d.seconds.items()},
                "verdict": np.array(post.verdict.word),
                "khat": np.array(d.khat),
                "ess": np.array(d.ess),
            },
        )

    return run


def _smc(key: Key[Array, ""], task: Task) -> BaselineResult:
    from studies.baselines.smc import smc

    return smc(key, task.problem.log_density, task.problem.dim)


def _laplace(key: Key[Array, ""], task: Task) -> BaselineResult:
    from studies.baselines.laplace_mixture import laplace_mixture

    post = task.posterior
    result = laplace_mixture(key, task.problem.log_density, post.modes, draws=DRAWS)
    # It needs the modes: the time of the search that found them is part of it.
    seconds = post.diagnostics.seconds["search"]
    return dataclasses.replace(result, seconds=result.seconds + seconds)


def _adam(batched: bool, short: bool = False) -> Run:
    def run(key: Key[Array, ""], task: Task) -> BaselineResult:
        from studies.baselines.adam import SHORT_STEPS, STEPS, adam_recipe

        problem = task.problem
        return adam_recipe(
            key,
            problem.log_density,
            problem.dim,
            starts=task.starts,
            steps=SHORT_STEPS if short else STEPS,
            batched=batched,
            draws=DRAWS,
        )

    return run


def _svi(family: Any, published: bool = False) -> Run:
    def run(key: Key[Array, ""], task: Task) -> BaselineResult:
        from studies.baselines.svi import FAST, PAPER, svi

        problem = task.problem
        settings = PAPER[family] if published else FAST
        return svi(
            key, problem.log_density, problem.dim, family=family, settings=settings, draws=DRAWS
        )

    return run


def _nuts(from_modes: bool) -> Run:
    def run(key: Key[Array, ""], task: Task) -> BaselineResult:
        from studies.baselines.nuts import nuts

        starts = _heavy_modes(task.posterior) if from_modes else None
        return nuts(key, task.problem.log_density, task.problem.dim, starts=starts)

    return run


def _heavy_modes(post: Posterior) -> Float[Array, "modes dim"]:
    return post.modes[jnp.asarray(post.weights) > 0.01]


def _pathfinder(key: Key[Array, ""], task: Task) -> BaselineResult:
    from studies.baselines.pathfinder import pathfinder

    return pathfinder(key, task.problem.log_density, task.problem.dim, draws=DRAWS)


def _miwae(key: Key[Array, ""], task: Task) -> BaselineResult:
    from studies.baselines.miwae import miwae

    return miwae(key, task.problem)


def _pseudo_gibbs(key: Key[Array, ""], task: Task) -> BaselineResult:
    from studies.baselines.gibbs import pseudo_gibbs

    return pseudo_gibbs(key, task.problem)


def _metropolis(key: Key[Array, ""], task: Task) -> BaselineResult:
    from studies.baselines.gibbs import metropolis_within_gibbs

    return metropolis_within_gibbs(key, task.problem)


def _cross_coding(key: Key[Array, ""], task: Task) -> BaselineResult:
    from studies.baselines.cross_coding import cross_coding

    return cross_coding(key, task.problem)


METHODS = {
    "latentuq": Method("latentuq", run_ours("default")),
    "preview": Method("latentuq, preview", run_ours("preview")),
    "laplace": Method("Laplace at our modes", _laplace),
    "adam-batched": Method("paper's Adam recipe, batched", _adam(batched=True)),
    "adam-short": Method("paper's Adam recipe, batched, short", _adam(batched=True, short=True)),
    "adam": Method("paper's Adam recipe, as published", _adam(batched=False), slow=True, repeats=3),
    "mean-field": Method("mean-field SVI, fast", _svi("mean-field")),
    "full-rank": Method("full-rank SVI, fast", _svi("full-rank")),
    "mean-field-paper": Method(
        "mean-field SVI, paper's settings", _svi("mean-field", published=True), slow=True, repeats=1
    ),
    "full-rank-paper": Method(
        "full-rank SVI, paper's settings", _svi("full-rank", published=True), slow=True, repeats=1
    ),
    "pathfinder": Method("Pathfinder", _pathfinder),
    "nuts": Method("NUTS from the prior", _nuts(from_modes=False), slow=True, repeats=1),
    "nuts-modes": Method("NUTS from our modes", _nuts(from_modes=True), slow=True, repeats=1),
    "smc": Method("SMC from the prior", _smc),
    "miwae": Method("MIWAE", _miwae),
    "pseudo-gibbs": Method("pseudo-Gibbs", _pseudo_gibbs),
    "metropolis": Method("Metropolis within Gibbs", _metropolis),
    "cross-coding": Method("cross-coding", _cross_coding),
}
"""By the names that `latentuq bench --methods` takes."""
