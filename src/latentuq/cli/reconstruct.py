"""`latentuq reconstruct`: from a corrupted image to a report."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from latentuq.cli import STARTED
from latentuq.cli.flags import PROBLEM_FLAGS, seed_option, with_flags
from latentuq.cli.progress import Bar, this_command


@with_flags(PROBLEM_FLAGS)
def reconstruct(
    *,
    image: Annotated[
        str,
        typer.Argument(
            metavar="IMAGE",
            help="The observation: png, tif, npy, npz or fits (file.fits[1] chooses an extension)."
            " NaN marks missing pixels; colour is reduced to grey.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder of the report; default: IMAGE's name."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Embedded model or model file; default: that of --problem, or mnist."),
    ] = None,
    flags: dict[str, Any],
    corrupt: Annotated[
        bool,
        typer.Option("--corrupt", help="IMAGE is clean: corrupt it first, compare with it after."),
    ] = False,
    resize: Annotated[
        str | None,
        typer.Option(
            help="Resize IMAGE to the shape of the data: crop cuts off what is too long, pad adds"
            " missing pixels. A mask of IMAGE's size is resized with it.",
            metavar="crop|pad",
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="preview, default or thorough.")] = "default",
    samples: Annotated[int, typer.Option(min=1, help="Draws of u and x in posterior.nc.")] = 500,
    seed: Annotated[int, seed_option()] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write to a folder that exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json.")] = False,
) -> None:
    """Find every clean image that the data allow, its probability, and how far to trust that."""
    from latentuq.app.reconstruct import Request
    from latentuq.app.reconstruct import reconstruct as run
    from latentuq.core.compilation import keep_compiled
    from latentuq.problem.specification import Specification

    keep_compiled()
    request = Request(
        image=image,
        folder=output or Path(f"{Path(image.partition('[')[0]).stem}-report"),
        specification=Specification.from_flags(flags),
        model=model,
        corrupt=corrupt,
        resize=resize,
        budget=budget,
        samples=samples,
        seed=seed,
        force=force,
        command=this_command(),
    )
    with Bar(quiet=as_json) as bar:
        report = run(request, bar.show, STARTED)
    if as_json:
        typer.echo(json.dumps(report.facts))
        return
    typer.echo(report.posterior.summary())
    for advice in report.posterior.verdict.advice:
        typer.echo(f"- {advice}")
    typer.echo(report.facts["units"])
    if report.noise_level is not None:
        typer.echo(f"Estimated noise: {report.noise_level}")
    typer.echo(f"Report: {report.folder / 'report.html'}")
