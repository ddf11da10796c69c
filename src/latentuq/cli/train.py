"""`latentuq train`: a prior from clean images."""

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import TimeRemainingColumn

from latentuq.cli.flags import with_flags
from latentuq.cli.models import print_metrics
from latentuq.cli.progress import Bar, this_command
from latentuq.core.options import nested, read_toml, replace
from latentuq.prior.training.config import TrainingConfig
from latentuq.prior.training.progress import OnProgress
from latentuq.prior.training.progress import Progress as FitProgress

# What the names of flags begin with, for each table of the configuration.
_PREFIXES = {"vae": "", "vae_fit": "", "flow": "flow_", "flow_fit": "flow_", "model_error": ""}
_RENAMED = {"vae.output": "decoder_output"}
# Seconds between two lines of a log file.
_LOG_SECONDS = 30.0


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
    with Bar(clock=TimeRemainingColumn()) as bar:
        metrics = run(request, _follow(bar))
    if as_json:
        typer.echo(json.dumps(metrics))
    else:
        print_metrics(request.name, metrics)
        typer.echo(f"Wrote {output}")


def _follow(bar: Bar) -> OnProgress:
    """Shows how far a stage has come; its end, and in log files now and then, is a line."""
    started = last = time.monotonic()

    def show(stage: str, progress: FitProgress) -> None:
        nonlocal last
        now = time.monotonic()
        values = "  ".join(f"{name} {value:.4g}" for name, value in progress.values.items())
        bar.count(f"{stage}  {values}", progress.step, progress.steps)
        if progress.step == progress.steps or (bar.hidden and now - last >= _LOG_SECONDS):
            last = now
            done = f"{stage} {progress.step}/{progress.steps}"
            print(f"{now - started:6.0f} s  {done}  {values}", file=sys.stderr)

    return show
