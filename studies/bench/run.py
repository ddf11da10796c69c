"""Runs methods on problems and measures each against ground truth, cell by cell."""

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq import GenerativePrior, InverseProblem, Posterior, UserError, load_digits, solve
from latentuq.calibration.statistics import crps, energy_score
from latentuq.core.cells import Cells, Job, job, run_cells
from latentuq.posterior.maps import draw_images
from latentuq.prior.training.two_sample import FEWEST_DRAWS, two_sample_accuracy
from latentuq.problem.experiments import EXPERIMENTS, make_problem
from studies.bench.methods import DRAWS, METHODS, Task
from studies.bench.scaling import scaling_jobs
from studies.bench.sharpening import SHARPENING, Masses, mode_masses
from studies.commits import commit
from studies.references import MODEL_ERROR, Reference

COMPILING = "compiling"
"""How the cells of our own compilation are named, before the problem."""

_IMAGES = 400
# Most draws of either sample that a classifier is to tell apart.
_COMPARED = 1000


class Plan(NamedTuple):
    """What to compare.

    Attributes:
        prior: The prior of all problems.
        references: Ground truth by corruption and image.
        methods: Names in `METHODS`.
        corruptions: Names in `EXPERIMENTS`, each with the paper's image.
        repeats: The number of runs of each method, unless it has a limit of its own.
        seed: The seed of the first repeat.
        scaling: Whether to measure also how the cost grows.
    """

    prior: GenerativePrior
    references: dict[tuple[str, int], Reference]
    methods: Sequence[str]
    corruptions: Sequence[str]
    repeats: int
    seed: int = 0
    scaling: bool = False


def run_bench(
    plan: Plan,
    path: Path,
    report: Callable[[str, dict[str, Any]], None] = lambda name, cell: None,
) -> Cells:
    """Measures what is missing: all methods on all problems, then all again.

    Some methods are run less often, see `Method.repeats`. A method that does not apply to a problem
    has an `error` in place of its numbers.
    """
    for names, known in ((plan.methods, METHODS), (plan.corruptions, EXPERIMENTS)):
        for name in names:
            if name not in known:
                raise UserError(f"There is no {name!r} to compare; there are {', '.join(known)}.")
    prior, seed = plan.prior.with_model_error(MODEL_ERROR), plan.seed
    setup = {
        "model": prior.card.name,
        "model_checksum": prior.card.checksum,
        "model_error": prior.model_error_name,
        "seed": seed,
        "masses": SHARPENING,
        "draws": DRAWS,
        "compared": _COMPARED,
    }

    @functools.cache
    def compiled(corruption: str) -> tuple[Posterior, float]:
        return compile_ours(prior, corruption, seed)

    @functools.cache
    def truth(corruption: str) -> Truth:
        reference = plan.references[corruption, EXPERIMENTS[corruption].image]
        # Seeds that no run has.
        return find_truth(jax.random.key(seed + 2000), compiled(corruption)[0], reference)

    def measured(method: str, corruption: str, repeat: int) -> dict[str, Any]:
        return measure(jax.random.key(seed + repeat), method, corruption, truth(corruption))

    def compiling(corruption: str) -> dict[str, Any]:
        return {"seconds": compiled(corruption)[1]}

    jobs: dict[str, Job] = {}
    for repeat in range(plan.repeats):
        for corruption in plan.corruptions:
            jobs[f"{COMPILING} {corruption}"] = job(compiling, corruption)
            for method in plan.methods:
                if repeat < (METHODS[method].repeats or plan.repeats):
                    run = method, corruption, repeat
                    jobs[f"{method} {corruption} {repeat}"] = job(measured, *run)
    if plan.scaling:
        jobs |= scaling_jobs(prior)
    return run_cells(path, setup, jobs, report, commit=commit())


def compile_ours(prior: GenerativePrior, corruption: str, seed: int) -> tuple[Posterior, float]:
    """Our posterior of a problem, with nothing left to compile, and how long compiling took."""
    image = load_digits().digit(EXPERIMENTS[corruption].image)
    problem = make_problem(prior, corruption, image)
    key = jax.random.key(seed)

    def timed() -> tuple[Posterior, float]:
        start = time.perf_counter()
        return solve(key, problem), time.perf_counter() - start

    (_, first), (post, second) = timed(), timed()
    solve(key, problem, budget="preview")
    return post, max(0.0, first - second)


class Truth(NamedTuple):
    """What the answers to one problem are held against.

    Attributes:
        post: Our posterior, whose modes are those that masses are of.
        reference: Draws of SMC, and the evidence that was sharpened with them.
        masses: The masses of the modes.
    """

    post: Posterior
    reference: Reference
    masses: Masses


def find_truth(key: Key[Array, ""], post: Posterior, reference: Reference) -> Truth:
    """The truth about a problem; a minute or two for the masses of several modes."""
    if len(post.weights) == 1:
        return Truth(post, reference, Masses(np.ones(1), np.zeros(1), -np.inf))
    return Truth(post, reference, mode_masses(key, post, reference.draws))


def measure(key: Key[Array, ""], method: str, corruption: str, truth: Truth) -> dict[str, Any]:
    """One run of one method: what it cost and how far it is from the truth."""
    run_key, score_key = jax.random.split(key)
    problem, reference = truth.post.problem, truth.reference
    assert problem is not None
    try:
        task = Task(problem, truth.post, EXPERIMENTS[corruption].starts)
        result = METHODS[method].run(run_key, task)
    except UserError as error:
        return {"error": str(error)}
    image = load_digits().digit(EXPERIMENTS[corruption].image)
    known = result.log_evidence
    return {
        **result.facts,
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
        "gradients": result.gradients,
        "forward_equivalents": result.forward_equivalents,
        "log_evidence": known,
        "evidence_gap": None if known is None else known - reference.log_evidence,
        "reference_error": reference.error,
        **compare_draws(score_key, truth, result.draws),
        **score_images(score_key, problem, result.draws, np.asarray(image)),
    }


def compare_draws(
    key: Key[Array, ""], truth: Truth, draws: Float[np.ndarray, "n dim"]
) -> dict[str, Any]:
    """Masses of the two heaviest modes, and two-sample accuracy against reference draws.

    Modes are told apart by our posterior's responsibilities for the draws. All of them count for
    the masses, some for the accuracy: draws that repeat would give themselves away.
    """
    theirs = truth.reference.draws
    finite = draws[np.all(np.isfinite(draws), axis=1)]
    masses, errors, khat = truth.masses
    heaviest = np.argsort(-masses)[:2]
    known = {
        "reference_weight_error": float(np.max(errors[heaviest])),
        "reference_weight_khat": khat,
    }
    if not len(finite):
        return known | {"weight_gap": 1.0, "two_sample_accuracy": 1.0, "compared_draws": 0}
    found = np.mean(truth.post.responsibilities(finite), axis=0)
    some = np.random.default_rng(0).permutation(finite)[:_COMPARED]
    distinct = np.unique(some, axis=0)
    # Draws that repeat a few points are not draws: nothing is left to compare.
    accuracy = 1.0
    if min(len(distinct), len(theirs)) >= FEWEST_DRAWS:
        accuracy = two_sample_accuracy(key, jnp.asarray(distinct), jnp.asarray(theirs))
    return known | {
        "weight_gap": float(np.max(np.abs(found - masses)[heaviest])),
        "two_sample_accuracy": accuracy,
        "compared_draws": len(distinct),
    }


def score_images(
    key: Key[Array, ""],
    problem: InverseProblem,
    draws: Float[np.ndarray, "n dim"],
    truth: Float[np.ndarray, "*shape"],
) -> dict[str, float]:
    """Energy score and mean CRPS of the true image."""
    choose_key, image_key = jax.random.split(key)
    finite = draws[np.all(np.isfinite(draws), axis=1)]
    if not len(finite):
        return {"energy": float("inf"), "crps": float("inf")}
    index = jax.random.choice(choose_key, len(finite), (_IMAGES,))
    us: Float[Array, "n dim"] = jnp.asarray(finite)[index]
    images = np.asarray(draw_images(jax.random.split(image_key, _IMAGES), problem, us))
    return {
        "energy": energy_score(images, truth),
        "crps": float(np.mean(crps(images, truth))),
    }
