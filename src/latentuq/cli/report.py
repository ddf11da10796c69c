"""`latentuq report`: the report on one image of a survey."""

from pathlib import Path
from typing import Annotated

import typer

from latentuq.cli.progress import Bar, this_command
from latentuq.cli.reconstruct import show_report


def report(
    store: Annotated[
        Path, typer.Argument(metavar="OUT.zarr", help="What latentuq batch has written.")
    ],
    image: Annotated[int, typer.Option(metavar="N", min=0, help="The number of the image.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FOLDER", help="Folder; default: OUT.zarr-N-report."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The prior, if its file has moved since."),
    ] = None,
    samples: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Draws of u and x in posterior.nc, no more than were kept."
        ),
    ] = 500,
    force: Annotated[bool, typer.Option("--force", help="Write to a folder that exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json.")] = False,
) -> None:
    """Write the full report on one image of a survey, without solving it again."""
    from latentuq.core.compilation import keep_compiled
    from latentuq.survey.reports import StoredImage, report_image

    keep_compiled()
    folder = output or Path(f"{store.resolve().name}-{image}-report")
    request = StoredImage(store, image, folder, model, samples, force, this_command())
    with Bar(quiet=as_json) as bar:
        made = report_image(request, bar.show)
    show_report(made, as_json)
