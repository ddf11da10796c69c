"""Every method that is compared; docs/comparison.md says where its settings come from."""

import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from latentuq import InverseProblem, Posterior, solve
from studies.baselines import adam
from studies.baselines.cross_coding import cross_coding
from studies.baselines.gibbs import metropolis_within_gibbs, pseudo_gibbs
from studies.baselines.laplace_mixture import laplace_mixture
from studies.baselines.miwae import miwae
from studies.baselines.nuts import nuts
from studies.baselines.pathfinder import pathfinder
from studies.baselines.result import BaselineResult
from studies.baselines.smc import smc
from studies.baselines.svi import FAST, PAPER, Settings, svi

DRAWS = 4096
"""What is asked of the methods whose draws cost nothing: as many as SMC returns."""


class Task(NamedTuple):
    """What a method is given.

    Attributes:
        problem: The problem to be solved.
        posterior: Our posterior of it; some methods start from its modes.
        starts: The number of minimisations of the paper's search.
    """

    problem: InverseProblem
    posterior: Posterior
    starts: int


Run = Callable[[Key[Array, ""], Task], BaselineResult]


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of the comparison.

    Attributes:
        title: The name in tables and figures.
        run: The method as a function of a key and a task.
        slow: Whether it takes minutes per problem; it is then left out unless asked for.
        repeats: The most runs on a problem; None for as many as are asked for.
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
            facts={
                "stages": {stage: round(spent, 3) for stage, spent in d.seconds.items()},
                "verdict": str(post.verdict),
                "khat": d.khat,
                "ess": d.ess,
            },
        )

    return run


def _laplace(key: Key[Array, ""], task: Task) -> BaselineResult:
    post = task.posterior
    result = laplace_mixture(key, task.problem.log_density, post.modes, draws=DRAWS)
    # It needs the modes: the time of the search that found them is part of it.
    seconds = post.diagnostics.seconds["search"]
    return dataclasses.replace(result, seconds=result.seconds + seconds)


def _on_density(method: Callable[..., BaselineResult], **settings: object) -> Run:
    """A method that sees nothing of a problem but its log density."""
    return lambda key, task: method(key, task.problem.log_density, task.problem.dim, **settings)


def _on_problem(method: Callable[..., BaselineResult]) -> Run:
    return lambda key, task: method(key, task.problem)


def _adam(**settings: object) -> Run:
    return lambda key, task: _on_density(
        adam.adam_recipe, starts=task.starts, draws=DRAWS, **settings
    )(key, task)


def _svi(family: str, settings: Settings) -> Run:
    return _on_density(svi, family=family, settings=settings, draws=DRAWS)


def _nuts_from_modes(key: Key[Array, ""], task: Task) -> BaselineResult:
    heavy = jnp.asarray(task.posterior.weights) > 0.01
    return _on_density(nuts, starts=task.posterior.modes[heavy])(key, task)


METHODS = {
    "latentuq": Method("latentuq", run_ours("default")),
    "preview": Method("latentuq, preview", run_ours("preview")),
    "laplace": Method("Laplace at our modes", _laplace),
    "adam-batched": Method("paper's Adam recipe, batched", _adam()),
    "adam-short": Method("paper's Adam recipe, batched, short", _adam(steps=adam.SHORT_STEPS)),
    "adam": Method("paper's Adam recipe, as published", _adam(batched=False), slow=True, repeats=3),
    "mean-field": Method("mean-field SVI, fast", _svi("mean-field", FAST)),
    "full-rank": Method("full-rank SVI, fast", _svi("full-rank", FAST)),
    "mean-field-paper": Method(
        "mean-field SVI, paper's settings", _svi("mean-field", PAPER["mean-field"]), True, 1
    ),
    "full-rank-paper": Method(
        "full-rank SVI, paper's settings", _svi("full-rank", PAPER["full-rank"]), True, 1
    ),
    "pathfinder": Method("Pathfinder", _on_density(pathfinder, draws=DRAWS)),
    "nuts": Method("NUTS from the prior", _on_density(nuts), slow=True, repeats=1),
    "nuts-modes": Method("NUTS from our modes", _nuts_from_modes, slow=True, repeats=1),
    "smc": Method("SMC from the prior", _on_density(smc)),
    "miwae": Method("MIWAE", _on_problem(miwae)),
    "pseudo-gibbs": Method("pseudo-Gibbs", _on_problem(pseudo_gibbs)),
    "metropolis": Method("Metropolis within Gibbs", _on_problem(metropolis_within_gibbs)),
    "cross-coding": Method("cross-coding", _on_problem(cross_coding)),
}
"""The methods by the names that `python -m studies bench --methods` takes."""
