"""`latentuq demo`: a first look that needs no download."""

import json
from pathlib import Path
from typing import Annotated

import typer

from latentuq.errors import UserError


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the figures.")] = Path(
        "latentuq-demo"
    ),
    model: Annotated[str, typer.Option(help="Embedded model or model file.")] = "mnist",
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite earlier figures.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print paths and metrics as JSON.")
    ] = False,
) -> None:
    """Say what is in a model and draw prior samples before and after its flow."""
    import jax

    from latentuq.cli.models import print_metrics
    from latentuq.files import make_folder
    from latentuq.report.prior_sheet import draw_prior_sheet, save_figure
    from latentuq.store import load_prior

    prior = load_prior(model)
    sheet = output / "prior_samples.png"
    if sheet.exists() and not force:
        raise UserError(f"{sheet} exists; --force overwrites it.")
    make_folder(output)
    save_figure(draw_prior_sheet(jax.random.key(seed), prior), sheet)
    if as_json:
        typer.echo(json.dumps({"figures": [str(sheet)], "metrics": dict(prior.card.metrics)}))
        return
    typer.echo(repr(prior))
    print_metrics(prior.card.name, prior.card.metrics)
    typer.echo(f"Prior samples before and after the flow: {sheet}")
