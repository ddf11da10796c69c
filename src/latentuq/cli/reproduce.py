"""`latentuq reproduce`: the paper, figure by figure."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from latentuq.cli.seeds import seed_option


def reproduce(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder of paper.json, paper.md and the figures.")
    ] = Path("latentuq-paper"),
    seed: Annotated[int, seed_option()] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the cells as JSON.")] = False,
) -> None:
    """Repeat the paper's figures, numbers and claims; what has been measured is not repeated."""
    from latentuq.core.compilation import keep_compiled

    keep_compiled()
    from latentuq.core.files import make_folder
    from studies.reproduce.page import write_page
    from studies.reproduce.run import Plan, load_models, make_setup, run_cells

    make_folder(output)
    plan = Plan(load_models(), seed)

    def report(name: str, cell: dict) -> None:
        seconds = f": {cell['seconds']:.1f} s" if "seconds" in cell else ""
        typer.echo(f"{name}{seconds}", err=True)

    cells = run_cells(plan, output / "paper.json", report)
    command = shlex.join(["latentuq", *sys.argv[1:]])
    page = write_page(cells, make_setup(plan), plan, output, command)
    typer.echo(json.dumps(cells) if as_json else f"The paper, figure by figure: {page}")
