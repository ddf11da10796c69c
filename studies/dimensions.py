"""From 10 to 256 dimensions, and no mode lost in silence: docs/results/dimensions.md.

Four parts: priors that were trained, the growth of work with the dimension, modes that are hard to
find, and shapes whose errors are hard to tell.
"""

import multiprocessing
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from latentuq import (
    GaussianNoise,
    GenerativePrior,
    InverseProblem,
    UserError,
    VAESize,
    prior_from,
    solve,
    solve_density,
)
from latentuq.core.cells import Job, job
from latentuq.forward.mask import RegionMask
from latentuq.prior.vae import init_vae
from latentuq.problem.experiments import SHAPE
from studies.dimensions_trained import describe, sampling_setup, solve_warm, trained_jobs
from studies.exact import exact_posterior, linear_prior
from studies.hard_shapes import HARD_SHAPES
from studies.many_modes import kind_of, many_modes
from studies.mixtures import SCALE, attraction, find_masses, missing_mass, modes_of

PARTS = ("trained", "growth", "discovery", "errors")
DIMENSIONS = (10, 32, 64, 128, 256)
RELEVANT = 0.02
"""The mass from which on a mode must not be missing."""

# Masses are compared to this at best: with thousands of draws the stated error of a tiny mass,
# which few of them know, is rough.
_MASS_FLOOR = 0.003
_GROWTH_ERROR, _GROWTH_NOISE = 0.1, 0.1


def make_setup() -> dict[str, Any]:
    return sampling_setup() | {
        "growth": {"model_error": _GROWTH_ERROR, "noise": _GROWTH_NOISE},
        "relevant": RELEVANT,
    }


def make_jobs(parts: Sequence[str], solves: int, keys: int, folder: Path) -> dict[str, Job]:
    """The jobs of some parts.

    Args:
        parts: Names in `PARTS`.
        solves: The number of targets with many modes.
        keys: The number of runs of each hard shape.
        folder: Where the cells are, and the draws of the references beside them.
    """
    for part in parts:
        if part not in PARTS:
            raise UserError(f"There is no part {part!r}; there are {', '.join(PARTS)}.")
    jobs: dict[str, Job] = {}
    if "trained" in parts:
        jobs |= trained_jobs(folder)
    if "growth" in parts:
        for dim in DIMENSIONS:
            for kind in GROWING:
                jobs[f"growth {kind} {dim}"] = job(alone, measure_growth, kind, dim)
    if "discovery" in parts:
        jobs |= {f"discovery {number}": job(measure_discovery, number) for number in range(solves)}
    if "errors" in parts:
        for seed in range(keys):
            for name in HARD_SHAPES:
                jobs[f"errors {name}, key {seed}"] = job(measure_errors, name, seed)
    return jobs


def alone(measure: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Calls a function in a process of its own, so that memory is not what others have used."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        return processes.submit(measure, *arguments).result()


def peak_megabytes() -> int:
    """The most memory that this process has had; `getrusage` would say its parent's if larger."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return round(int(found[1]) / 1024)


def _random_prior(dim: int) -> GenerativePrior:
    vae = init_vae(jax.random.key(dim), SHAPE, VAESize(latent=dim), _GROWTH_ERROR)
    return prior_from(vae.decoder, dim, SHAPE, _GROWTH_ERROR)


def _linear_prior(dim: int) -> GenerativePrior:
    return linear_prior(jax.random.key(dim), dim, SHAPE, _GROWTH_ERROR)


GROWING: dict[str, Callable[[int], GenerativePrior]] = {
    "random": _random_prior,
    "linear": _linear_prior,
}


def measure_growth(kind: str, dim: int) -> dict[str, Any]:
    """Solves a problem with half of the image hidden; the exact answer is known if it is linear."""
    hidden = RegionMask(columns=(SHAPE[1] // 2, SHAPE[1] - 1))
    base = InverseProblem(GROWING[kind](dim), hidden, GaussianNoise(_GROWTH_NOISE), np.zeros(SHAPE))
    problem = base.with_data(base.simulate(jax.random.key(0)).y)
    post, seconds = solve_warm(lambda key: solve(key, problem), seed=0)
    megabytes = peak_megabytes()
    exact = exact_posterior(problem).log_evidence if kind == "linear" else None
    return describe(post) | {
        "kind": kind,
        "dim": dim,
        "exact": exact,
        "seconds": seconds,
        "megabytes": megabytes,
    }


def measure_discovery(number: int) -> dict[str, Any]:
    """Solves a target with many modes and looks which of them the answer has."""
    kind, dim = kind_of(number)
    target = many_modes(number)
    modes = modes_of(target)
    relevant = modes.masses >= min(RELEVANT, modes.masses.max())
    post = solve_density(jax.random.key(number), target.density, dim, scale=SCALE)
    found = find_masses(target, modes, post)
    gaps = np.abs(found.masses - modes.masses)
    return describe(post) | {
        "kind": kind,
        "dim": dim,
        "modes": len(modes.masses),
        "rarest": float(np.min(attraction(target, modes)[relevant])),
        "missing": missing_mass(modes, found),
        "mass_gap": float(np.max(gaps)),
        "mass_pull": float(np.max(gaps / np.hypot(found.errors, _MASS_FLOOR))),
        "exact": target.log_evidence,
    }


def measure_errors(name: str, seed: int) -> dict[str, Any]:
    """Solves a hard shape; what is stated of its integral and its tail is kept beside the truth."""
    shape = HARD_SHAPES[name]()
    post = solve_density(jax.random.key(seed), shape, shape.dim, scale=shape.scale)
    tail, error = post.expect(shape.event)
    return describe(post) | {
        "shape": name,
        "dim": shape.dim,
        "tail": float(tail),
        "tail_error": float(error),
        "exact_tail": shape.probability,
        "exact": 0.0,
    }
