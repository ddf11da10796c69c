"""How often do data that the model never made raise the alarm, and how often its own kind?"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from latentuq import (
    GaussianNoise,
    GenerativePrior,
    InverseProblem,
    Posterior,
    UserError,
    load_dataset,
    solve,
)
from latentuq.calibration.measure import corrupted
from latentuq.calibration.summary import Rows, is_unreliable
from latentuq.core.cells import Cells, job, run_cells
from latentuq.forward.mask import RegionMask
from latentuq.posterior.misfit import WORST_FIT
from latentuq.problem.experiments import SHAPE
from studies.calibration_cases import LOOKED_AT, unseen_images

ALARMS = "alarms"
NOISE = 0.2
"""Standard deviation of the noise on the visible half."""
FIRST_GARMENT = 1000
"""Earlier ones were looked at while the limit of the p-value was chosen."""

Image = Float[np.ndarray, "28 28"]


def _digits() -> Iterator[Image]:
    images = load_dataset("mnist").test_images
    return (np.asarray(images[number], np.float32) for number in unseen_images(len(images)))


def _garments() -> Iterator[Image]:
    images = load_dataset("fashion-mnist").test_images[FIRST_GARMENT:]
    return (np.asarray(image, np.float32) for image in np.random.default_rng(0).permutation(images))


def _negatives() -> Iterator[Image]:
    return (1 - image for image in _digits())


def _checkerboards() -> Iterator[Image]:
    """Squares of 1 to 7 pixels, shifted at random."""
    generator = np.random.default_rng(0)
    while True:
        side, down, right = (int(number) for number in generator.integers([1, 0, 0], [8, 7, 7]))
        rows, columns = np.indices(SHAPE)
        yield (((rows + down) // side + (columns + right) // side) % 2).astype(np.float32)


def _shuffled() -> Iterator[Image]:
    generator = np.random.default_rng(0)
    return (generator.permutation(image.ravel()).reshape(SHAPE) for image in _digits())


SETS: dict[str, Callable[[], Iterator[Image]]] = {
    "digits": _digits,
    "garments": _garments,
    "negatives": _negatives,
    "checkerboards": _checkerboards,
    "shuffled": _shuffled,
}
"""What is shown to a prior of digits; the first is its own kind."""


def run_alarms(
    prior: GenerativePrior,
    problems: int,
    folder: Path,
    seed: int = 0,
    report: Callable[[str, dict[str, Any]], None] = lambda name, row: None,
    sets: dict[str, Callable[[], Iterator[Image]]] = SETS,
    infer: Callable[..., Posterior] = solve,
) -> Cells:
    """Solves so many problems of every set, and saves each as it finishes.

    The right half is hidden, the left one is seen with noise of 0.2.
    """
    if prior.shape != SHAPE:
        raise UserError(f"The study of alarms needs a prior of {SHAPE} images, not {prior.shape}.")
    setup = {
        "study": ALARMS,
        "model_error": prior.model_error_name,
        "model": prior.card.name,
        "model_checksum": prior.card.checksum,
        "seed": seed,
        "looked_at": LOOKED_AT,
        "first_garment": FIRST_GARMENT,
    }
    base = InverseProblem(
        prior, RegionMask(columns=(14, 27)), GaussianNoise(NOISE), np.zeros(SHAPE)
    )

    @cache
    def shown(name: str) -> list[Image]:
        return [*islice(sets[name](), problems)]

    def measure(name: str, number: int) -> dict[str, Any]:
        if number >= len(shown(name)):
            raise UserError(f"There are only {number} {name} to show.")
        key = jax.random.fold_in(jax.random.key(seed), list(sets).index(name))
        noise_key, solve_key = jax.random.split(jax.random.fold_in(key, number))
        y = corrupted(noise_key, base, shown(name)[number])
        post = infer(solve_key, base.with_data(y))
        return {
            "set": name,
            "number": number,
            "verdict": str(post.verdict),
            "p_value": post.diagnostics.predictive_p_value,
            "log_evidence": round(post.log_evidence, 2),
        }

    jobs = {
        f"{name} {number}": job(measure, name, number)
        for number in range(problems)
        for name in sets
    }
    return run_cells(folder / f"{ALARMS}-{prior.model_error_name}.json", setup, jobs, report)


def describe_alarms(rows: Rows) -> dict[str, dict[str, Any]]:
    """How often each alarm was raised on every set, of how many, and on all that are no digits.

    The verdict raises it where the data do not fit, which the p-value alone tells, and where the
    inference failed. The evidence raises it below the 5 % quantile of the digits' own.
    """
    own = [row["log_evidence"] for row in rows if row["set"] == "digits"]
    limit = np.quantile(own, 0.05) if own else -np.inf
    raised = {
        "verdict": is_unreliable,
        "p-value": lambda row: row["p_value"] < WORST_FIT,
        "evidence": lambda row: row["log_evidence"] < limit,
    }
    facts: dict[str, dict[str, Any]] = {}
    for alarm, is_raised in raised.items():
        seen = {name: [is_raised(row) for row in rows if row["set"] == name] for name in SETS}
        others = [is_raised(row) for row in rows if row["set"] != "digits"]
        facts[alarm] = {
            name: (np.mean(each) if each else np.nan, len(each)) for name, each in seen.items()
        }
        facts[alarm]["others"] = np.mean(others)
    return facts
