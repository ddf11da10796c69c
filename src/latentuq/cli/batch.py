"""`latentuq batch`: a whole survey into one store."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latentuq.cli.flags import PROBLEM_FLAGS, seed_option, with_flags
from latentuq.cli.progress import Bar, this_command

if TYPE_CHECKING:
    from latentuq.survey.run import Tally

_FAILED = 2
# Seconds between two lines of a log, and between two of JSON.
_PAUSE, _JSON_PAUSE = 10.0, 1.0
_answer = partial(typer.Option, rich_help_panel="The answers")
_work = partial(typer.Option, rich_help_panel="The work")


@with_flags(PROBLEM_FLAGS)
def batch(
    *,
    images: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="The observations: a .npy, .npz, NetCDF, FITS or IDX file or a Zarr store, whose"
            " first axis counts the images, pages of a TIFF, or a folder of images. FILE[NAME]"
            " chooses one array of several. Masks and maps of the noise with the same first axis"
            " are one for each image.",
        ),
    ],
    flags: dict[str, Any],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT.zarr", help="The store to write.")
    ],
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
    seed: Annotated[int, seed_option(panel="The answers")] = 0,
    corrupt: Annotated[
        bool, _answer("--corrupt", help="Images are clean: corrupt them first, keep them as truth.")
    ] = False,
    resize: Annotated[
        str | None, _answer(metavar="crop|pad", help="Resize images to the shape of the data.")
    ] = None,
    draws: Annotated[
        int,
        _answer(
            metavar="N",
            min=0,
            help="Draws of u that are kept of each image. With 0, which saves space, no report can"
            " be made later.",
        ),
    ] = 128,
    workers: Annotated[
        int | None,
        _work(
            metavar="N",
            min=0,
            help="Processes, each on a core of its own; default: one for each core. 0: this"
            " process, without Dask.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        _work(metavar="tcp://HOST:PORT", help="Use the workers of this Dask scheduler instead."),
    ] = None,
    chunk: Annotated[
        int, _work(metavar="N", min=1, help="Images that a worker solves and writes at once.")
    ] = 64,
    resume: Annotated[
        bool, _work("--resume", help="Go on with a store that an earlier run has left.")
    ] = False,
    force: Annotated[
        bool, _work("--force", help="Replace a store that exists, and begin anew.")
    ] = False,
    as_json: Annotated[
        bool, _work("--json", help="Print progress, and the end, as lines of JSON.")
    ] = False,
) -> None:
    """Reconstruct every image of a survey; finished images are never lost, and --resume goes on.

    Exit codes: 0 done, 2 the run could not begin or had to stop (a sentence says why).
    """
    from latentuq.core.compilation import keep_compiled
    from latentuq.problem.specification import Specification
    from latentuq.survey.prepare import BatchRequest
    from latentuq.survey.run import RESUMABLE, run_batch
    from latentuq.survey.work import Plan

    keep_compiled()
    specification = Specification.from_flags(flags)
    plan = Plan(images, specification, model, corrupt, resize, budget, seed)
    request = BatchRequest(
        plan=plan,
        output=output,
        chunk=chunk,
        draws=draws,
        workers=workers,
        scheduler=scheduler,
        resume=resume,
        force=force,
        command=this_command(),
    )
    with Bar(quiet=as_json) as bar:
        teller = _Teller(bar, as_json)
        try:
            store = run_batch(request, teller.tell)
        except KeyboardInterrupt:
            if teller.begun:
                print(f"latentuq: {RESUMABLE}", file=sys.stderr, flush=True)
            raise
    page = str(store.page)
    if as_json:
        last = teller.last.to_json() if teller.last else {}
        print(
            json.dumps({**last, "message": "Done.", "store": str(store.path), "page": page}),
            flush=True,
        )
        return
    if teller.last is not None:
        typer.echo(f"{teller.last}.")
    typer.echo(f"Store: {store.path}\nPage: {page}")


class _Teller:
    """Shows how far a survey has come: a bar, lines of a log, or lines of JSON."""

    def __init__(self, bar: Bar, as_json: bool):
        self.bar, self.as_json = bar, as_json
        self.last: Tally | None = None
        self.begun, self.printed = False, -_PAUSE

    def tell(self, tally: "Tally") -> None:
        changed = self.last is None or tally.doing != self.last.doing
        self.last, self.begun = tally, self.begun or tally.images > 0
        if not self.as_json and not self.bar.hidden:
            if changed and tally.doing:
                self.bar.progress.console.print(tally.doing, highlight=False)
            self.bar.count(str(tally), tally.done, tally.images or None)
            return
        pause = _JSON_PAUSE if self.as_json else _PAUSE
        if changed or tally.seconds >= self.printed + pause:
            self.printed = tally.seconds
            text = f"{tally.seconds:6.1f} s  {tally.doing if changed else tally}"
            line, file = (
                (json.dumps(tally.to_json()), sys.stdout) if self.as_json else (text, sys.stderr)
            )
            print(line, file=file, flush=True)
