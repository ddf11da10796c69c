"""From a corrupted image to a report: reading, stating, solving and writing, in one call."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.app.progress import Listener, Stages
from latentuq.core.errors import UserError
from latentuq.core.files import staged_folder
from latentuq.data.observation import Observation, read_observation, resize
from latentuq.likelihood.noise import GaussianNoise
from latentuq.posterior.noise_level import NoiseLevel, estimate_noise
from latentuq.posterior.posterior import Posterior
from latentuq.posterior.solve import solve
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_file import load_prior
from latentuq.problem.files import read_prior
from latentuq.problem.inverse import InverseProblem, observe
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
        resize: Whether the image may be resized to the shape of the data.
        budget: "preview", "default" or "thorough".
        samples: The number of draws of u and x that are saved.
        seed: The seed of everything random.
        force: Whether the folder may hold files already.
        command: What the report names as the command that made it.
    """

    image: str | Path | np.ndarray
    folder: Path
    specification: Specification = field(default_factory=Specification)
    model: str | None = None
    corrupt: bool = False
    resize: bool = False
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
        noise_level: The level of the noise, if it was estimated.
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
    if request.corrupt and request.specification.noise_is_unknown:
        raise UserError("--corrupt adds noise of a known level: give it instead of --noise auto.")
    stages = Stages(progress, started)
    with staged_folder(request.folder, request.force, FILES) as staged:
        prior = prior or load_prior_of(request)
        keys = jax.random.split(jax.random.key(request.seed), 4)
        data_key, noise_key, solve_key, report_key = keys
        with _noting() as notes:
            observation = read_observation(request.image, prior.scaling, len(prior.shape))
            observation.check()
            stages.end("start-up")
            problem, truth = _state(data_key, request, prior, observation)
        stages.end("problem")
        level = None
        if request.specification.noise_is_unknown:
            stages.say("Estimating the noise.")
            problem, level = _estimate(noise_key, problem)
            stages.end("noise")
        stages.say("Searching for modes (a first run compiles, some 15 seconds).")
        post = solve(solve_key, problem, budget=request.budget, progress=stages.follow)
        post = stamp(post, request.command, request.seed)
        stages.end("certify")
        stages.say("Writing the report.")
        content = collect(report_key, post, truth)
        stages.end("images")
        background = Background(
            title=f"{Path(observation.name).name} under {prior.card.name}",
            observation=observation,
            notes=notes,
            noise_level=level,
            samples=request.samples,
        )
        facts = write_report(staged, post, content, background)
        stages.end("write")
        facts["seconds"] = stages.seconds
        write_summary(staged, facts)
    stages.say(f"The report is in {request.folder}.", 1.0)
    return Report(request.folder, post, facts, level, content)


def load_prior_of(request: Request) -> GenerativePrior:
    """The prior that was asked for, or that of the specification."""
    if request.model is None and request.specification.prior is not None:
        return read_prior(request.specification)
    return load_prior(request.model or "mnist")


def _state(
    key: Key[Array, ""], request: Request, prior: GenerativePrior, observation: Observation
) -> tuple[InverseProblem, Float[np.ndarray, "height width"] | None]:
    """The problem, and the clean image if that was given."""
    operator, noise = request.specification.with_files(observation).build(prior.shape)
    if not request.corrupt:
        values = _fit(observation, operator.output_shape, "the data of this problem", request)
        # Where the level is to be estimated, any will do for the time being.
        return InverseProblem(prior, operator, noise or GaussianNoise(1.0), values), None
    values = _fit(observation, prior.shape, f"the images of {prior.card.name}", request)
    if np.isnan(values).any():
        raise UserError("A clean image has no missing pixels: fill them or leave out --corrupt.")
    assert noise is not None  # An unknown level was refused at the beginning.
    noise.check(operator.output_shape)
    y = np.asarray(observe(key, operator, noise, values.astype(np.float32)))
    return InverseProblem(prior, operator, noise, y), values


def _fit(
    observation: Observation, shape: tuple[int, ...], expected: str, request: Request
) -> Float[np.ndarray, "*data"]:
    """The values of an observation in the shape that is expected, resized if that is allowed."""
    values = observation.values
    if values.shape == shape:
        return values
    resizable = len(shape) == values.ndim == 2
    if not request.resize or not resizable:
        offer = "; --resize changes it" if resizable else ""
        raise UserError(
            f"The image has shape {values.shape}, but {expected} have shape {shape}{offer}."
        )
    return resize(values, shape)


def _estimate(key: Key[Array, ""], problem: InverseProblem) -> tuple[InverseProblem, NoiseLevel]:
    """The problem with the level of the noise that its data tell."""
    y = np.where(problem.observed, problem.y, np.nan)
    level = estimate_noise(key, problem.prior, problem.operator, y)
    return InverseProblem(problem.prior, problem.operator, GaussianNoise(level.std), y), level


@contextmanager
def _noting() -> Iterator[list[str]]:
    """Yields a list that holds, after the block, what was warned of in it; it is printed too."""
    notes: list[str] = []
    caught: list[warnings.WarningMessage] | None = None
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield notes
    finally:
        for each in caught or ():
            warnings.warn(each.message, stacklevel=4)
            notes.append(str(each.message))
