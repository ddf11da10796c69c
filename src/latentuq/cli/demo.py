"""`latentuq demo`: the paper's four corruptions, without any download."""

import json
from pathlib import Path
from typing import Annotated

import typer

from latentuq.cli.flags import seed_option
from latentuq.cli.progress import Bar, this_command


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the reports.")] = Path(
        "latentuq-demo"
    ),
    model: Annotated[str, typer.Option(help="Embedded model or model file.")] = "mnist",
    budget: Annotated[str, typer.Option(help="preview, default or thorough.")] = "default",
    seed: Annotated[int, seed_option()] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write to a folder that exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summaries as JSON.")] = False,
) -> None:
    """Reconstruct four corrupted digits, with a report on each and an index of them all."""
    from latentuq.app.demo import DemoRequest, make_demo
    from latentuq.core.compilation import keep_compiled

    keep_compiled()
    request = DemoRequest(output, model, budget, seed, force, this_command())
    with Bar(quiet=as_json) as bar:
        reports = make_demo(request, bar.show)
    if as_json:
        summaries = {report.entry.name: report.facts for report in reports}
        typer.echo(json.dumps({"index": str(output / "index.html"), "reports": summaries}))
        return
    for report in reports:
        entry = report.entry
        typer.echo(f"{entry.name}: {entry.summary}\n  {report.posterior!r}\n  {entry.note}")
    typer.echo(f"Open {output / 'index.html'} in a browser.")
