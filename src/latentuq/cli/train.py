"""`latentuq train`: a prior from clean images."""

import dataclasses
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from latentuq.core.errors import UserError
from latentuq.core.options import nested, read_toml, replace
from latentuq.prior.architecture import FlowSize, VAESize
from latentuq.prior.training.config import FitConfig, ModelErrorConfig, TrainingConfig
from latentuq.prior.training.progress import OnProgress
from latentuq.prior.training.progress import Progress as FitProgress


def _flag(name: str, table: Any, field: str, text: str = "") -> Any:
    """A flag whose help and range are those of a configuration field."""
    metadata = table.__dataclass_fields__[field].metadata
    words = ", ".join(metadata.get("values", ()))
    text = text or metadata["help"] + (f": {words}" if words else "")
    return typer.Option(name, help=text[0].upper() + text[1:] + ".", show_default=False)


def train(
    data: Annotated[
        str,
        typer.Argument(
            help="mnist, fashion-mnist, an .npz, .npy or IDX file, or a folder of images."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model file to write.")],
    config: Annotated[Path | None, typer.Option(help="TOML file; flags win over it.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing model.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON.")] = False,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Seconds between two checkpoints, at least.")
    ] = 30.0,
    name: Annotated[
        str | None, typer.Option(help="Name of the model; default: the file's.")
    ] = None,
    seed: Annotated[int | None, _flag("--seed", TrainingConfig, "seed")] = None,
    sigma: Annotated[str | None, _flag("--sigma", TrainingConfig, "sigma")] = None,
    sigma_start: Annotated[
        float | None, _flag("--sigma-start", TrainingConfig, "sigma_start")
    ] = None,
    encoder_noise: Annotated[
        float | None, _flag("--encoder-noise", TrainingConfig, "encoder_noise")
    ] = None,
    latent: Annotated[int | None, _flag("--latent", VAESize, "latent")] = None,
    blocks: Annotated[int | None, _flag("--blocks", VAESize, "blocks")] = None,
    width: Annotated[int | None, _flag("--width", VAESize, "width")] = None,
    encoder_blocks: Annotated[
        int | None, _flag("--encoder-blocks", VAESize, "encoder_blocks")
    ] = None,
    encoder_width: Annotated[int | None, _flag("--encoder-width", VAESize, "encoder_width")] = None,
    activation: Annotated[str | None, _flag("--activation", VAESize, "activation")] = None,
    decoder_output: Annotated[str | None, _flag("--decoder-output", VAESize, "output")] = None,
    epochs: Annotated[int | None, _flag("--epochs", FitConfig, "epochs")] = None,
    batch: Annotated[int | None, _flag("--batch", FitConfig, "batch")] = None,
    learning_rate: Annotated[
        float | None, _flag("--learning-rate", FitConfig, "learning_rate")
    ] = None,
    warmup: Annotated[float | None, _flag("--warmup", FitConfig, "warmup")] = None,
    weight_decay: Annotated[
        float | None, _flag("--weight-decay", FitConfig, "weight_decay")
    ] = None,
    average: Annotated[float | None, _flag("--average", FitConfig, "average")] = None,
    flow_depth: Annotated[int | None, _flag("--flow-depth", FlowSize, "depth")] = None,
    flow_width: Annotated[int | None, _flag("--flow-width", FlowSize, "width")] = None,
    flow_activation: Annotated[
        str | None, _flag("--flow-activation", FlowSize, "activation")
    ] = None,
    flow_epochs: Annotated[
        int | None, _flag("--flow-epochs", FitConfig, "epochs", "epochs of the flow")
    ] = None,
    flow_batch: Annotated[
        int | None, _flag("--flow-batch", FitConfig, "batch", "samples per step of the flow")
    ] = None,
    flow_learning_rate: Annotated[
        float | None,
        _flag("--flow-learning-rate", FitConfig, "learning_rate", "learning rate of the flow"),
    ] = None,
    flow_weight_decay: Annotated[
        float | None,
        _flag("--flow-weight-decay", FitConfig, "weight_decay", "weight decay of the flow"),
    ] = None,
    held_out: Annotated[float | None, _flag("--held-out", ModelErrorConfig, "held_out")] = None,
    choice: Annotated[float | None, _flag("--choice", ModelErrorConfig, "choice")] = None,
    floor: Annotated[float | None, _flag("--floor", ModelErrorConfig, "floor")] = None,
    rank: Annotated[int | None, _flag("--rank", ModelErrorConfig, "rank")] = None,
    most_data: Annotated[float | None, _flag("--most-data", ModelErrorConfig, "most_data")] = None,
) -> None:
    """Train a generative prior: VAE, then flow, then model error.

    The state is saved beside the output as MODEL.checkpoint and removed at the end.
    """
    flags = {
        "seed": seed,
        "sigma": sigma,
        "sigma_start": sigma_start,
        "encoder_noise": encoder_noise,
        "vae.latent": latent,
        "vae.blocks": blocks,
        "vae.width": width,
        "vae.encoder_blocks": encoder_blocks,
        "vae.encoder_width": encoder_width,
        "vae.activation": activation,
        "vae.output": decoder_output,
        "vae_fit.epochs": epochs,
        "vae_fit.batch": batch,
        "vae_fit.learning_rate": learning_rate,
        "vae_fit.warmup": warmup,
        "vae_fit.weight_decay": weight_decay,
        "vae_fit.average": average,
        "flow.depth": flow_depth,
        "flow.width": flow_width,
        "flow.activation": flow_activation,
        "flow_fit.epochs": flow_epochs,
        "flow_fit.batch": flow_batch,
        "flow_fit.learning_rate": flow_learning_rate,
        "flow_fit.weight_decay": flow_weight_decay,
        "model_error.held_out": held_out,
        "model_error.choice": choice,
        "model_error.floor": floor,
        "model_error.rank": rank,
        "model_error.most_data": most_data,
    }
    settings = TrainingConfig() if config is None else read_toml(TrainingConfig(), config)
    settings = replace(settings, nested(flags))
    plan = Plan(data, output, settings, name or output.stem, resume, force, checkpoint_seconds)
    metrics = run(plan)
    if as_json:
        typer.echo(json.dumps(metrics))
    else:
        from latentuq.cli.models import print_metrics

        print_metrics(name or output.stem, metrics)
        typer.echo(f"Wrote {output}")


class Plan(NamedTuple):
    """What to train, where to, and what to do about what is already there."""

    data: str
    output: Path
    settings: TrainingConfig
    name: str
    resume: bool
    force: bool
    checkpoint_seconds: float


def run(plan: Plan) -> dict[str, Any]:
    """Trains, saves, and returns the metrics."""
    import jax

    from latentuq.data import read_images
    from latentuq.prior.training.checkpoint import Checkpoints
    from latentuq.prior.training.train import run_training

    output, settings = plan.output, plan.settings
    if not output.parent.is_dir():
        raise UserError(f"The folder {output.parent} does not exist; create it first.")
    # Now, not after an hour of training.
    if not os.access(output.parent, os.W_OK):
        raise UserError(f"The folder {output.parent} cannot be written.")
    if output.is_dir():
        raise UserError(f"{output} is a folder; -o names the model file to write.")
    if output.exists() and not plan.force:
        raise UserError(f"{output} exists; --force overwrites it.")
    images = read_images(plan.data)
    identity = {"config": dataclasses.asdict(settings), "data": images.checksum}
    checkpoint = output.with_name(output.name + ".checkpoint")
    checkpoints = Checkpoints(checkpoint, identity, plan.checkpoint_seconds)
    if plan.resume:
        checkpoints.find()
    elif checkpoint.exists() and not plan.force:
        raise UserError(
            f"{checkpoint} is left from an interrupted run; "
            "--resume continues it, --force starts anew."
        )
    command = shlex.join(["latentuq", *sys.argv[1:]])
    with _progress_bar() as on_progress:
        trained = run_training(
            jax.random.key(settings.seed),
            images,
            settings,
            checkpoints,
            on_progress,
            plan.name,
            command,
        )
    trained.save(output)
    checkpoints.remove()
    return dict(trained.prior.card.metrics)


@contextmanager
def _progress_bar() -> Iterator[OnProgress]:
    """Shows stage, loss, ELBO, speed and time left on standard error."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _log_lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[values]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, Any] = {}

        def show(stage: str, progress: FitProgress) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(f"{stage:7s}", total=progress.steps, values="")
            task = bars.tasks[tasks[stage]]
            speed = f"  {task.speed:.3g} steps/s" if task.speed else ""
            bars.update(task.id, completed=progress.step, values=_words(progress) + speed)

        yield show


def _log_lines(interval: float = 30.0) -> OnProgress:
    """Prints a line now and then, for log files."""
    started = time.monotonic()
    last = started

    def show(stage: str, progress: FitProgress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= interval or progress.step == progress.steps:
            last = now
            done = f"{stage} {progress.step}/{progress.steps}"
            print(f"{now - started:6.0f} s  {done}  {_words(progress)}", file=sys.stderr)

    return show


def _words(progress: FitProgress) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in progress.values.items())
