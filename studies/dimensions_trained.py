"""The part of the study of dimensions with trained priors: problems, references and solves.

Ground truth is sequential Monte Carlo from the prior, pooled over runs until its error is small.
The draws of all references go to dimensions.safetensors beside the cells.
"""

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq import (
    Blur,
    GaussianNoise,
    GenerativePrior,
    InverseProblem,
    Posterior,
    RandomMask,
    UserError,
    load_digits,
    load_prior,
    solve,
)
from latentuq.core.cells import Job, job
from latentuq.core.tensors import read_tensors, write_tensors
from latentuq.forward.mask import RegionMask
from latentuq.forward.operator import Operator
from latentuq.prior.training.two_sample import FEWEST_DRAWS, two_sample_accuracy
from latentuq.problem.experiments import SHAPE
from studies.baselines.result import BaselineResult, pool_evidence
from studies.baselines.smc import Pass, Size, plan_smc, smc
from studies.pages import ROOT

_OURS = ROOT / "studies" / "models"
MODELS = {10: "mnist", 32: _OURS / "mnist-32.safetensors", 64: _OURS / "mnist-64.safetensors"}
MODEL_ERROR = "low-rank"
IMAGES = (1, 6, 12, 18)
SEEDS = (0, 1)
SIZE = Size(particles=1024, moves=4, ess=0.5)
FEWEST_RUNS, MOST_RUNS = 4, 12
LARGEST_ERROR = 0.07
"""Of a reference's ln evidence, in nats."""
DRAWS_KEPT = 2000
DRAWS_COMPARED = 1000

_KIND = "dimensions"


class Corruption(NamedTuple):
    """What the instrument does, and the standard deviation of its noise."""

    operator: Operator
    noise: float


CORRUPTIONS = {
    "half hidden": Corruption(RegionMask(columns=(14, 27)), 0.2),
    "columns hidden": Corruption(RegionMask(columns=(10, 23)), 0.05),
    "blurred": Corruption(Blur(2.0), 0.05),
    "95 % removed": Corruption(RandomMask(0.95, seed=779), 0.05),
}


class Problem(NamedTuple):
    """An image under a corruption and a prior of so many dimensions."""

    dim: int
    corruption: str
    image: int

    @property
    def name(self) -> str:
        return f"{self.dim} {self.corruption} {self.image}"

    @property
    def reference(self) -> str:
        """The name of the cell of its reference."""
        return f"trained {self.name} reference"

    @property
    def place(self) -> int:
        return [*CORRUPTIONS].index(self.corruption)


def problems() -> Iterator[Problem]:
    """All problems, in an order in which every dimension and corruption comes early."""
    for image in IMAGES:
        for corruption in CORRUPTIONS:
            yield from (Problem(dim, corruption, image) for dim in MODELS)


@functools.cache
def load_model(dim: int) -> GenerativePrior:
    return load_prior(MODELS[dim]).with_model_error(MODEL_ERROR)


def make_problem(problem: Problem) -> InverseProblem:
    """The problem with its data."""
    operator, noise = CORRUPTIONS[problem.corruption]
    shown = operator.bind(SHAPE).apply(jnp.asarray(load_digits().digit(problem.image)))
    rng = np.random.default_rng([problem.place, problem.image])
    y = np.asarray(shown, np.float64) + noise * rng.standard_normal(SHAPE)
    return InverseProblem(load_model(problem.dim), operator, GaussianNoise(noise), y)


def sampling_setup() -> dict[str, Any]:
    """What the draws of the references depend on besides their problems."""
    return {
        "models": {str(dim): load_model(dim).card.checksum for dim in MODELS},
        "model_error": MODEL_ERROR,
        "smc": SIZE._asdict(),
        "largest_error": LARGEST_ERROR,
    }


def trained_jobs(folder: Path) -> dict[str, Job]:
    """The references and the solves that are held against them, which come after."""
    draws = folder / "dimensions.safetensors"
    jobs: dict[str, Job] = {}
    for problem in problems():
        jobs[problem.reference] = job(publish, problem, draws)
        for seed in SEEDS:
            name = f"trained {problem.name} seed {seed}"
            jobs[name] = job(measure_trained, problem, seed, draws)
    return jobs


def publish(problem: Problem, path: Path) -> dict[str, Any]:
    """Makes a reference, and adds its draws to the published ones before its cell is saved."""
    cell, draws = make_reference(problem)
    setup, arrays = sampling_setup(), {}
    if path.exists():
        header, found = read_tensors(path, _KIND)
        arrays = found if header["setup"] == setup else {}
    write_tensors(path, {"kind": _KIND, "setup": setup}, arrays | {problem.name: draws})
    return cell


def make_reference(problem: Problem) -> tuple[dict[str, Any], Float[np.ndarray, "n dim"]]:
    """Runs SMC until the pooled runs are good enough: the reference's cell, and pooled draws."""
    density = make_problem(problem)
    plan = plan_smc(_key(problem, 0), density.log_density, density.dim, size=SIZE)
    runs: list[BaselineResult] = []
    log_evidence, error = np.nan, np.inf
    while len(runs) < FEWEST_RUNS or (len(runs) < MOST_RUNS and error > LARGEST_ERROR):
        runs.append(_run(problem, density, plan, len(runs)))
        if len(runs) >= FEWEST_RUNS:
            log_evidence, error = pool_evidence(_evidences(runs))
    cell = {
        "log_evidence": log_evidence,
        "error": error,
        "temperatures": len(plan.stages),
        "runs": [
            {
                "log_evidence": run.log_evidence,
                "seconds": round(run.seconds, 2),
                "gradients": run.gradients,
                "forward_equivalents": run.forward_equivalents,
            }
            for run in runs
        ],
    }
    return problem._asdict() | cell, pool_draws(runs)


def _key(problem: Problem, part: int) -> Key[Array, ""]:
    place = jax.random.fold_in(jax.random.key(part), problem.place)
    return jax.random.fold_in(jax.random.fold_in(place, problem.image), problem.dim)


def _run(problem: Problem, density: InverseProblem, plan: Pass, number: int) -> BaselineResult:
    """One run with a key of its own; the adaptive pass is shared by all runs of a problem."""
    return smc(_key(problem, 1 + number), density.log_density, density.dim, size=SIZE, plan=plan)


def _evidences(runs: list[BaselineResult]) -> list[float]:
    return [float(run.log_evidence) for run in runs if run.log_evidence is not None]


def pool_draws(runs: list[BaselineResult]) -> Float[np.ndarray, "n dim"]:
    """Draws of all runs, in proportion to the runs' evidences."""
    shares = np.exp(np.array(_evidences(runs)) - max(_evidences(runs)))
    edges = np.rint(DRAWS_KEPT * np.cumsum(shares) / shares.sum()).astype(int)
    rng = np.random.default_rng(0)
    parts = [
        rng.permutation(run.draws)[:count]
        for run, count in zip(runs, np.diff(edges, prepend=0), strict=True)
    ]
    # Half precision, because the file stays in the history: rounding is far below their spread.
    return np.concatenate(parts).astype(np.float16)


def measure_trained(problem: Problem, seed: int, path: Path) -> dict[str, Any]:
    """Solves a problem twice, and compares the first answer's draws with the reference's."""
    density = make_problem(problem)
    theirs = read_tensors(path, _KIND).arrays.get(problem.name)
    if theirs is None:
        raise UserError(f"{path} has no draws of {problem.name}: remove its cell as well.")
    post, seconds = solve_warm(lambda key: solve(key, density), seed)
    cell = problem._asdict() | {"seed": seed} | describe(post)
    return cell | {"seconds": seconds, "accuracy": compare(post, theirs, seed)}


def solve_warm(solve: Callable[[Key[Array, ""]], Posterior], seed: int) -> tuple[Posterior, float]:
    """The answer to a seed, and how long another takes now that the programs are compiled."""
    post = solve(jax.random.key(seed))
    start = time.perf_counter()
    solve(jax.random.key(1000 + seed))
    return post, round(time.perf_counter() - start, 3)


def describe(post: Posterior) -> dict[str, Any]:
    """What the cells of all parts keep of an answer."""
    computed = post.verdict.computed
    return {
        "log_evidence": post.log_evidence,
        "log_evidence_error": post.log_evidence_error,
        "computed": str(computed.standing),
        "causes": [reason.cause.name for reason in computed.reasons],
        "forward_equivalents": int(post.diagnostics.forward_equivalents),
        "rounds": post.diagnostics.rounds,
        "turns": post.diagnostics.turns if post.diagnostics.rounds else None,
        "gradients": int(post.diagnostics.counts.gradients),
    }


def compare(post: Posterior, theirs: Float[np.ndarray, "n dim"], seed: int) -> float:
    """How well a classifier tells our draws from the reference's; 1 if we have too few of them.

    Distinct draws on both sides: repeated ones would be recognised.
    """
    if not np.isfinite(post.log_evidence):
        return 1.0
    draw_key, test_key = jax.random.split(jax.random.key(2000 + seed))
    ours = np.unique(np.asarray(post.sample(draw_key, DRAWS_COMPARED)), axis=0)
    theirs = np.unique(theirs.astype(ours.dtype), axis=0)
    distinct = np.random.default_rng(seed).permutation(theirs)[: len(ours)]
    if min(len(ours), len(distinct)) < FEWEST_DRAWS:
        return 1.0
    return two_sample_accuracy(test_key, jnp.asarray(ours), jnp.asarray(distinct))
