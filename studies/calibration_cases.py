"""Studies of calibration: many problems of one kind, saved as they finish, resumed where left."""

import hashlib
import json
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.calibration.classifier import load_classifier
from latentuq.calibration.measure import (
    DRAWS,
    Truth,
    corrupted,
    describe_posterior,
    measure_draws,
)
from latentuq.core.cells import Cells, job, run_cells
from latentuq.core.compilation import bounded_jit
from latentuq.core.errors import UserError
from latentuq.core.files import atomic_path, make_folder
from latentuq.likelihood.noise import GaussianNoise
from latentuq.posterior.maps import decode_images
from latentuq.posterior.solve import solve
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_error import LOW_RANK
from latentuq.problem.experiments import EXPERIMENTS, SHAPE
from latentuq.problem.inverse import InverseProblem
from studies.commits import commit

KINDS = ("simulated", "real")
LOOKED_AT = ((0, 1100), (5000, 5100))
"""Ranges of test images that had a part in making the method."""

CHOSEN_ON = slice(2000, 2300)
"""Places in the random order of the others on which the weight of the data was chosen."""


class Study(NamedTuple):
    """What a file of results is about.

    Attributes:
        kind: "simulated" for data drawn from the model, "real" for test images of a dataset.
        corruption: A name in `EXPERIMENTS`.
        model_error: The name of the prior's model error that is in use.
        method: The name of what draws from the posterior.
    """

    kind: str
    corruption: str
    model_error: str
    method: str = "latentuq"

    @property
    def name(self) -> str:
        return "-".join(self)


class Case(NamedTuple):
    """A problem, what its data were made from, and the class of the image if it has one."""

    problem: InverseProblem
    truth: Truth
    label: int | None = None


Inferred = tuple[Float[Array, "n dim"], dict[str, Any]]
"""Draws of a posterior, and what its row keeps besides the measures of the draws."""

Infer = Callable[[Key[Array, ""], Case], Inferred]


def infer_posterior(key: Key[Array, ""], case: Case) -> Inferred:
    """Solves a case with latentuq."""
    solve_key, draw_key = jax.random.split(key)
    post = solve(solve_key, case.problem)
    return post.sample(draw_key, DRAWS), describe_posterior(post, case.truth)


def run_study(
    study: Study,
    prior: GenerativePrior,
    problems: int,
    folder: Path,
    seed: int = 0,
    report: Callable[[str, dict[str, Any]], None] = lambda name, row: None,
    infer: Infer = infer_posterior,
) -> Cells:
    """Measures problems until there are enough, and saves each as it finishes.

    Args:
        study: What to measure.
        prior: A trained prior.
        problems: The number of problems that the file shall have.
        folder: The folder of the file, which is named after the study.
        seed: The seed of the problems and of the inference.
        report: This is called with the number of each new problem and its row.
        infer: What draws from the posterior, named by `study.method`.

    Returns:
        The rows of the study by the number of the problem.
    """
    for value, known, what in (
        (study.kind, KINDS, "study"),
        (study.corruption, EXPERIMENTS, "corruption"),
    ):
        if value not in known:
            raise UserError(f"There is no {what} {value!r}; there are {', '.join(known)}.")
    prior = prior.with_model_error(study.model_error)
    setup = {
        "study": study._asdict(),
        "model": prior.card.name,
        "model_checksum": prior.card.checksum,
        "seed": seed,
    }
    if study.kind == "real":
        setup["looked_at"] = LOOKED_AT
    make_case = make_cases(study, prior, seed)

    def measure(number: int) -> dict[str, Any]:
        case = make_case(number)
        solve_key, measure_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), number))
        cached = folder / "draws" / f"{study.name}-{seed}-{number}.npz"
        stamp = _stamp(case, prior.card.checksum)
        draws, facts = _inferred(cached, stamp, partial(infer, solve_key, case))
        row, _ = measure_draws(measure_key, case.problem, draws, case.truth)
        return facts | row | _classify(case, draws)

    jobs = {str(number): job(measure, number) for number in range(problems)}
    return run_cells(folder / f"{study.name}.json", setup, jobs, report, commit=commit())


def default_model_error(prior: GenerativePrior, kind: str) -> str:
    """The model error that a kind of study takes unless it is told.

    Under the low-rank one alone, likelihood and simulation are one Gaussian, which ranks need.
    """
    exact = kind == "simulated" and LOW_RANK in prior.model_errors
    return LOW_RANK if exact else prior.model_error_name


def _inferred(path: Path, stamp: str, infer: Callable[[], Inferred]) -> Inferred:
    """Draws and facts of one posterior, from a file if it has been computed before.

    So new measures need no new inference. The facts say by which commit the draws were made.
    """
    try:
        with np.load(path, allow_pickle=False) as saved:
            facts = json.loads(str(saved["facts"]))
            if facts.pop("stamp") == stamp:
                return jnp.asarray(saved["draws"]), facts
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        pass  # The file is not there, or not whole: the posterior is computed.
    start = time.perf_counter()
    draws, facts = infer()
    facts |= {"seconds": round(time.perf_counter() - start, 2), "commit": commit()}
    make_folder(path.parent)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, draws=np.asarray(draws), facts=json.dumps(facts | {"stamp": stamp}))
    return draws, facts


def _stamp(case: Case, checksum: str) -> str:
    """A digest of the data, the model and the density that a posterior belongs to."""
    digest = hashlib.sha256(checksum.encode())
    digest.update(np.asarray(case.problem.y).tobytes())
    digest.update(np.asarray(_log_density_at_zero(case.problem)).tobytes())
    return digest.hexdigest()


def make_cases(study: Study, prior: GenerativePrior, seed: int) -> Callable[[int], Case]:
    """The problems of a study by their numbers; they do not depend on its method."""
    base = blank_problem(prior, study.corruption)
    keys = jax.random.key(seed + 1)

    def simulated(number: int) -> Case:
        drawn = _simulate(jax.random.fold_in(keys, number), base)
        return Case(base.with_data(drawn.y), Truth(np.asarray(drawn.x), np.asarray(drawn.u)))

    if study.kind == "simulated":
        return simulated
    from latentuq.data.datasets import load_dataset

    data = load_dataset("mnist")
    order = unseen_images(len(data.test_images))

    def real(number: int) -> Case:
        if number >= len(order):
            raise UserError(f"The study {study.name} has only {len(order)} problems.")
        image = order[number]
        x = np.asarray(data.test_images[image], np.float32)
        y = corrupted(jax.random.fold_in(keys, image), base, x)
        return Case(base.with_data(y), Truth(x), int(data.test_labels[image]))

    return real


def unseen_images(count: int) -> list[int]:
    """Test images that nothing was chosen on, in random order.

    Neighbours in MNIST are alike: of the second thousand a classifier misses ten times as many as
    of the eighth.
    """
    order = np.random.default_rng(0).permutation(count).tolist()
    unseen = [each for each in order if not any(low <= each < high for low, high in LOOKED_AT)]
    del unseen[CHOSEN_ON]
    return unseen


def blank_problem(prior: GenerativePrior, corruption: str) -> InverseProblem:
    """A published corruption without data of interest: C is factored once for all images."""
    experiment = EXPERIMENTS[corruption]
    noise = GaussianNoise(experiment.noise_std)
    return InverseProblem(prior, experiment.make_operator(), noise, np.zeros(SHAPE))


@bounded_jit
def _simulate(key, base):
    return base.simulate(key)


@bounded_jit
def _log_density_at_zero(problem):
    return problem.log_density(jnp.zeros(problem.dim))


def _classify(case: Case, draws: Float[Array, "n dim"]) -> dict[str, Any]:
    """The class probabilities of draws, if the class of the image is known."""
    if case.label is None:
        return {}
    classes = load_classifier().probabilities(decode_images(case.problem.prior, draws))
    return {"classes": np.round(np.mean(classes, axis=0), 4).tolist(), "label": case.label}
