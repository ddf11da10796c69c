"""From clean images to a model file, with checkpoints on the way."""

import dataclasses
import math
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax

from latentuq.app.calibrate import write_sheet
from latentuq.calibration.check import Checked, check_prior, half_hidden
from latentuq.core.errors import UserError
from latentuq.core.files import clear_unfinished, exclusive
from latentuq.core.reading import read_path
from latentuq.data.image_sets import read_images
from latentuq.prior.model_file import keep_check, load_prior, save_prior
from latentuq.prior.training.checkpoint import Checkpoints
from latentuq.prior.training.config import TrainingConfig
from latentuq.prior.training.progress import OnProgress, Progress
from latentuq.prior.training.quality import compare_elbos
from latentuq.prior.training.train import run_training

# Held-out images that a prior is checked on.
_CHECKED = 16
_CHECKING = "reconstructing held-out images with the right half hidden"


class TrainingRequest(NamedTuple):
    """What is to be trained, and what to do about files that are already there.

    Attributes:
        data: The images: a dataset, a file or a folder.
        output: The model file to write.
        settings: Every choice of the training run.
        name: The name of the model.
        resume: Whether to continue an interrupted run.
        force: Whether a model or a checkpoint may be replaced.
        checkpoint_seconds: The least number of seconds between two checkpoints.
        command: What the model names as the command that made it.
        check: Whether to check the prior on held-out images at the end.
    """

    data: str
    output: Path
    settings: TrainingConfig
    name: str
    resume: bool = False
    force: bool = False
    checkpoint_seconds: float = 30.0
    command: str = ""
    check: bool = True


class Trained(NamedTuple):
    """A prior that has been written.

    Attributes:
        metrics: Its metrics by name.
        elbos: Train against test ELBO in words.
        checked: What held-out images have shown, if it was checked.
        sheet: The image of its samples and reconstructions, if it was checked.
    """

    metrics: dict[str, Any]
    elbos: str
    checked: Checked | None
    sheet: Path | None


def train(request: TrainingRequest, on_progress: OnProgress) -> Trained:
    """Trains, saves and checks a prior.

    Args:
        request: What is to be trained.
        on_progress: Called with the name of the stage and how far it has come.
    """
    output = read_path(request.output)
    if not output.parent.is_dir():
        raise UserError(f"The folder {output.parent} does not exist; create it first.")
    # Now, not after an hour of training.
    if not os.access(output.parent, os.W_OK):
        raise UserError(f"The folder {output.parent} cannot be written.")
    if output.is_dir():
        raise UserError(f"{output} is a folder; -o names the model file to write.")
    with exclusive(output):
        return _train(request._replace(output=output), on_progress)


def _train(request: TrainingRequest, on_progress: OnProgress) -> Trained:
    output, settings = request.output, request.settings
    for path in (output, _sheet(output))[: 1 + request.check]:
        if path.exists() and not request.force:
            raise UserError(f"{path} exists; --force overwrites it.")
    images = read_images(request.data)
    identity = {"config": dataclasses.asdict(settings), "data": images.checksum}
    checkpoint = output.with_name(output.name + ".checkpoint")
    for file in (output, checkpoint):
        clear_unfinished(file)
    checkpoints = Checkpoints(checkpoint, identity, request.checkpoint_seconds)
    if request.resume:
        checkpoints.find()
    elif checkpoint.exists() and not request.force:
        raise UserError(
            f"{checkpoint} is left from an interrupted run; "
            "--resume continues it, --force starts anew."
        )
    prior = run_training(
        jax.random.key(settings.seed),
        images,
        settings,
        checkpoints,
        on_progress,
        request.name,
        request.command,
    )
    save_prior(output, prior)
    checkpoints.remove()
    elbos = compare_elbos(prior.card.metrics, math.prod(prior.shape))
    checked, sheet = _check(output, on_progress) if request.check else (None, None)
    return Trained(dict(prior.card.metrics), elbos, checked, sheet)


def _check(output: Path, on_progress: OnProgress) -> tuple[Checked, Path]:
    """Checks a model on images that it keeps; the file keeps the result, a sheet lies beside it."""
    prior = load_prior(output)
    assert prior.card.held_out is not None  # Training always keeps some.
    images, sheet = prior.card.held_out[:_CHECKED], _sheet(output)

    def report(name: str, row: dict[str, Any]) -> None:
        on_progress("check", Progress(int(name) + 1, len(images), {}, _CHECKING))

    on_progress("check", Progress(0, len(images), {}, _CHECKING))
    with tempfile.TemporaryDirectory() as folder:
        checked = check_prior(prior, images, half_hidden(prior), Path(folder), report)
        write_sheet(sheet, prior, Path(folder))
    keep_check(output, checked.check)
    return checked, sheet


def _sheet(output: Path) -> Path:
    return output.with_suffix(".png")
