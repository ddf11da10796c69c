"""What a solve costs: against the latent dimension, the image size, the number of starts."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from latentuq.data import load_digits
from latentuq.forward import RegionMask
from latentuq.inference.result import Counts
from latentuq.inference.search import ROUND_STARTS, SearchState, explore
from latentuq.inference.target import Target
from latentuq.likelihood.noise import GaussianNoise
from latentuq.posterior import solve
from latentuq.prior import GenerativePrior, VAESize, init_vae
from latentuq.prior.training.user_prior import prior_from
from latentuq.problem import InverseProblem
from latentuq.problem.experiments import EXPERIMENTS, make_problem
from studies.bench.run import Cells

DIMENSIONS, SIZES, STARTS = (2, 10, 32, 64), (28, 64), (64, 256, 1024)
_SEARCHED = "masknoise05"


def measure_scaling(
    prior: GenerativePrior,
    cells: Cells,
    save: Callable[[str, dict[str, Any]], None],
) -> None:
    """Measures the cells that are missing and hands each to `save`.

    Args:
        prior: Whose search is timed against the number of starts.
        cells: What has been measured.
        save: Called with name and contents of each new cell.
    """
    jobs: dict[str, Callable[[], dict[str, Any]]] = {"machine": lambda: measure_machine(prior)}
    for dim in DIMENSIONS:
        jobs[f"dimension {dim}"] = lambda dim=dim: measure_solve(dim, 28)
    for size in SIZES:
        jobs[f"size {size}"] = lambda size=size: measure_solve(10, size)
    for starts in STARTS:
        jobs[f"starts {starts}"] = lambda starts=starts: measure_search(prior, starts)
    for name, job in jobs.items():
        if name not in cells:
            save(name, job())


def measure_machine(prior: GenerativePrior) -> dict[str, Any]:
    """The rate of large matrix products, and those of one pass through flow and decoder."""
    side = 2048
    matrix = jnp.ones((side, side))
    product = jax.jit(lambda a: a @ a)
    seconds = _quickest(lambda: product(matrix))
    return {
        "matmul_gflops": round(2 * side**3 / seconds / 1e9, 1),
        "forward_mflop": {name: _forward_mflop(prior, name) for name in EXPERIMENTS},
    }


def _forward_mflop(prior: GenerativePrior, name: str) -> float:
    """Of the products of a published problem, whose decoder may make the pixels that are data."""
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
        "refinements": d.rounds,
        "khat": round(d.khat, 3),
        "ess": round(d.ess),
        "modes": len(post.weights),
        "verdict": post.verdict.word,
    }


def measure_search(prior: GenerativePrior, starts: int) -> dict[str, Any]:
    """Descents from prior draws on one of the paper's problems."""
    problem = make_problem(prior, _SEARCHED, load_digits().digit(EXPERIMENTS[_SEARCHED].image))
    target = Target(problem.log_density, problem.dim, problem.residual)
    nothing = SearchState((), (), np.zeros(0), np.zeros(0, int), np.zeros(0, bool), Counts())
    points = target.sample_reference(jax.random.key(0), starts)

    def descend() -> SearchState:
        found = nothing
        for rows in jnp.split(points, starts // ROUND_STARTS):
            found = explore(found, target, rows)
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


def _quickest(run: Callable[[], Float[Array, "..."]], times: int = 5) -> float:
    jax.block_until_ready(run())
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - start)
    return min(seconds)
