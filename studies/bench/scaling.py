"""What a solve costs: against the latent dimension, the image size, the number of starts."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentuq import (
    GaussianNoise,
    GenerativePrior,
    InverseProblem,
    VAESize,
    load_digits,
    prior_from,
    solve,
)
from latentuq.core.cells import Job, job
from latentuq.forward.mask import RegionMask
from latentuq.inference.modes import SearchState, empty_search
from latentuq.inference.search import ROUND_STARTS, descend_from
from latentuq.inference.target import Target
from latentuq.prior.vae import init_vae
from latentuq.problem.experiments import EXPERIMENTS, make_problem
from studies.baselines.timing import matmul_rate

DIMENSIONS, SIZES, STARTS = (2, 10, 32, 64), (28, 64), (64, 256, 1024)
_SEARCHED = "masknoise05"


def scaling_jobs(prior: GenerativePrior) -> dict[str, Job]:
    """What is measured, by name; the prior is the one whose search is timed."""
    jobs = {"machine": job(measure_machine, prior)}
    jobs |= {f"dimension {dim}": job(measure_solve, dim, 28) for dim in DIMENSIONS}
    jobs |= {f"size {size}": job(measure_solve, 10, size) for size in SIZES}
    return jobs | {f"starts {starts}": job(measure_search, prior, starts) for starts in STARTS}


def measure_machine(prior: GenerativePrior) -> dict[str, Any]:
    """The rate of large matrix products, and those of one pass through flow and decoder."""
    return {
        "matmul_gflops": round(matmul_rate() / 1e9, 1),
        "forward_mflop": {name: _forward_mflop(prior, name) for name in EXPERIMENTS},
    }


def _forward_mflop(prior: GenerativePrior, name: str) -> float:
    """Operations of one pass, in millions; a problem's decoder may make observed pixels alone."""
    prior = make_problem(prior, name, np.zeros(prior.shape)).density.prior
    weights = jax.tree.leaves(eqx.filter((prior.decoder, prior.flow), eqx.is_inexact_array))
    return round(sum(2 * leaf.size for leaf in weights if leaf.ndim >= 2) / 1e6, 3)


def measure_solve(dim: int, size: int) -> dict[str, Any]:
    """A whole solve under a prior with random weights, half of the image hidden."""
    vae = init_vae(jax.random.key(dim), (size, size), VAESize(latent=dim), 0.1)
    prior = prior_from(vae.decoder, dim, (size, size), 0.1)
    hidden = RegionMask(columns=(size // 2, size - 1))
    base = InverseProblem(prior, hidden, GaussianNoise(0.1), np.zeros((size, size)))
    problem = base.with_data(base.simulate(jax.random.key(0)).y)
    # The same key: another might take a way that is not compiled.
    solve(jax.random.key(0), problem)
    start = time.perf_counter()
    post = solve(jax.random.key(0), problem)
    d = post.diagnostics
    return {
        "seconds": round(time.perf_counter() - start, 3),
        "stages": {stage: round(seconds, 3) for stage, seconds in d.seconds.items()},
        "forward_equivalents": d.forward_equivalents,
        "rounds": d.rounds,
        "khat": round(d.khat, 3),
        "ess": round(d.ess),
        "modes": len(post.weights),
        "verdict": str(post.verdict),
    }


def measure_search(prior: GenerativePrior, starts: int) -> dict[str, Any]:
    """Descents from prior draws on one of the paper's problems."""
    problem = make_problem(prior, _SEARCHED, load_digits().digit(EXPERIMENTS[_SEARCHED].image))
    target = Target(problem.log_density, problem.dim, problem.residual)
    points = target.sample_reference(jax.random.key(0), starts)

    def descend() -> SearchState:
        found = empty_search()
        for rows in jnp.split(points, starts // ROUND_STARTS):
            found = descend_from(found, target, rows)
        return found

    found = descend()
    begin = time.perf_counter()
    descend()
    seconds = time.perf_counter() - begin
    cost = found.counts.forward_equivalents(problem.dim)
    return {
        "seconds": round(seconds, 3),
        "modes": len(found.modes),
        "forward_equivalents": cost,
    }
