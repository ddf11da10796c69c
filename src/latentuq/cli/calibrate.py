"""`latentuq calibrate`: is a prior any good?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latentuq.cli.flags import PROBLEM_FLAGS, seed_option, with_flags
from latentuq.cli.progress import Bar, this_command

if TYPE_CHECKING:
    from latentuq.calibration.check import Checked


@with_flags(PROBLEM_FLAGS)
def calibrate(
    *,
    model: Annotated[
        str | None,
        typer.Option(help="Embedded model or model file; default: that of --problem, or mnist."),
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(
            help="Clean images that it was not trained on: a folder, an .npz, .npy or IDX file, or"
            " a dataset; default: those that train kept aside."
        ),
    ] = None,
    flags: dict[str, Any],
    count: Annotated[int, typer.Option(min=5, help="The number of images, at most.")] = 30,
    budget: Annotated[str, typer.Option(help="preview, default or thorough.")] = "default",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder of the report; default: the model's name."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Store the result in the model, for later reports.")
    ] = False,
    seed: Annotated[int, seed_option()] = 0,
    force: Annotated[bool, typer.Option("--force", help="Start anew in a used folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json.")] = False,
) -> None:
    """Check a prior: corrupt images with known answers, reconstruct them, and compare.

    The corruption is described as for reconstruct; by default the right half of every image is
    hidden and the other half has mild noise. Every image is saved as it finishes, and a second
    call continues.
    """
    from latentuq.app.calibrate import CalibrationRequest
    from latentuq.app.calibrate import calibrate as run
    from latentuq.core.compilation import keep_compiled
    from latentuq.data.observation import Units
    from latentuq.problem.specification import UNITS, Specification

    keep_compiled()
    specification = Specification.from_flags(flags)
    # Those of a problem file are about its data, not about these images.
    given = {name: value for name, value in flags.items() if value is not None}
    units = Units(**{name: given.pop(name) for name in UNITS if name in given})
    model = model or specification.prior or "mnist"
    folder = output or Path(f"{Path(model).stem}-calibration")
    request = CalibrationRequest(
        folder,
        model,
        images,
        units,
        specification if given else None,
        corruption=" ".join(f"--{name} {value}" for name, value in given.items()),
        count=count,
        budget=budget,
        seed=seed,
        force=force,
        keep=keep,
        command=this_command(),
    )
    with Bar(quiet=as_json) as bar:
        checked = run(request, bar.count)
    if as_json:
        typer.echo(json.dumps(checked.facts))
        return
    print_check(checked)
    typer.echo(f"Report: {folder / 'report.html'}")


def print_check(checked: "Checked") -> None:
    """Prints what a check has found: the word, why, and what to do."""
    typer.echo(f"{checked.check.word}: {checked.mark.sentence}")
    typer.echo(checked.mark.details)
    for advice in checked.facts["advice"]:
        typer.echo(f"- {advice}")
