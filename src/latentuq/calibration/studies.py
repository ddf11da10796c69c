"""Studies of calibration: many problems of one kind, saved as they finish, resumed where left."""

import hashlib
import json
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.calibration.measure import DRAWS, Truth, measure_draws
from latentuq.core.cells import commit, read_results
from latentuq.core.errors import UserError
from latentuq.core.files import atomic_path, make_folder
from latentuq.likelihood.noise import GaussianNoise
from latentuq.posterior import Posterior, solve
from latentuq.prior import GenerativePrior
from latentuq.problem import InverseProblem
from latentuq.problem.experiments import EXPERIMENTS, SHAPE
from studies.baselines import BaselineResult
from studies.baselines.laplace_mixture import laplace_mixture
from studies.baselines.svi import Family, svi

STUDIES = ("simulated", "real")
LOOKED_AT = ((0, 1100), (5000, 5100))
"""Ranges of test images that had a part in making the method."""

CHOSEN_ON = slice(2000, 2300)
"""Places in the random order of the others on which the weight of the data was chosen."""


class Study(NamedTuple):
    """What a file of rows is about.

    Attributes:
        kind: "simulated": data drawn from the model; "real": test images of a dataset.
        corruption: A name in `EXPERIMENTS`.
        model_error: Which of the prior's estimates is in use.
        method: What draws from the posterior.
    """

    kind: str
    corruption: str
    model_error: str
    method: str = "latentuq"

    @property
    def name(self) -> str:
        return "-".join(self)


class Case(NamedTuple):
    """A problem and what its data were made from."""

    problem: InverseProblem
    truth: Truth


def check_study(study: Study, prior: GenerativePrior) -> None:
    """Raises a `UserError` for a study that does not exist."""
    for value, known, what in (
        (study.kind, STUDIES, "study"),
        (study.corruption, tuple(EXPERIMENTS), "corruption"),
        (study.method, tuple(METHODS), "method"),
    ):
        if value not in known:
            raise UserError(f"There is no {what} {value!r}; there are {', '.join(known)}.")
    prior.with_model_error(study.model_error)


def run_study(
    study: Study,
    prior: GenerativePrior,
    problems: int,
    folder: Path,
    seed: int = 0,
    report: Callable[[int, dict[str, Any]], None] = lambda done, row: None,
) -> Path:
    """Measures problems until there are enough, and saves each as it finishes.

    Args:
        study: What to measure.
        prior: A trained prior.
        problems: How many rows the file shall have.
        folder: Where the file is or will be.
        seed: Of the problems and of the inference.
        report: Called with the number of rows and the last of them.
    """
    check_study(study, prior)
    path = folder / f"{study.name}.json"
    setup = {
        "study": study._asdict(),
        "model": prior.card.name,
        "model_checksum": prior.card.checksum,
        "seed": seed,
    }
    if study.kind == "real":
        setup["looked_at"] = [list(each) for each in LOOKED_AT]
    rows = read_rows(path, setup)
    prior = prior.with_model_error(study.model_error)
    cases = make_cases(study, prior, seed)
    infer = METHODS[study.method]
    for number, case in enumerate(cases):
        if len(rows) >= problems:
            return path
        if number < len(rows):
            continue
        solve_key, measure_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), number))
        cached = folder / "draws" / f"{study.name}-{seed}-{number}.npz"
        stamp = _stamp(case, setup["model_checksum"])
        draws, facts = _inferred(cached, stamp, partial(infer, solve_key, case))
        row = measure_draws(measure_key, case.problem, draws, case.truth)
        rows.append(facts | row)
        write_rows(path, setup, rows)
        report(len(rows), rows[-1])
    raise UserError(f"The study {study.name} has only {len(rows)} problems, not {problems}.")


def _inferred(
    path: Path, stamp: str, infer: Callable[[], tuple[Float[Array, "n dim"], dict[str, Any]]]
) -> tuple[Float[Array, "n dim"], dict[str, Any]]:
    """Draws and facts of one posterior, from a file if it has been computed before.

    So new measures need no new inference. The facts say by which commit the draws were made.
    """
    try:
        with np.load(path, allow_pickle=False) as saved:
            facts = json.loads(str(saved["facts"]))
            if facts.pop("stamp") == stamp:
                return jnp.asarray(saved["draws"]), facts
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        pass  # Not there, or not whole: it is computed.
    start = time.perf_counter()
    draws, facts = infer()
    facts |= {"seconds": round(time.perf_counter() - start, 2), "commit": commit()}
    make_folder(path.parent)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        text = json.dumps(facts | {"stamp": stamp})
        np.savez(file, draws=np.asarray(draws), facts=text)
    return draws, facts


def _stamp(case: Case, checksum: str) -> str:
    """Of the data, the model and the density that a posterior belongs to."""
    digest = hashlib.sha256(checksum.encode())
    digest.update(np.asarray(case.problem.y).tobytes())
    digest.update(np.asarray(_log_density_at_zero(case.problem)).tobytes())
    return digest.hexdigest()


def read_rows(path: Path, setup: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a study's file; none if it does not exist."""
    return read_results(path, setup, "rows", "a calibration study") or []


def write_rows(path: Path, setup: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Writes a study's file, one row to a line."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    with atomic_path(path) as temporary:
        temporary.write_text(f'{{"setup": {json.dumps(setup)},\n"rows": [\n{lines}\n]}}\n')


def make_cases(study: Study, prior: GenerativePrior, seed: int) -> Iterator[Case]:
    """The problems of a study, one after the other; they do not depend on its method."""
    base = blank_problem(prior, study.corruption)
    keys = jax.random.key(seed + 1)
    if study.kind == "simulated":
        number = 0
        while True:
            drawn = _simulate(jax.random.fold_in(keys, number), base)
            truth = Truth(np.asarray(drawn.x), np.asarray(drawn.u))
            yield Case(base.with_data(drawn.y), truth)
            number += 1
    from latentuq.data import load_dataset

    data = load_dataset("mnist")
    for number in unseen_images(len(data.test_images)):
        x = np.asarray(data.test_images[number], np.float32)
        y = corrupted(jax.random.fold_in(keys, number), base, x)
        yield Case(base.with_data(y), Truth(x, label=int(data.test_labels[number])))


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


def corrupted(
    key: Key[Array, ""], base: InverseProblem, x: Float[np.ndarray, "*shape"]
) -> Float[Array, "*data"]:
    """Data of an image with fresh noise."""
    y = base.operator.apply(jnp.asarray(x)) + base.noise.sample(key, base.y.shape)
    return jnp.where(base.observed, y, jnp.nan)


@eqx.filter_jit
def _simulate(key, base):
    return base.simulate(key)


@eqx.filter_jit
def _log_density_at_zero(problem):
    return problem.log_density(jnp.zeros(problem.dim))


def _solve(key: Key[Array, ""], case: Case) -> tuple[Float[Array, "n dim"], dict[str, Any]]:
    solve_key, draw_key = jax.random.split(key)
    post = solve(solve_key, case.problem)
    return post.sample(draw_key, DRAWS), describe(post, case.truth)


def describe(post: Posterior, truth: Truth) -> dict[str, Any]:
    """What a row keeps of a posterior."""
    d = post.diagnostics
    facts = {
        "verdict": post.verdict.word,
        "log_evidence": round(post.log_evidence, 3),
        "khat": round(d.khat, 3),
        "ess": round(d.ess),
        "missed_mass": round(d.missed_mass, 4),
        "p_value": d.predictive_p_value,
        "chi_squared": round(float(d.reduced_chi_squared or np.nan), 4),
        "forward_equivalents": d.forward_equivalents,
        "weights": [round(float(weight), 4) for weight in post.weights[:4]],
    }
    if truth.u is not None:
        at_truth = post.responsibilities(jnp.asarray(truth.u))
        facts["mode_of_truth"] = [round(float(share), 4) for share in at_truth[:4]]
    return facts


def _laplace(key: Key[Array, ""], case: Case) -> tuple[Float[Array, "n dim"], dict[str, Any]]:
    solve_key, draw_key = jax.random.split(key)
    modes = solve(solve_key, case.problem, budget="preview").modes
    return _drawn(laplace_mixture(draw_key, case.problem.log_density, modes, draws=DRAWS))


def _svi(
    family: Family, key: Key[Array, ""], case: Case
) -> tuple[Float[Array, "n dim"], dict[str, Any]]:
    problem = case.problem
    return _drawn(svi(key, problem.log_density, problem.dim, family=family, draws=DRAWS))


def _drawn(result: BaselineResult) -> tuple[Float[Array, "n dim"], dict[str, Any]]:
    facts = {
        "log_evidence": round(result.log_evidence or np.nan, 3),
        "forward_equivalents": result.forward_equivalents,
    }
    return jnp.asarray(result.draws), facts


METHODS: dict[str, Callable[..., Any]] = {
    "latentuq": _solve,
    "laplace": _laplace,
    "mean-field": partial(_svi, "mean-field"),
    "full-rank": partial(_svi, "full-rank"),
}
