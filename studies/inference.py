"""Is the inference right, repeatable and honest: docs/results/inference.md."""

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from latentuq import InverseProblem, load_digits, load_prior, solve
from latentuq.core.cells import Cells, Job, job
from latentuq.inference import engine
from latentuq.inference.search import SearchState
from latentuq.prior.training.two_sample import two_sample_accuracy
from latentuq.problem.experiments import EXPERIMENTS, make_problem
from studies import inference_page
from studies.exact_densities import CASES, measure_case
from studies.references import (
    DRAWS,
    IMAGES,
    MODEL,
    MODEL_ERROR,
    Reference,
    load_model,
    read_references,
)

SEEDS = range(5)


def make_setup() -> dict[str, Any]:
    return {"model": MODEL, "model_error": MODEL_ERROR}


def make_jobs() -> dict[str, Job]:
    images = [(corruption, image) for corruption in EXPERIMENTS for image in IMAGES]
    jobs = {f"exact {name}": job(measure_case, name) for name in CASES}
    for seed in SEEDS:
        for corruption, image in images:
            name = f"images {corruption} {image} seed {seed}"
            jobs[name] = job(measure_image, corruption, image, seed)
    for case in images:
        jobs[f"hidden {case[0]} {case[1]}"] = job(measure_hidden, *case, 0)
    return jobs


def make_values(cells: Cells) -> dict[str, Any]:
    return inference_page.make_values(beside_references(cells))


@functools.cache
def references() -> dict[tuple[str, int], Reference]:
    return read_references(DRAWS, load_prior(MODEL))


def make(corruption: str, image: int) -> InverseProblem:
    return make_problem(load_model(), corruption, load_digits().digit(image))


def measure_image(corruption: str, image: int, seed: int) -> dict[str, Any]:
    """One solve, beside the reference: evidence, weights and draws."""
    problem = make(corruption, image)
    start = time.perf_counter()
    post = solve(jax.random.key(seed), problem)
    seconds = time.perf_counter() - start
    reference = references()[corruption, image]
    theirs = jnp.asarray(reference.draws)
    weights = jnp.mean(post.responsibilities(theirs), axis=0)
    draw_key, test_key = jax.random.split(jax.random.key(1000 + seed))
    # Distinct draws on both sides: repeated ones would be recognised.
    ours = np.unique(np.asarray(post.sample(draw_key, 1000)), axis=0)
    distinct = np.unique(reference.draws, axis=0)
    np.random.default_rng(seed).shuffle(distinct)
    number = min(len(ours), len(distinct))
    accuracy = two_sample_accuracy(test_key, jnp.asarray(ours), jnp.asarray(distinct[:number]))
    d = post.diagnostics
    return {
        "log_evidence": float(post.log_evidence),
        "log_evidence_error": float(post.log_evidence_error),
        "weights": [round(float(w), 4) for w in post.weights],
        "khat": d.khat,
        "ess": d.ess,
        "missed_mass": d.missed_mass,
        "new_basin_chance": d.new_basin_chance,
        "rounds": d.rounds,
        "turns": d.turns,
        "forward_equivalents": d.forward_equivalents,
        "seconds": seconds,
        "stages": dict(d.seconds),
        "verdict": str(post.verdict),
        "weight_gap": float(jnp.max(jnp.abs(weights - post.weights))),
        "two_sample_accuracy": accuracy,
        "two_sample_draws": number,
    }


def beside_references(cells: Cells) -> Cells:
    """The cells, those of images with the evidence that is known today."""
    known = dict(cells)
    for name in [name for name in cells if name.startswith("images ")]:
        _, corruption, image, *_ = name.split()
        truth = references()[corruption, int(image)]
        known[name] = cells[name] | {
            "reference": truth.log_evidence,
            "reference_error": truth.error,
        }
    return known


def measure_hidden(corruption: str, image: int, seed: int) -> dict[str, Any]:
    """Hides the heaviest mode but one from the search; does the answer notice?"""
    problem = make(corruption, image)
    whole = solve(jax.random.key(seed), problem)
    modes = np.asarray(whole.modes)
    if len(modes) < 2 or whole.weights[1] < 0.01:
        return {"hidden": None}
    found, original = modes[1], engine.search

    def blinded(*args: Any) -> SearchState:
        state = original(*args)
        near = [float(np.linalg.norm(mode.point - found)) for mode in state.modes]
        gone = int(np.argmin(near)) if near else -1
        if not near or near[gone] > 0.1:
            return state
        rest = state.basins != gone
        kept = [index for index in range(len(state.modes)) if index != gone]
        basins = state.basins[rest]
        return state._replace(
            modes=tuple(state.modes[index] for index in kept),
            found_at=tuple(state.found_at[index] for index in kept),
            values=state.values[rest],
            basins=np.where(basins > gone, basins - 1, basins),
            independent=state.independent[rest],
        )

    engine.search = blinded
    try:
        post = solve(jax.random.key(seed), problem)
    finally:
        engine.search = original
    # Along soft directions a mode is located to a few hundredths; other modes are far away.
    distances = np.linalg.norm(np.asarray(post.modes) - found, axis=1)
    return {
        "hidden": float(whole.weights[1]),
        "found_again": bool(distances.min() < 0.1),
        "evidence_change": float(post.log_evidence - whole.log_evidence),
        "verdict": str(post.verdict),
        "verdict_whole": str(whole.verdict),
    }
