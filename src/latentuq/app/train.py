"""From clean images to a model file, with checkpoints on the way."""

import dataclasses
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax

from latentuq.core.errors import UserError
from latentuq.core.files import clear_unfinished, exclusive
from latentuq.core.reading import read_path
from latentuq.data.image_sets import read_images
from latentuq.prior.model_file import save_prior
from latentuq.prior.training.checkpoint import Checkpoints
from latentuq.prior.training.config import TrainingConfig
from latentuq.prior.training.progress import OnProgress
from latentuq.prior.training.train import run_training


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
    """

    data: str
    output: Path
    settings: TrainingConfig
    name: str
    resume: bool = False
    force: bool = False
    checkpoint_seconds: float = 30.0
    command: str = ""


def train(request: TrainingRequest, on_progress: OnProgress) -> dict[str, Any]:
    """Trains and saves a prior; returns its metrics.

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


def _train(request: TrainingRequest, on_progress: OnProgress) -> dict[str, Any]:
    output, settings = request.output, request.settings
    if output.exists() and not request.force:
        raise UserError(f"{output} exists; --force overwrites it.")
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
    return dict(prior.card.metrics)
