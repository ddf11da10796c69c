"""`latentuq train`: a prior from clean images."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import TimeRemainingColumn

from latentuq.cli.calibrate import print_check
from latentuq.cli.flags import with_flags
from latentuq.cli.models import print_metrics
from latentuq.cli.progress import Bar, this_command
from latentuq.core.options import listed, nested, read_assignments, read_toml, replace
from latentuq.prior.training.config import TrainingConfig
from latentuq.prior.training.progress import OnProgress
from latentuq.prior.training.progress import Progress as FitProgress

# The settings that have flags of their own, by the names of these.
_COMMON = {
    "epochs": "vae_fit.epochs",
    "latent": "vae.latent",
    "width": "vae.width",
    "batch": "vae_fit.batch",
    "learning_rate": "vae_fit.learning_rate",
    "seed": "seed",
}
_SETTINGS = listed(TrainingConfig())
# Seconds between two lines of a log file.
_LOG_SECONDS = 30.0


def _explain(name: str) -> str:
    """What a setting means, and what it may be."""
    field = _SETTINGS[name]
    words = ", ".join(field.metadata.get("values", ()))
    text = field.metadata["help"] + (f": {words}" if words else "")
    return f"{text[0].upper()}{text[1:]}."


def _declare(name: str) -> Any:
    default = _SETTINGS[name].default
    option = typer.Option(help=_explain(name), show_default=str(default))
    return Annotated[type(default) | None, option]


_FLAGS = {flag: _declare(name) for flag, name in _COMMON.items()}


def _list_settings(wanted: bool) -> None:
    """Prints every setting and ends."""
    if wanted:
        for name, field in _SETTINGS.items():
            typer.echo(f"{name:26s} {field.default!s:10s} {_explain(name)}")
        raise typer.Exit


@with_flags(_FLAGS)
def train(
    *,
    data: Annotated[
        str,
        typer.Argument(
            help="mnist, galaxies or another dataset, an .npz, .npy or IDX file, or a folder of"
            " images."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model file to write.")],
    flags: dict[str, Any],
    assigned: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any setting, such as vae.activation=leaky_relu."
        ),
    ] = None,
    list_settings: Annotated[
        bool,
        typer.Option(
            "--list-settings",
            is_eager=True,
            callback=_list_settings,
            help="List all settings with their defaults, and end.",
        ),
    ] = False,
    config: Annotated[Path | None, typer.Option(help="TOML file; flags win over it.")] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check", help="Check the prior on held-out images at the end (a minute)."
        ),
    ] = True,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing model.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON.")] = False,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Seconds between two checkpoints, at least.")
    ] = 30.0,
    name: Annotated[
        str | None, typer.Option(help="Name of the model; default: the file's.")
    ] = None,
) -> None:
    """Train a generative prior: VAE, then flow, then model error; then check it.

    The state is saved beside the output as MODEL.checkpoint and removed at the end. The check
    reconstructs held-out images of which half is hidden; its result is kept in the model, and
    MODEL.png shows samples of the prior and reconstructions beside the truth.
    """
    from latentuq.core.compilation import keep_compiled

    keep_compiled()
    settings = TrainingConfig() if config is None else read_toml(TrainingConfig(), config)
    given = {_COMMON[flag]: value for flag, value in flags.items()}
    given |= read_assignments(settings, assigned or ())
    settings = replace(settings, nested(given))
    from latentuq.app.train import TrainingRequest
    from latentuq.app.train import train as run

    request = TrainingRequest(
        data, output, settings, name or output.stem, resume, force, checkpoint_seconds,
        this_command(), check,
    )  # fmt: skip
    with Bar(clock=TimeRemainingColumn()) as bar:
        trained = run(request, _follow(bar))
    checked = trained.checked
    if as_json:
        facts = {} if checked is None else {"check": checked.facts}
        typer.echo(json.dumps(trained.metrics | facts))
        return
    print_metrics(request.name, trained.metrics)
    typer.echo(trained.elbos)
    if checked is None:
        typer.echo("Not checked on held-out images: latentuq calibrate does it.")
    else:
        print_check(checked)
        typer.echo(f"Wrote {trained.sheet}")
    typer.echo(f"Wrote {output}")


def _follow(bar: Bar) -> OnProgress:
    """Shows how far a stage has come; its end, and in log files now and then, is a line.

    So is the beginning of whatever is told in words.
    """
    started = last = time.monotonic()
    told = ""

    def show(stage: str, progress: FitProgress) -> None:
        nonlocal last, told
        now = time.monotonic()
        values = "  ".join(f"{name} {value:.4g}" for name, value in progress.values.items())
        values = values or progress.message
        bar.count(f"{stage}  {values}", progress.step, progress.steps)
        due = progress.step == progress.steps or progress.message not in ("", told)
        if due or (bar.hidden and now - last >= _LOG_SECONDS):
            last, told = now, progress.message
            done = f"{stage} {progress.step}/{progress.steps}"
            print(f"{now - started:6.0f} s  {done}  {values}", file=sys.stderr)

    return show
