"""All commands in one place; each lives in a module of its own."""

import os

import typer

from latentuq import __version__
from latentuq.cli import (
    batch,
    calibrate,
    data,
    demo,
    models,
    problem,
    reconstruct,
    report,
    serve,
    train,
)
from latentuq.core.reading import MOST_BYTES, VARIABLE

app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.command()(train.train)
app.command()(models.models)
app.command()(problem.problem)
app.command()(reconstruct.reconstruct)
app.command()(batch.batch)
app.command()(report.report)
app.command()(demo.demo)
app.command()(serve.serve)
app.command()(calibrate.calibrate)


@app.callback(invoke_without_command=True)
def options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    max_bytes: int | None = typer.Option(
        None,
        "--max-bytes",
        min=1,
        help="The most memory that one image from a file may take; data sets may take 8 times as"
        f" much. [default: {VARIABLE}, or {MOST_BYTES}]",
    ),
) -> None:
    """Bayesian inverse problems with generative priors."""
    if max_bytes is not None:
        os.environ[VARIABLE] = str(max_bytes)
    if version:
        typer.echo(__version__)
        raise typer.Exit
