"""Several images in one call: a report on each, and an index of them all."""

import dataclasses
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from latentuq.app.progress import Event, Listener
from latentuq.app.reconstruct import Request, choose_prior, reconstruct
from latentuq.core.errors import UserError
from latentuq.core.files import make_folder, write_file
from latentuq.data.image_sets import image_files
from latentuq.data.images import IMAGE_SUFFIXES
from latentuq.report.index import Entry, make_index, make_row, make_row_of_failure

Facts = dict[str, Any]
"""The numbers of one `summary.json` with the name of its image, or why there is none."""


def find_images(names: Iterable[str]) -> list[str]:
    """The files that are meant: a folder stands for the images in it, in the order of their names.

    Raises:
        UserError: A folder holds no images.
    """
    found: list[str] = []
    for name in names:
        inside = image_files(Path(name)) if Path(name).is_dir() else [Path(name)]
        if not inside:
            raise UserError(
                f"The folder {name} holds no {', '.join(IMAGE_SUFFIXES)} images; name NumPy files"
                " one by one."
            )
        found += map(str, inside)
    return found


def folder_name(image: str) -> str:
    """The name of an image's report: the file's own, with its suffix and its extension if given.

    So `phone5.png` and `phone5.jpg` have reports of their own, as have two extensions of one FITS
    file.
    """
    path, _, extension = image.partition("[")
    part = re.sub(r"\W+", "-", extension.rstrip("]"))
    return Path(path).name + (f"-{part}" if part else "")


def reconstruct_all(
    images: Sequence[str],
    request: Request,
    tell: Callable[[Facts], None],
    progress: Listener | None = None,
) -> None:
    """Reconstructs one image after another under one prior; one that fails does not stop the rest.

    Reports that are finished stay if the work is interrupted, and are in the index.

    Args:
        images: The files.
        request: All that they share. Its folder is that of the index, and holds a folder for each.
        tell: Called with the facts of each image when it is done: those of `summary.json`, with
            the file as "image" and the page as "report". Of an image that failed they are these,
            the status "failed", and the sentence that says why as the only one of the reasons.
        progress: Called with an `Event` whenever there is something to say.
    """
    index = request.folder / "index.html"
    if index.exists() and not request.force:
        raise UserError(f"{index} exists; --force overwrites it.")
    prior = choose_prior(request.model, request.specification)
    rows: list[str] = []
    started = time.perf_counter()
    names = _unique([folder_name(image) for image in images])
    try:
        for place, (image, name) in enumerate(zip(images, names, strict=True)):
            one = dataclasses.replace(request, image=image, folder=request.folder / name)
            listen = _of_part(progress, f"{name} ({place + 1} of {len(images)})", started)
            try:
                report = reconstruct(one, listen, prior=prior)
            except UserError as error:
                rows.append(make_row_of_failure(name, str(error)))
                tell({"image": image, "status": "failed", "reasons": [str(error)], "report": None})
                continue
            verdict = report.posterior.verdict
            why = str(verdict).removeprefix(f"{verdict.word}: ")  # The word stands beside the name.
            why = why[:1].upper() + why[1:]
            rows.append(make_row(Entry(name, why, "", verdict, report.content)))
            tell({"image": image, **report.facts, "report": str(one.folder / "report.html")})
    finally:
        if rows:
            _write_index(index, f"latentuq: {len(images)} images", prior.card.name, rows)


def _write_index(path: Path, title: str, prior: str, rows: Sequence[str]) -> None:
    make_folder(path.parent)
    write_file(path, make_index(title, f"Reconstructed under the prior {prior}.", rows))


def _unique(names: Sequence[str]) -> list[str]:
    """The names with a number after those that have been there before."""
    found: list[str] = []
    for name in names:
        choices = (name if n == 1 else f"{name}-{n}" for n in range(1, len(names) + 1))
        found.append(next(each for each in choices if each not in found))
    return found


def _of_part(progress: Listener | None, name: str, started: float) -> Listener | None:
    """Makes events of one image events of the whole: they name the image, and time goes on."""
    if progress is None:
        return None

    def listen(event: Event) -> None:
        seconds = time.perf_counter() - started
        progress(event._replace(message=f"{name}: {event.message}", seconds=seconds))

    return listen
