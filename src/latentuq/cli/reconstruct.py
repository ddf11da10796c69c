"""`latentuq reconstruct`: from corrupted images to reports."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latentuq.cli import STARTED
from latentuq.cli.flags import PROBLEM_FLAGS, seed_option, with_flags
from latentuq.cli.progress import Bar, this_command

if TYPE_CHECKING:
    from latentuq.app.reconstruct import Report, Request

# Exit codes: an image that cannot be reconstructed, and an unreliable answer under --strict.
_FAILED, _UNRELIABLE = 2, 3
_ANSWER = "The answer"
_answer = partial(typer.Option, rich_help_panel=_ANSWER)
_output = partial(typer.Option, rich_help_panel="The report")


@with_flags(PROBLEM_FLAGS)
def reconstruct(
    *,
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGE",
            help="The observation: png, jpg, webp, tif, npy, npz, fits or fits.gz (file.fits[1]"
            " chooses an extension, file.tif[0] a page). NaN marks missing pixels; colour is"
            " reduced to grey. Several files, or folders of images, have a report each and an"
            " index.",
        ),
    ],
    flags: dict[str, Any],
    model: Annotated[
        str | None,
        _answer(
            metavar="NAME|FILE",
            help="Embedded model or model file; default: that of --problem, or mnist.",
        ),
    ] = None,
    budget: Annotated[str, _answer(metavar="NAME", help="preview, default or thorough.")] = (
        "default"
    ),
    seed: Annotated[int, seed_option(panel=_ANSWER)] = 0,
    corrupt: Annotated[
        bool, _answer("--corrupt", help="IMAGE is clean: corrupt it first, compare with it after.")
    ] = False,
    resize: Annotated[
        str | None,
        _answer(
            metavar="crop|pad",
            help="Resize IMAGE to the shape of the data: crop cuts off what is too long, pad adds"
            " missing pixels. A mask of IMAGE's size is resized with it.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        _output(
            "-o",
            "--output",
            metavar="FOLDER",
            help="Folder of the report; default: IMAGE-report. Of several images: the folder of"
            " the index and of all reports; default: latentuq-reports.",
        ),
    ] = None,
    samples: Annotated[
        int, _output(metavar="N", min=1, help="Draws of u and x in posterior.nc.")
    ] = 500,
    force: Annotated[bool, _output("--force", help="Write to a folder that exists.")] = False,
    strict: Annotated[
        bool,
        _output(
            "--strict",
            help="Exit with code 3 if an answer is unreliable; the report is written all the same.",
        ),
    ] = False,
    as_json: Annotated[
        bool, _output("--json", help="Print summary.json; of several images one line each.")
    ] = False,
) -> None:
    """Find every clean image that the data allow, its probability, and how far to trust that.

    Exit codes: 0 done, 2 an image failed (a sentence says why), 3 unreliable under --strict.
    """
    from latentuq.app.reconstruct import Request
    from latentuq.app.several import find_images, folder_name
    from latentuq.core.compilation import keep_compiled
    from latentuq.problem.specification import Specification

    keep_compiled()
    files = find_images(images)
    single = files == images and len(files) == 1
    folder = f"{folder_name(files[0])}-report" if single else "latentuq-reports"
    request = Request(
        image=files[0],
        folder=output or Path(folder),
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
    found = _run_one(request, as_json) if single else _run_all(files, request, as_json)
    if "failed" in found:
        raise typer.Exit(_FAILED)
    if strict and "unreliable" in found:
        raise typer.Exit(_UNRELIABLE)


def _run_one(request: "Request", as_json: bool) -> set[str]:
    """Writes one report, prints what was found, and returns the status of the answer."""
    from latentuq.app.reconstruct import reconstruct as run

    with Bar(quiet=as_json) as bar:
        report = run(request, bar.show, STARTED)
    show_report(report, as_json)
    return {report.facts["status"]}


def show_report(report: "Report", as_json: bool) -> None:
    """Prints what a report says in short, and where it is."""
    if as_json:
        typer.echo(json.dumps(report.facts))
        return
    typer.echo(report.posterior.summary())
    for advice in report.posterior.verdict.advice:
        typer.echo(f"- {advice}")
    if report.facts["units"]:
        typer.echo(report.facts["units"])
    if report.noise_level is not None:
        typer.echo(f"Estimated noise: {report.noise_level}")
    typer.echo(f"Report: {report.folder / 'report.html'}")


def _run_all(files: list[str], request: "Request", as_json: bool) -> set[str]:
    """Writes all reports and the index, prints a line on each, and returns every status."""
    from latentuq.app.several import Facts, reconstruct_all

    found: set[str] = set()

    def tell(facts: Facts) -> None:
        found.add(facts["status"])
        failed = facts["status"] == "failed"
        if as_json:
            print(json.dumps(facts), flush=True)
        elif not failed:
            print(f"{facts['image']}: {facts['verdict']['text']}", flush=True)
        if failed:
            print(f"latentuq: {facts['image']}: {facts['reasons'][0]}", file=sys.stderr, flush=True)

    with Bar(quiet=as_json) as bar:
        reconstruct_all(files, request, tell, bar.show)
    if not as_json:
        typer.echo(f"Index: {request.folder / 'index.html'}")
    return found
