"""`latentuq train`: a prior from clean images."""

import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from latentuq.cli.flags import with_flags
from latentuq.cli.models import print_metrics
from latentuq.cli.progress import this_command
from latentuq.core.options import nested, read_toml, replace
from latentuq.prior.training.config import TrainingConfig
from latentuq.prior.training.progress import OnProgress
from latentuq.prior.training.progress import Progress as FitProgress

# What the names of flags begin with, for each table of the configuration.
_PREFIXES = {"vae": "", "vae_fit": "", "flow": "flow_", "flow_fit": "flow_", "model_error": ""}
_RENAMED = {"vae.output": "decoder_output"}


def _declare_flags() -> tuple[dict[str, Any], dict[str, str]]:
    """A flag for every field of the configuration, and the field of every flag."""
    flags, places = {}, {}

    def declare(table: Any, prefix: str, path: str) -> None:
        for field in dataclasses.fields(table):
            value, place = getattr(table, field.name), path + field.name
            if dataclasses.is_dataclass(value):
                declare(value, _PREFIXES[field.name], f"{place}.")
                continue
            name = _RENAMED.get(place, prefix + field.name)
            words = ", ".join(field.metadata.get("values", ()))
            text = field.metadata["help"] + (f": {words}" if words else "")
            text += " (flow)" if path == "flow_fit." else ""
            option = typer.Option(
                f"--{name.replace('_', '-')}",
                help=f"{text[0].upper()}{text[1:]}.",
                show_default=False,
            )
            flags[name], places[name] = Annotated[type(value) | None, option], place

    declare(TrainingConfig(), "", "")
    return flags, places


_FLAGS, _PLACES = _declare_flags()


@with_flags(_FLAGS)
def train(
    *,
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
    flags: dict[str, Any],
) -> None:
    """Train a generative prior: VAE, then flow, then model error.

    The state is saved beside the output as MODEL.checkpoint and removed at the end.
    """
    settings = TrainingConfig() if config is None else read_toml(TrainingConfig(), config)
    settings = replace(settings, nested({_PLACES[flag]: given for flag, given in flags.items()}))
    from latentuq.app.train import TrainingRequest
    from latentuq.app.train import train as run

    request = TrainingRequest(
        data, output, settings, name or output.stem, resume, force, checkpoint_seconds,
        this_command(),
    )  # fmt: skip
    with _progress_bar() as on_progress:
        metrics = run(request, on_progress)
    if as_json:
        typer.echo(json.dumps(metrics))
    else:
        print_metrics(request.name, metrics)
        typer.echo(f"Wrote {output}")


@contextmanager
def _progress_bar() -> Iterator[OnProgress]:
    """Shows stage, loss, ELBO, speed and time left on standard error."""
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
