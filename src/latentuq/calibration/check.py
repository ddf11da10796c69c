"""Is a prior any good? Held-out images are corrupted, reconstructed and compared with the truth."""

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.calibration.examples import EXAMPLES, save_example
from latentuq.calibration.measure import (
    DRAWS,
    Rows,
    Truth,
    corrupted,
    coverage,
    describe_posterior,
    hidden_pixels,
    measure_draws,
)
from latentuq.calibration.statistics import uniformity
from latentuq.core.cells import job, run_cells
from latentuq.core.errors import UserError
from latentuq.forward.mask import parse_mask
from latentuq.forward.operator import Operator
from latentuq.inference.causes import Standing
from latentuq.inference.verdict import Mark
from latentuq.likelihood.noise import GaussianNoise
from latentuq.posterior.prior_mark import judge_prior, word_of
from latentuq.posterior.solve import solve
from latentuq.prior.check import PriorCheck
from latentuq.prior.generative import GenerativePrior
from latentuq.problem.inverse import InverseProblem

ROWS = "rows.json"
"""The file of measured rows in the folder of a check."""
FEWEST_IMAGES = 5
"""Fewer images than this say nothing about a prior."""
# The noise of the default corruption.
_NOISE = 0.05


class Plan(NamedTuple):
    """What a check does to every image.

    Attributes:
        operator: What happens to the image.
        noise: What is added then.
        corruption: What operator and noise are, in a few words.
        budget: The budget of every reconstruction.
        seed: The seed of noise and inference.
    """

    operator: Operator
    noise: GaussianNoise
    corruption: str
    budget: str = "preview"
    seed: int = 0


class Checked(NamedTuple):
    """What a check has found.

    Attributes:
        check: The numbers that the model file keeps.
        mark: What they mean, in words.
        facts: All numbers, for `summary.json`.
        rows: What was measured on each image.
    """

    check: PriorCheck
    mark: Mark
    facts: dict[str, Any]
    rows: Rows


def half_hidden(prior: GenerativePrior, budget: str = "preview", seed: int = 0) -> Plan:
    """The default: the right half of the image is hidden, with mild noise on the left one."""
    width = prior.shape[-1]
    operator = parse_mask(f"columns:{width // 2}-{width - 1}").bind(prior.shape)
    corruption = f"the right half is hidden, noise of {_NOISE:.0%} of white"
    return Plan(operator, GaussianNoise(_NOISE), corruption, budget, seed)


def check_prior(
    prior: GenerativePrior,
    images: Float[np.ndarray, "n *shape"],
    plan: Plan,
    folder: Path,
    report: Callable[[str, dict[str, Any]], None] = lambda name, row: None,
) -> Checked:
    """Corrupts and reconstructs held-out images, and measures how often the truth was held.

    Every row is saved as it is measured, and what the folder holds is not measured again.

    Args:
        prior: The prior that is checked.
        images: Clean images on its scale that it was not trained on.
        plan: What happens to them.
        folder: The folder of the rows and of a few examples.
        report: This is called with the number of each new image and its row.
    """
    if len(images) < FEWEST_IMAGES:
        raise UserError(
            f"There are {len(images)} held-out images; a check needs at least {FEWEST_IMAGES}."
        )
    blank = np.zeros(plan.operator.output_shape)
    base = InverseProblem(prior, plan.operator, plan.noise, blank)
    spread = np.std(prior.sample(jax.random.key(plan.seed), DRAWS), axis=0)
    setup = {
        "model": prior.card.name,
        "model_checksum": prior.card.checksum,
        "corruption": plan.corruption,
        "first": _digest(base, plan, images[0]),
        "budget": plan.budget,
        "seed": plan.seed,
    }

    def measure(number: int) -> dict[str, Any]:
        data_key, solve_key, draw_key, measure_key = _keys(plan, number)
        truth = Truth(np.asarray(images[number], np.float32))
        problem = base.with_data(corrupted(data_key, base, truth.x))
        post = solve(solve_key, problem, budget=plan.budget)
        row, drawn = measure_draws(measure_key, problem, post.sample(draw_key, DRAWS), truth)
        if number < EXAMPLES:
            save_example(folder, number, problem, truth.x, drawn, float(spread.max()))
        return describe_posterior(post, truth) | row

    jobs = {str(number): job(measure, number) for number in range(len(images))}
    cells = run_cells(folder / ROWS, setup, jobs, report)
    return summarise([cells[name] for name in jobs], base, spread, setup)


def _keys(plan: Plan, number: int) -> Key[Array, " 4"]:
    return jax.random.split(jax.random.fold_in(jax.random.key(plan.seed), number), 4)


def _digest(base: InverseProblem, plan: Plan, x: Float[np.ndarray, "*shape"]) -> str:
    """Tells images, operators and noise apart, of which words may say too little."""
    y = corrupted(_keys(plan, 0)[0], base, x)
    return hashlib.sha256(np.asarray(x).tobytes() + np.asarray(y).tobytes()).hexdigest()


def summarise(
    rows: Rows, base: InverseProblem, spread: Float[np.ndarray, "*shape"], setup: dict[str, Any]
) -> Checked:
    """From the rows of a check to its numbers and to what they mean.

    Args:
        rows: What was measured on each image.
        base: The problem of any of them.
        spread: The standard deviation of every pixel without data.
        setup: What the rows depend on.
    """
    hidden = hidden_pixels(base)
    rates = {
        name: coverage(rows, group)
        for name, group in (("hidden", "hidden"), ("unsure", "uncertain"), ("seen", "seen"))
    }
    of_images = per_image(rows)
    unsure = rates["unsure" if rates["unsure"][0.9].pixels else "hidden"]
    found = PriorCheck(
        images=len(rows),
        corruption=setup["corruption"],
        hidden=round(float(hidden.mean()), 4),
        covered=round(rates["hidden"][0.9].value, 4),
        covered_unsure=round(unsure[0.9].value, 4),
        half_covered=round(unsure[0.5].value, 4),
        lowest=round(float(of_images.min()), 4),
        sharpness=round(float(np.mean([row["std"] for row in rows]) / spread[hidden].mean()), 4),
        misfits=sum(row["fit"] == Standing.BAD for row in rows),
    )
    mark = judge_prior(found)
    found = dataclasses.replace(found, word=word_of(mark))
    facts = {
        **dataclasses.asdict(found),
        "why": [reason.sentence for reason in mark.reasons],
        "advice": [*dict.fromkeys(each for r in mark.reasons for each in r.advice)],
        "coverage": {
            name: {f"{level:.0%}": _rounded(rate) for level, rate in levels.items()}
            for name, levels in rates.items()
        },
        "coverage_of_each_image": [round(float(each), 4) for each in of_images],
        "crps": round(float(np.mean([row["crps"] for row in rows])), 5),
        "tarp_p_value": round(uniformity(np.array([row["tarp"] for row in rows])), 4),
        "unreliable": sum(row["verdict"].startswith("unreliable") for row in rows),
        "not_computed_well": sum(row["computed"] != Standing.OK for row in rows),
        **{name: value for name, value in setup.items() if name not in ("first", "corruption")},
    }
    return Checked(found, mark, facts, rows)


def per_image(rows: Rows) -> Float[np.ndarray, " images"]:
    """The share of hidden pixels in their 90 % intervals, image by image."""
    return np.array([coverage([row], "hidden")[0.9].value for row in rows])


def _rounded(rate: Any) -> list[float] | None:
    """A share and its standard error; None if there are no such pixels."""
    return [round(rate.value, 4), round(rate.error, 4)] if rate.pixels else None
