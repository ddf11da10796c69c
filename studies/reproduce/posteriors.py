"""One posterior as a cell: modes, digits, fit to the data, and how near the deepest mode is."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from latentuq.calibration.classifier import load_classifier
from latentuq.data.digits import load_digits
from latentuq.inference.modes import empty_search
from latentuq.inference.search import search
from latentuq.inference.target import Target
from latentuq.posterior.maps import decode_images
from latentuq.posterior.posterior import Posterior
from latentuq.posterior.solve import solve
from latentuq.prior.generative import GenerativePrior
from latentuq.problem.experiments import EXPERIMENTS, make_problem
from studies.reproduce import published
from studies.reproduce.plan import OURS, RELEVANT, Plan, true_image

_SHOWN = 6
_SAMPLES = 16
_DRAWS = 400


def measure_posterior(plan: Plan, model: str, corruption: str) -> dict[str, Any]:
    """Our answer to one problem, with what the page and its figures need of it."""
    problem = plan.problem(model, corruption)
    solve_key, sample_key = jax.random.split(plan.key(f"posterior {model} {corruption}"))
    begin = time.perf_counter()
    post = solve(solve_key, problem)
    seconds = time.perf_counter() - begin
    draws = post.sample(sample_key, _DRAWS)
    deepest = post.modes[post.map_index]
    masses = np.exp(np.asarray(post.log_weights, np.float64))
    us = np.asarray(post.draws, np.float64)
    mean = masses @ us
    assert post.chi_squared is not None
    return {
        "seconds": seconds,
        "verdict": str(post.verdict),
        "khat": post.diagnostics.khat,
        "log_evidence": post.log_evidence,
        "log_evidence_error": post.log_evidence_error,
        "relevant_modes": int(np.sum(np.asarray(post.weights) >= RELEVANT)),
        "weights": np.asarray(post.weights[:_SHOWN], np.float64).tolist(),
        "weight_errors": np.asarray(post.weight_errors[:_SHOWN], np.float64).tolist(),
        "map": _rounded(deepest, 5),
        "map_digit": describe_digits(problem.prior, deepest[None])["digits"][0],
        "chi_squared": float(post.chi_squared[post.map_index]),
        "data": int(np.sum(problem.observed)),
        "p_value": post.diagnostics.predictive_p_value,
        "mean": mean.tolist(),
        "std": np.sqrt(masses @ (us - mean) ** 2).tolist(),
        "samples": _rounded(draws[:_SAMPLES], 5),
        "draws": _rounded(draws, 3),
        **describe_digits(problem.prior, draws),
        **_search(post),
        **compare_image(problem.prior, deepest, true_image(corruption)),
    }


def describe_digits(prior: GenerativePrior, us: Float[Array, "n dim"]) -> dict[str, list]:
    """What a classifier sees in the generator's images.

    Returns:
        `digits`: the likeliest digit of each u. `classes`: the mean probability of each digit.
    """
    if not len(us):
        return {"digits": [], "classes": []}
    images = decode_images(prior, jnp.asarray(us))
    shown = np.asarray(load_classifier().probabilities(images), np.float64)
    return {"digits": np.argmax(shown, axis=1).tolist(), "classes": _rounded(shown.mean(axis=0), 4)}


def compare_image(
    prior: GenerativePrior, u: Float[Array, " dim"], truth: Float[np.ndarray, "28 28"]
) -> dict[str, float]:
    """The generator's error at u, and what is left if it is told the truth: the encoder's mean."""
    assert prior.encoder is not None
    found = decode_images(prior, jnp.asarray(u)[None])[0]
    known = prior.decoder(prior.encoder(jnp.asarray(truth))[0])
    return {
        name: float(np.sqrt(np.mean((np.asarray(image, np.float64) - truth) ** 2)))
        for name, image in (("rms", found), ("floor", known))
    }


def measure_truths(plan: Plan, corruption: str, number: int = 10) -> dict[str, Any]:
    """The lowest minimum of further digits under one corruption: is it near the truth?

    `right`: whether a classifier sees the true digit in it.
    """
    key, prior, digits = plan.key(f"truth {corruption}"), plan.priors[OURS], load_digits()
    used = {experiment.image for experiment in EXPERIMENTS.values()}
    places = [int(place) for place in digits.indices if int(place) not in used][:number]
    cell: dict[str, Any] = {"images": places, "rms": [], "floor": [], "right": []}
    for place in places:
        truth = digits.digit(place)
        problem = make_problem(prior, corruption, truth)
        target = Target(problem.log_density, problem.dim, problem.residual)
        found = search(jax.random.fold_in(key, place), target, empty_search())
        deepest = min(found.modes, key=lambda mode: mode.value)
        u = jnp.asarray(deepest.point, jnp.float32)
        label = int(digits.labels[digits.indices == place][0])
        for name, value in compare_image(prior, u, truth).items():
            cell[name].append(round(value, 4))
        cell["right"].append(describe_digits(prior, u[None])["digits"] == [label])
    return cell


def _search(post: Posterior) -> dict[str, Any]:
    """Ends of the first independent starts, and how many of these reach all relevant modes."""
    record = post.inference.search
    independent = np.asarray(record.independent)
    ends = -np.asarray(record.log_densities, np.float64)[independent]
    reached = np.asarray(record.modes)[independent].tolist()
    relevant = np.flatnonzero(np.asarray(post.weights) >= RELEVANT).tolist()
    missed = not set(relevant) <= set(reached)
    return {
        "starts": len(record.log_densities),
        "independent_starts": len(ends),
        "starts_needed": None if missed else 1 + max(map(reached.index, relevant)),
        "ends": _rounded(ends[np.isfinite(ends)][: published.APPENDIX_STARTS], 3),
    }


def _rounded(values: Float[Array | np.ndarray, "..."], decimals: int) -> list:
    return np.round(np.asarray(values, np.float64), decimals).tolist()
