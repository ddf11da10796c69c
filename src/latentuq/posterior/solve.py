"""The whole inference on one problem, or on any log density."""

import dataclasses
import time
from collections.abc import Callable

import equinox
import jax
import jaxlib
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Key

import latentuq
from latentuq.core.arrays import read_finite, to_device
from latentuq.core.compilation import compile_clock
from latentuq.core.errors import UserError
from latentuq.core.randomness import read_key
from latentuq.inference.engine import infer
from latentuq.inference.result import COMPILING, Inference, Progress
from latentuq.inference.target import LogDensity, Residual, Target
from latentuq.posterior.judge import judge_fit
from latentuq.posterior.learned import measure_learned
from latentuq.posterior.misfit import measure_chi_squared, measure_fit
from latentuq.posterior.posterior import Posterior
from latentuq.posterior.prior_mark import judge_prior
from latentuq.problem.inverse import InverseProblem


def solve(
    key: Key[Array, ""],
    problem: InverseProblem,
    *,
    budget: str = "default",
    progress: Callable[[Progress], None] | None = None,
) -> Posterior:
    """Finds every mode of p(u | y), weighs them, and certifies the answer.

    Args:
        key: The randomness; the same key gives the same posterior.
        problem: The problem that is to be solved.
        budget: The name of the budget, "preview", "default" or "thorough".
        progress: A function that is called with a `Progress` after each stage.
    """
    if not isinstance(problem, InverseProblem):
        raise UserError(f"solve needs an InverseProblem, not {problem!r}.")
    # A problem's functions fit by construction.
    density = problem.density
    target = Target(density.log_density, problem.dim, density.residual, trusted=True)
    inference = _infer(key, target, budget, progress, known_kind=True)
    inference = inference.shifted(-float(problem.likelihood.log_units))
    return make_posterior(read_key(key), inference, problem)


def solve_density(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    dim: int,
    residual_fn: Residual | None = None,
    scale: float = 1.0,
    *,
    starts: ArrayLike | None = None,
    budget: str = "default",
    progress: Callable[[Progress], None] | None = None,
) -> Posterior:
    """Runs the same inference on any log density; the posterior has no image part.

    Args:
        key: The randomness; the same key gives the same posterior.
        log_density_fn: The log density of one u, up to a constant that the evidence then contains.
        dim: The size of u.
        residual_fn: The residual r(u) if log_density = -r.r/2 - u.u/(2 scale^2) + constant, which
            makes the search faster.
        scale: The standard deviation of the normal that starts, and a few draws, come from.
        starts: Places that the search shall begin from as well, such as draws of a prior that is
            not that normal: an array of shape (n, dim).
        budget: The name of the budget, "preview", "default" or "thorough".
        progress: A function that is called with a `Progress` after each stage.
    """
    target = Target(log_density_fn, dim, residual_fn, scale)
    return Posterior(
        _infer(key, target, budget, progress, _read_starts(starts, target)),
        read_key(key),
        log_density_fn=log_density_fn,
        provenance=_versions(),
        no_problem="This posterior of a plain density has neither problem nor images.",
    )


def make_posterior(key: Key[Array, ""], inference: Inference, problem: InverseProblem) -> Posterior:
    """Adds the problem to what the engine returned for its density."""
    chi_squared = measure_chi_squared(problem, np.asarray(inference.modes))
    data = int(np.count_nonzero(problem.observed))
    reduced = float(chi_squared[inference.map_index]) / data if data else None
    fit, learned = measure_fit(inference, problem), measure_learned(inference)
    diagnostics = dataclasses.replace(
        inference.diagnostics,
        reduced_chi_squared=reduced,
        predictive_p_value=None if fit is None else fit.p_value,
        **({} if learned is None else learned._asdict()),
    )
    inflated = problem.prior.model_error.most_data is not None
    mark = judge_fit(fit, learned, problem.y.shape, inflated)
    card = problem.prior.card
    verdict = dataclasses.replace(inference.verdict, fit=mark, prior=judge_prior(card.check))
    return Posterior(
        dataclasses.replace(inference, diagnostics=diagnostics, verdict=verdict),
        key,
        problem,
        problem.log_density,
        jax.device_put(chi_squared),
        _versions() | {"model": card.name, "model_checksum": card.checksum},
    )


def _infer(
    key: Key[Array, ""],
    target: Target,
    budget: str,
    progress: Callable[[Progress], None] | None,
    starts: Float[np.ndarray, "n dim"] | None = None,
    known_kind: bool = False,
) -> Inference:
    if progress is not None and not callable(progress):
        raise UserError(f"progress must be a function, not {progress!r}.")
    infer_key, _ = jax.random.split(read_key(key))
    started = time.perf_counter()

    def tell() -> None:
        if progress is not None:
            message = "Compiling for problems of this kind; later runs load what is compiled now."
            none, seconds = to_device(np.zeros((0, target.dim))), time.perf_counter() - started
            progress(Progress(COMPILING, message, none, None, seconds))

    with compile_clock().watch(tell):
        return infer(
            infer_key,
            target,
            budget=budget,
            starts=starts,
            known_kind=known_kind,
            progress=progress,
        )


def _read_starts(starts: ArrayLike | None, target: Target) -> Float[np.ndarray, "n dim"] | None:
    if starts is None:
        return None
    points = read_finite(starts, "starts")
    if points.ndim != 2 or points.shape[1] != target.dim:
        raise UserError(f"starts must be of shape (n, {target.dim}), not {points.shape}.")
    return points


def _versions() -> dict[str, str]:
    modules = (latentuq, jax, jaxlib, equinox, np)
    return {f"{module.__name__}_version": module.__version__ for module in modules}
