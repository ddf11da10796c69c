"""From a corrupted image to a report: reading, stating, solving and writing, in one call."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax

from latentuq.app.progress import Listener, Stages
from latentuq.app.solving import Given, Image, Solver, report_key
from latentuq.core.files import staged_folder
from latentuq.posterior.file import check_samples
from latentuq.posterior.noise_level import NoiseLevel
from latentuq.posterior.posterior import Posterior
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_file import load_prior
from latentuq.problem.files import read_prior
from latentuq.problem.specification import Specification
from latentuq.report.collect import collect
from latentuq.report.content import Content
from latentuq.report.write import FILES, Background, stamp, write_report, write_summary


@dataclass(frozen=True, eq=False)
class Request:
    """What is to be reconstructed, and how.

    Attributes:
        image: The observation: a file, or an array as a file would hold it.
        folder: Where the report shall be.
        specification: What happened to the clean image.
        model: The name or the model file of the prior; by default that of the specification, or
            "mnist".
        corrupt: Whether the image is clean: then it is corrupted first, and compared with the
            answer.
        resize: How the image may be resized to the shape of the data: "crop", "pad" or not at all.
        budget: "preview", "default" or "thorough".
        samples: The number of draws of u and x that are saved.
        seed: The seed of everything random.
        force: Whether the folder may hold files already.
        command: What the report names as the command that made it.
    """

    image: Image
    folder: Path
    specification: Specification = field(default_factory=Specification)
    model: str | None = None
    corrupt: bool = False
    resize: str | None = None
    budget: str = "default"
    samples: int = 500
    seed: int = 0
    force: bool = False
    command: str = ""


class Report(NamedTuple):
    """A report that has been written.

    Attributes:
        folder: The folder that holds it.
        posterior: The posterior that it describes.
        facts: The numbers of `summary.json`.
        noise_level: The level of the noise in the units of the data, if it was estimated.
        content: The arrays and numbers that the report shows.
    """

    folder: Path
    posterior: Posterior
    facts: dict[str, Any]
    noise_level: NoiseLevel | None
    content: Content


def reconstruct(
    request: Request,
    progress: Listener | None = None,
    started: float | None = None,
    prior: GenerativePrior | None = None,
) -> Report:
    """Finds every clean image that the data allow, and writes a report on them.

    Nothing is left in the folder, or of it, unless all of the report has been written.

    Args:
        request: What is to be reconstructed.
        progress: Called with an `Event` whenever there is something to say.
        started: When the work began, for the time that start-up took; see `Stages`.
        prior: The prior of the request, if it is loaded already.
    """
    stages = Stages(progress, started)
    with staged_folder(request.folder, request.force, FILES) as staged:
        prior = prior or choose_prior(request.model, request.specification)
        check_samples(request.samples, prior)
        solver = Solver(
            prior,
            request.specification,
            corrupt=request.corrupt,
            resize=request.resize,
            budget=request.budget,
        )
        key = jax.random.key(request.seed)
        solved = solver.solve(key, Given(request.image), stages)
        post = stamp(solved.posterior, request.command, request.seed)
        stages.say("Writing the report.")
        content = collect(report_key(key), post, solved.truth)
        stages.end("images")
        background = Background(
            title=f"{Path(solved.observation.name).name} under {prior.card.name}",
            observation=solved.observation,
            assumed=solved.assumed,
            notes=solved.notes,
            noise_level=solved.level,
            samples=request.samples,
        )
        facts = write_report(staged, post, content, background)
        stages.end("write")
        facts["seconds"] = stages.seconds
        write_summary(staged, facts)
    stages.say(f"The report is in {request.folder}.", 1.0)
    return Report(request.folder, post, facts, solved.level, content)


def choose_prior(model: str | None, specification: Specification) -> GenerativePrior:
    """The prior that was asked for, or else that of the specification, or else "mnist"."""
    if model is None and specification.prior is not None:
        return read_prior(specification)
    return load_prior(model or "mnist")
