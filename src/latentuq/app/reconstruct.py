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
from latentuq.data.observation import Observation
from latentuq.likelihood.noise import GaussianNoise
from latentuq.posterior.file import check_samples
from latentuq.posterior.noise_level import NoiseLevel, estimate_noise
from latentuq.posterior.posterior import Posterior
from latentuq.posterior.solve import solve
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_file import load_prior
from latentuq.problem.files import read_data, read_prior
from latentuq.problem.inverse import InverseProblem, observe
from latentuq.problem.specification import Specification
from latentuq.problem.units import to_prior_scale
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

    image: str | Path | np.ndarray
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
    if request.corrupt and request.specification.noise_is_unknown:
        raise UserError("--corrupt adds noise of a known level: give it instead of --noise auto.")
    stages = Stages(progress, started)
    with staged_folder(request.folder, request.force, FILES) as staged:
        prior = prior or load_prior_of(request)
        check_samples(request.samples, prior)
        keys = jax.random.split(jax.random.key(request.seed), 4)
        data_key, noise_key, solve_key, report_key = keys
        with _noting() as notes:
            observation = read_data(request.specification, request.image, prior)
            stages.end("start-up")
            problem, truth = _state(data_key, request, prior, observation)
        assumed = _what_is_assumed(request.specification, observation, problem)
        stages.say(assumed)
        stages.end("problem")
        level = None
        if request.specification.noise_is_unknown:
            stages.say("Estimating the noise.")
            problem, level = _estimate(noise_key, problem)
            level = level.scaled(observation.scaling.step)
            stages.end("noise")
        stages.say("Searching for modes.")
        post = solve(solve_key, problem, budget=request.budget, progress=stages.follow)
        post = stamp(post, request.command, request.seed)
        stages.end("certify")
        stages.say("Writing the report.")
        content = collect(report_key, post, truth)
        stages.end("images")
        background = Background(
            title=f"{Path(observation.name).name} under {prior.card.name}",
            observation=observation,
            assumed=assumed,
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
    if request.corrupt:
        return _corrupt(key, request, prior, observation)
    stated = request.specification.with_files(observation)
    stated, observation = stated.fit(observation, prior.shape, request.resize)
    operator, noise = stated.build(prior.shape)
    values = to_prior_scale(observation, operator, noise)
    # Where the level is to be estimated, any will do for the time being.
    return InverseProblem(prior, operator, noise or GaussianNoise(1.0), values), None


def _corrupt(
    key: Key[Array, ""], request: Request, prior: GenerativePrior, observation: Observation
) -> tuple[InverseProblem, Float[np.ndarray, "height width"]]:
    """The problem that a corruption makes of a clean image, and that image."""
    clean, exact = Specification(), GaussianNoise(0.0)
    _, observation = clean.fit(observation, prior.shape, request.resize)
    if np.isnan(observation.raw).any():
        raise UserError("A clean image has no missing pixels: fill them or leave out --corrupt.")
    values = to_prior_scale(observation, clean.build(prior.shape)[0], exact)
    operator, noise = request.specification.with_files(observation).build(prior.shape)
    assert noise is not None  # An unknown level was refused at the beginning.
    noise.check(operator.output_shape)
    y = np.asarray(observe(key, operator, noise, values.astype(np.float32)))
    return InverseProblem(prior, operator, noise, y), values


def _what_is_assumed(
    specification: Specification, observation: Observation, problem: InverseProblem
) -> str:
    """What is taken for granted about the units of data and noise, in a line."""
    levels = np.unique(np.asarray(problem.noise.std) * observation.scaling.step)
    if specification.noise_is_unknown:
        noise = "The noise is estimated from the data."
    elif not levels.any():
        noise = "No noise is assumed: for noisy data give --noise, or --noise auto to estimate it."
    else:
        noise = f"The noise is {observation.show(*levels[[0, -1]][: len(levels)])}."
    return f"{observation.assumed} {noise}"


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
