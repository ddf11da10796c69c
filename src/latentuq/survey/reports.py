"""The full report on one image of a survey, made of what the store holds without solving again."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import jax

from latentuq.app.progress import Listener, Stages
from latentuq.app.reconstruct import Report
from latentuq.app.solving import report_key
from latentuq.core.errors import UserError
from latentuq.core.files import staged_folder
from latentuq.core.reading import explaining
from latentuq.likelihood.noise import GaussianNoise
from latentuq.problem.files import make_problem, read_prior
from latentuq.problem.inverse import InverseProblem
from latentuq.problem.specification import Specification
from latentuq.report.collect import collect
from latentuq.report.write import FILES, Background, stamp, write_report, write_summary
from latentuq.survey.layout import FAILED
from latentuq.survey.rows import Row, read_posterior
from latentuq.survey.store import Store, open_store, read_problem


@dataclass(frozen=True, eq=False)
class StoredImage:
    """An image of a survey, and the report that is wanted on it.

    Attributes:
        store: The folder of the store.
        image: The number of the image, from 0 on.
        folder: The folder for the report.
        model: The prior's model file, if it is no longer where the survey found it.
        samples: The most draws in the report's `posterior.nc`, which has no more than were kept.
        force: Whether the folder may hold files already.
        command: What the report names as the command that made it.
    """

    store: Path
    image: int
    folder: Path
    model: str | None = None
    samples: int = 500
    force: bool = False
    command: str = ""


def report_image(request: StoredImage, progress: Listener | None = None) -> Report:
    """Writes the report on an image of a survey, and solves nothing.

    It shows what the store keeps: up to eight modes, maps that were made of all draws, and draws of
    which only some were kept.

    Raises:
        UserError: The image is not in the store or has no answer, or its prior is missing.
    """
    stages, store = Stages(progress), open_store(request.store)
    row = _solved_row(store, request.image)
    with staged_folder(request.folder, request.force, FILES) as staged:
        problem = _problem_of(store, row, request.model)
        samples = min(request.samples, store.layout.draws)
        seed, name = store.identity["seed"], str(row["name"])
        key = jax.random.fold_in(jax.random.key(seed), request.image)
        provenance = {**store.provenance, "survey": str(store.path), "image": name}
        post = stamp(read_posterior(row, problem, key, provenance), request.command, seed)
        stages.end("start-up")
        stages.say("Writing the report.")
        content = collect(report_key(key), post, row.get("truth"))
        kept = (
            f"Made of what the survey {store.path.name} keeps of image {request.image}, among it"
            f" {store.layout.draws} draws."
        )
        notes = [note for note in (kept, str(row["notes"])) if note]
        background = Background(f"{name} under {problem.prior.card.name}", notes=notes)
        facts = write_report(
            staged, post, content, dataclasses.replace(background, samples=samples)
        )
        stages.end("report")
        facts["seconds"] = stages.seconds
        write_summary(staged, facts)
    stages.say(f"The report is in {request.folder}.", 1.0)
    return Report(request.folder, post, facts, None, content)


def _solved_row(store: Store, image: int) -> Row:
    if not 0 <= image < store.images:
        raise UserError(f"{store.path} has images 0 to {store.images - 1}, but no {image}.")
    row = store.row(image)
    status = str(row["status"])
    # What is there of a chunk without a marker may be half of it.
    if not status or not store.marker(image // store.chunk).exists():
        raise UserError(
            f"Image {image} of {store.path} has not been solved yet: run latentuq batch --resume."
        )
    if status == FAILED:
        raise UserError(f"Image {image} of {store.path} has no answer: {row['error']}")
    return row


def _problem_of(store: Store, row: Row, model: str | None) -> InverseProblem:
    """The problem of an image: its operator is everybody's, its data and perhaps noise its own."""
    text, arrays = read_problem(store)
    with explaining(f"{store.path} is damaged"):
        stated = Specification.from_toml(text, arrays.__getitem__)
    stated = dataclasses.replace(stated, prior=model or store.provenance["model"])
    prior, expected = read_prior(stated), store.identity["model checksum"]
    if prior.card.checksum != expected:
        raise UserError(
            f"{stated.prior} is not the prior of {store.path}: its checksum is"
            f" {prior.card.checksum} instead of {expected}; name the right file with --model."
        )
    shared = make_problem(stated, prior)
    noise = GaussianNoise(row["noise_std"]) if "noise_std" in row else shared.noise
    return InverseProblem(shared.prior, shared.operator, noise, row["y"])
