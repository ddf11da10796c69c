"""What a worker does: one chunk of images after another, each image from file to row."""

import dataclasses
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jaxtyping import Array, Key

from latentuq.app.reconstruct import choose_prior
from latentuq.app.solving import Solver, noting
from latentuq.core.cores import available_cores
from latentuq.core.errors import UserError
from latentuq.core.files import write_file
from latentuq.core.reading import read_path, reason
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_file import embedded_models
from latentuq.problem.specification import Specification
from latentuq.survey.images import Survey, open_survey
from latentuq.survey.layout import STATUSES
from latentuq.survey.rows import Row, error_row, make_row
from latentuq.survey.store import Store, open_store

MOST_DEATHS = 3
"""An image is given up when so many processes have died of it."""
_OWNER = "owner"


@dataclass(frozen=True, eq=False)
class Plan:
    """How every image of a survey is solved.

    Attributes:
        images: The file or folder of the images.
        specification: What happened to the clean images.
        model: The name or the model file of the prior, see `choose_prior`.
        corrupt: Whether the images are clean, and are corrupted first.
        resize: How images may be resized: "crop", "pad" or not at all.
        budget: "preview", "default" or "thorough".
        seed: The seed of everything random.
    """

    images: str
    specification: Specification
    model: str | None = None
    corrupt: bool = False
    resize: str | None = None
    budget: str = "default"
    seed: int = 0

    def solver(self, prior: GenerativePrior, survey: Survey) -> Solver:
        """What solves the images of a survey."""
        return Solver(
            prior,
            survey.specification,
            corrupt=self.corrupt,
            resize=self.resize,
            budget=self.budget,
        )

    def absolute(self) -> "Plan":
        """The same plan for processes that work in other folders."""
        stated = self.specification
        stated = dataclasses.replace(
            stated,
            operators=_absolute(stated.operators),
            noise=_absolute(stated.noise),
            prior=_absolute_model(stated.prior),
        )
        images, model = str(read_path(self.images).absolute()), _absolute_model(self.model)
        return dataclasses.replace(self, images=images, specification=stated, model=model)

    def key(self, image: int) -> Key[Array, ""]:
        """The randomness of an image, which depends on its number alone."""
        return jax.random.fold_in(jax.random.key(self.seed), image)


def _absolute(value: Any) -> Any:
    """The same with absolute paths, within tables and lists as well."""
    if isinstance(value, Mapping):
        return {name: _absolute(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_absolute(each) for each in value]
    return read_path(value).absolute() if isinstance(value, Path) else value


def _absolute_model(model: str | None) -> str | None:
    known = model is None or model in embedded_models()
    return model if known else str(read_path(model).absolute())


@dataclass(frozen=True, eq=False)
class Job:
    """One run of a plan into a store.

    Attributes:
        plan: How images are solved.
        store: The folder of the store.
        token: The name of this run; workers of earlier ones stop.
        pinned: Whether each worker keeps to a core of its own.
    """

    plan: Plan
    store: str
    token: str
    pinned: bool = False


class Progress:
    """What is known of a chunk that is worked on, in a file that outlives its process.

    Attributes:
        deaths: How many processes of this run have died of each image.
        counts: How many images have become what.
    """

    def __init__(self, path: Path, token: str):
        """Reads what earlier processes have left: they died of the image that they had begun."""
        self.path, self.token = path, token
        self.deaths: Counter[int] = Counter()
        self.counts: Counter[str] = Counter()
        said = read_progress(path)
        if said.get("token") == token:
            self.deaths.update({int(image): times for image, times in said["deaths"].items()})
            self.deaths[said["image"]] += 1

    def begin(self, image: int) -> None:
        """Says which image is next, before anything can happen to it."""
        said = {"token": self.token, "image": image, "deaths": self.deaths, "counts": self.counts}
        aside = self.path.with_suffix(".tmp")
        try:
            aside.write_text(json.dumps(said))
            aside.replace(self.path)
        except OSError as error:
            raise UserError(f"Cannot write {self.path}: {reason(error)}.") from error


def progress_path(store: Store, chunk: int) -> Path:
    """The file in which the progress of a chunk is."""
    return store.run / f"{chunk:08d}.now"


def read_progress(path: Path) -> dict[str, Any]:
    """What a worker has said last of its chunk; nothing before it begins and after it ends."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def begin_run(store: Store, token: str) -> None:
    """Makes a run the only one whose workers write, and removes what killed ones left half-done."""
    for left in (
        *store.run.glob("*.now"),
        *store.run.glob("*.tmp"),
        *store.run.glob(".*"),
        *store.path.rglob("*.partial"),
    ):
        left.unlink(missing_ok=True)
    write_file(store.run / _OWNER, token)


def end_run(store: Store) -> None:
    """Makes workers that still go on stop at their next image."""
    (store.run / _OWNER).unlink(missing_ok=True)


class _Worker:
    """What does not depend on the image: the prior, the problem, files that are open."""

    def __init__(self, job: Job):
        self.job, self.store = job, open_store(job.store)
        with noting(quiet=True):  # Whoever planned the run has seen it.
            self.survey = open_survey(job.plan.images, job.plan.specification)
        if len(self.survey) != self.store.images:
            raise UserError(
                f"{job.plan.images} holds {len(self.survey)} images now, but {self.store.images}"
                " when the run began."
            )
        prior = choose_prior(job.plan.model, job.plan.specification)
        self.solver = job.plan.solver(prior, self.survey)

    def solve(self, chunk: int) -> None:
        """Solves the images of a chunk and writes their rows."""
        members = self.store.members(chunk)
        progress = Progress(progress_path(self.store, chunk), self.job.token)
        rows: dict[int, Row] = {}
        # One that a process has died of comes first: if it dies again, little is done twice.
        for image in sorted(members, key=lambda each: -progress.deaths[each]):
            self._check_owner()
            progress.begin(image)
            rows[image] = self._row(image, progress.deaths[image])
            progress.counts[rows[image]["status"]] += 1
        self._check_owner()
        counts = {status: progress.counts[status] for status in STATUSES}
        self.store.write(chunk, [rows[image] for image in members], counts)
        progress.path.unlink(missing_ok=True)

    def _row(self, image: int, deaths: int) -> Row:
        """The row of an image; whatever goes wrong with it is a sentence in its row."""
        name, started = self.survey.images.name(image), time.perf_counter()
        error = f"Its process died {deaths} times while it was solved."
        if deaths < MOST_DEATHS:
            try:
                with noting(quiet=True) as notes:
                    given = self.survey.given(image)
                solved = self.solver.solve(self.job.plan.key(image), given, quiet=True)
                solved = solved._replace(notes=[*notes, *solved.notes])
                return make_row(self.store.layout, name, solved, started)
            except UserError as failure:
                error = str(failure)
            except Exception as failure:  # Anything at all must not end the run.
                error = f"Unexpected failure: {type(failure).__name__}: {failure}"
        return error_row(self.store.layout, name, error, time.perf_counter() - started)

    def _check_owner(self) -> None:
        with suppress(OSError):
            if (self.store.run / _OWNER).read_text() == self.job.token:
                return
        raise UserError("The run that this worker belongs to has ended.")


# A process solves one image at a time, however many threads it has, and keeps what it needs.
_busy = threading.Lock()
_workers: dict[str, _Worker] = {}


def solve_chunk(job: Job, chunk: int) -> None:
    """Solves a chunk in this process and writes it to the store."""
    with _busy:
        if job.token not in _workers:
            _workers.clear()
            if job.pinned:
                _keep_to_a_core()
            _workers[job.token] = _Worker(job)
        _workers[job.token].solve(chunk)


def _keep_to_a_core() -> None:
    """Gives this worker a core of its own, by its number, before JAX counts the cores."""
    from distributed import get_worker

    cores = sorted(available_cores())
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cores[int(get_worker().name) % len(cores)]})
