"""From a request to the store that its results go to: a new one, or one to go on with."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jaxlib
import numpy as np

import latentuq
from latentuq.app.reconstruct import choose_prior
from latentuq.core.errors import UserError
from latentuq.core.reading import check_size, read_path
from latentuq.data.images import split_extension
from latentuq.inference.settings import check_budget
from latentuq.prior.check import PriorCheck
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_file import embedded_name
from latentuq.problem.inverse import InverseProblem
from latentuq.survey.images import Survey, open_survey
from latentuq.survey.layout import Layout, data_axes
from latentuq.survey.store import Store, create_store, is_store, open_store
from latentuq.survey.work import Plan

# Images at the beginning of a survey of which one at least must make a problem.
_TRIED = 20


@dataclass(frozen=True, eq=False)
class BatchRequest:
    """What is to be solved, where to and by whom.

    Attributes:
        plan: How every image is solved.
        output: The Zarr store to write.
        chunk: The number of images that a worker solves and writes at once.
        draws: The number of equally weighted draws of u that are kept of each image, with what
            `latentuq report` needs; 0 for none.
        workers: The number of processes, one for each core by default; 0 solves in this process.
        scheduler: The address of a Dask scheduler whose workers are to be used instead.
        resume: Whether to go on with a store that an earlier run has left, if there is one.
        force: Whether a store that exists may be replaced.
        command: What the store names as the command that made it.
    """

    plan: Plan
    output: Path
    chunk: int = 64
    draws: int = 128
    workers: int | None = None
    scheduler: str | None = None
    resume: bool = False
    force: bool = False
    command: str = ""


def plan_store(request: BatchRequest) -> tuple[Store, InverseProblem]:
    """The store as it has to be for a request, and the problem of one image.

    Raises:
        UserError: The request makes no sense, or none of the first images makes a problem.
    """
    _check(request)
    plan = request.plan
    survey = open_survey(plan.images, plan.specification)
    prior = choose_prior(plan.model, plan.specification)
    problem = _first_problem(plan, prior, survey)
    return _planned(request, survey, problem), problem


def prepare_store(request: BatchRequest, store: Store, problem: InverseProblem) -> None:
    """Makes the store, or checks that the one that is there is of the same survey."""
    path = store.path
    if not path.exists():
        create_store(store, problem)
        return
    if not is_store(path):
        raise UserError(f"{path} exists and is not a survey of latentuq: name another place.")
    if request.force:
        create_store(store, problem)
        return
    if not request.resume:
        raise UserError(f"{path} exists; --resume goes on with it, --force begins anew.")
    found, wanted = (
        json.loads(json.dumps(dict(each.identity))) for each in (open_store(path), store)
    )
    names = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    if names:
        changes = [f"{name} was {found.get(name)} and is {wanted.get(name)} now" for name in names]
        raise UserError(
            f"{path} is of another survey, problem or version, and cannot be resumed:"
            f" {'; '.join(changes)}. Begin anew with --force, or name another place."
        )


def _check(request: BatchRequest) -> None:
    check_budget(request.plan.budget)
    for name, least in (("chunk", 1), ("draws", 0), ("workers", 0)):
        if (value := getattr(request, name)) is not None:
            check_whole(name, value, least)
    if not read_path(request.output).resolve().name:
        raise UserError(f"{request.output} is no place for a store: name a folder in it.")
    _check_apart(request)
    if request.resume and request.force:
        raise UserError("Give --resume to go on, or --force to begin anew, not both.")
    if request.scheduler is not None and request.workers is not None:
        raise UserError("A scheduler has workers of its own: leave out --workers.")


def check_whole(name: str, value: object, least: int) -> None:
    """Refuses what is not a whole number, or too small."""
    if not isinstance(value, int) or value < least:
        raise UserError(f"{name} is a whole number from {least} on, not {value!r}.")


def _check_apart(request: BatchRequest) -> None:
    """Refuses to write to where something is read from."""
    output, plan = read_path(request.output).resolve(), request.plan
    for each in (
        Path(plan.images),
        *_files(plan.specification.operators),
        *_files(plan.specification.noise),
    ):
        source = split_extension(each)[0].resolve()
        if output in (source, *source.parents):
            raise UserError(f"{request.output} is read from too: name another place for the store.")


def _files(value: Any) -> Iterator[Path]:
    """The files that tables and lists name."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _files(each)


def _first_problem(plan: Plan, prior: GenerativePrior, survey: Survey) -> InverseProblem:
    """The problem of the first image that makes one; if none does, it is no fault of the images."""
    solver, first = plan.solver(prior, survey), None
    for image in range(min(len(survey), _TRIED)):
        try:
            return solver.state(plan.key(image), survey.given(image))
        except UserError as error:
            first = first or error
    assert first is not None  # A survey has at least one image.
    raise first


def _fingerprint(check: PriorCheck | None) -> str | None:
    """Tells checks of a prior, on which verdicts depend, from each other."""
    if check is None:
        return None
    content = json.dumps(dataclasses.asdict(check), sort_keys=True).encode()
    return f"SHA-256 {hashlib.sha256(content).hexdigest()[:16]}"


def _planned(request: BatchRequest, survey: Survey, problem: InverseProblem) -> Store:
    """The store as it has to be for this request."""
    plan, prior = request.plan, problem.prior
    noise = None
    if survey.noises:
        noise = data_axes(problem.y.ndim)
    elif plan.specification.noise_is_unknown:
        noise = ()
    elif survey.images.names and problem.noise.factor is None:
        # Pictures of 8 and of 16 bits have units of their own, and so has their noise.
        noise = data_axes(problem.noise.std.ndim)
    shapes = prior.shape, problem.y.shape, prior.dim
    layout = Layout(*shapes, request.draws, noise, plan.corrupt)
    check_size(layout.image_bytes * request.chunk, f"A chunk of {request.chunk} images", many=True)
    identity = {
        **survey.identity,
        "model": prior.card.name,
        "model checksum": prior.card.checksum,
        # What else a model file may say, and the checksum of its arrays does not cover.
        "model units": dataclasses.asdict(prior.scaling),
        "model check": _fingerprint(prior.card.check),
        "corrupt": plan.corrupt,
        "resize": plan.resize,
        "budget": plan.budget,
        "seed": plan.seed,
        "draws": request.draws,
        "chunk": request.chunk,
    }
    versions = (latentuq, jax, jaxlib, np)
    identity |= {f"{each.__name__} version": each.__version__ for each in versions}
    provenance = {
        "input": os.path.abspath(plan.images),
        "model": embedded_name(prior) or os.path.abspath(prior.card.path or prior.card.name),
        "command": request.command,
    }
    return Store(
        read_path(request.output), layout, len(survey), request.chunk, identity, provenance
    )
