"""From a model and held-out images to a report on how far the prior can be trusted."""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import latentuq
from latentuq.calibration.check import ROWS, Checked, Plan, check_prior, half_hidden
from latentuq.calibration.examples import draw_sheet, read_examples
from latentuq.calibration.page import make_page
from latentuq.core.errors import UserError
from latentuq.core.files import atomic_path, write_file
from latentuq.data.datasets import load_dataset, to_unit
from latentuq.data.digits import load_digits
from latentuq.data.image_sets import read_images
from latentuq.data.observation import Observation, Units, read_observation
from latentuq.data.publications import PUBLICATIONS
from latentuq.data.scaling import BYTES, UNIT, Scaling
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_file import keep_check, load_prior
from latentuq.prior.training.quality import compare_elbos
from latentuq.problem.specification import Specification
from latentuq.problem.units import check_noise

# Samples of the prior that are shown.
_SAMPLES = 24

OnImage = Callable[[str, int, int], None]
"""Called with a sentence on what was found, the number of images that are done, and that of all."""


@dataclasses.dataclass(frozen=True, eq=False)
class CalibrationRequest:
    """What is to be checked, and how.

    Attributes:
        folder: Where rows and report shall be.
        model: The name or the model file of the prior.
        images: The held-out images: a dataset, a file or a folder; by default those that training
            kept aside.
        units: What is said about black and white of the images.
        specification: What happens to every image; by default half of it is hidden, with mild
            noise on the other half.
        corruption: The specification in a few words.
        count: The largest number of images.
        budget: The budget of every reconstruction.
        seed: The seed of everything random.
        force: Whether rows of other settings in the folder may be replaced.
        keep: Whether the model file shall keep the result.
        command: What the report names as the command that made it.
    """

    folder: Path
    model: str = "mnist"
    images: str | None = None
    units: Units = Units()
    specification: Specification | None = None
    corruption: str = ""
    count: int = 30
    budget: str = "default"
    seed: int = 0
    force: bool = False
    keep: bool = False
    command: str = ""


def calibrate(request: CalibrationRequest, on_image: OnImage) -> Checked:
    """Checks a prior on held-out images and writes a report; continues what the folder holds.

    Args:
        request: What is to be checked.
        on_image: Called after each image.
    """
    prior = load_prior(request.model)
    found = read_held_out(prior, request.images, request.units)
    order = np.random.default_rng(request.seed).permutation(len(found.raw))
    images = found.scaling.to_unit(found.raw[order[: request.count]])
    plan = _make_plan(request, prior, found)
    _prepare(request)

    def report(name: str, row: dict[str, Any]) -> None:
        hidden = row["pixels"]["hidden"]
        covered = hidden[3] / max(hidden[0], 1)
        message = f"Image {int(name) + 1}: {covered:.0%} of its hidden pixels are covered."
        on_image(message, int(name) + 1, len(images))

    on_image("The first image (a first run compiles, some 15 seconds).", 0, len(images))
    checked = check_prior(prior, images, plan, request.folder, report)
    provenance = {
        "model": prior.card.name,
        "model checksum": prior.card.checksum,
        "training": compare_elbos(prior.card.metrics, math.prod(prior.shape)),
        "held-out images": f"{found.name} ({len(images)} of {len(found.raw)})",
        "their units": found.assumed,
        "budget": request.budget,
        "seed": str(request.seed),
        "command": request.command,
        "latentuq version": latentuq.__version__,
    }
    _write(request.folder, prior, checked, provenance)
    if request.keep:
        keep_check(request.model, checked.check)
    return checked


def read_held_out(prior: GenerativePrior, source: str | None, units: Units) -> Observation:
    """The images of a source, or else those that the model keeps or that its dataset has."""
    if source is None and units != Units():
        raise UserError("--scale, --offset and --invert are about --images: give these too.")
    name, raw = _kept_images(prior) if source is None else _read_raw(prior, source, units)
    if raw.shape[1:] != prior.shape:
        raise UserError(
            f"The images of {name} have shape {raw.shape[1:]}, but those of {prior.card.name} have"
            f" shape {prior.shape}."
        )
    observation = read_observation(raw, prior.scaling, raw.ndim, units)
    return dataclasses.replace(observation, name=name)


def _read_raw(prior: GenerativePrior, source: str, units: Units) -> tuple[str, np.ndarray]:
    found = read_images(source)
    images, scaling = found.train if found.test is None else found.test, found.scaling
    known = {UNIT, BYTES}
    if prior.scaling in known and scaling not in known and units.scale is None:
        raise UserError(
            f"{source} holds values from {scaling.offset:g} to {scaling.white:g}, but"
            f" {prior.card.name} was trained on images of 8 bits or from 0 to 1: say what white is"
            " with --scale."
        )
    return source, _in_file_units(images, scaling)


def _kept_images(prior: GenerativePrior) -> tuple[str, np.ndarray]:
    card, data = prior.card, str(prior.card.training.get("data"))
    if card.held_out is not None:
        name, images = "images that training kept aside", card.held_out
    elif data == "mnist":
        name, images = "the MNIST test digits of the package", load_digits().images
    elif data in PUBLICATIONS:
        name, images = f"test images of {data}", to_unit(load_dataset(data).test_images)
    else:
        raise UserError(f"The model {card.name} keeps no held-out images: give --images.")
    return name, _in_file_units(images, prior.scaling)


def _in_file_units(images: np.ndarray, scaling: Scaling) -> np.ndarray:
    """Images as their files had them: as bytes if these were bytes."""
    raw = scaling.from_unit(images.astype(np.float64))
    return np.rint(raw).astype(np.uint8) if scaling == BYTES else raw


def _make_plan(request: CalibrationRequest, prior: GenerativePrior, found: Observation) -> Plan:
    if request.specification is None:
        return half_hidden(prior, request.budget, request.seed)
    operator, noise = request.specification.with_files(found).build(prior.shape)
    if noise is None:
        raise UserError("calibrate adds noise of a known level: give it instead of --noise auto.")
    check_noise(found, noise)
    return Plan(operator, noise, request.corruption, request.budget, request.seed)


def _prepare(request: CalibrationRequest) -> None:
    """Refuses a folder of something else, and clears rows that may be replaced."""
    rows = request.folder / ROWS
    if request.folder.is_dir() and any(request.folder.iterdir()) and not rows.exists():
        if not request.force:
            raise UserError(
                f"{request.folder} is not empty and no calibration; --force writes to it."
            )
    elif request.force:
        rows.unlink(missing_ok=True)


def _write(
    folder: Path, prior: GenerativePrior, checked: Checked, provenance: dict[str, str]
) -> None:
    samples = np.asarray(prior.sample(jax.random.key(0), _SAMPLES))
    examples = read_examples(folder, prior.shape[1])
    page = make_page(checked, samples, examples, provenance)
    write_file(folder / "report.html", page)
    write_file(folder / "summary.json", json.dumps(checked.facts, indent=1) + "\n")


def write_sheet(path: Path, prior: GenerativePrior, folder: Path) -> None:
    """Writes samples of a prior, and the reconstructions of a check, as one image.

    Args:
        path: The image to write.
        prior: The prior.
        folder: The folder of the check.
    """
    samples = np.asarray(prior.sample(jax.random.key(0), _SAMPLES))
    with atomic_path(path) as temporary:
        draw_sheet(samples, read_examples(folder, prior.shape[1])).savefig(temporary, dpi=130)
