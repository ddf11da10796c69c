"""The page on a survey: how many images are what and why, which to look at, a table of them all."""

import html
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from latentuq.core.files import write_file
from latentuq.core.text import printable
from latentuq.inference.causes import Cause
from latentuq.report.content import Overview
from latentuq.report.figures import overview_panels, true_minus
from latentuq.report.html import picture, row, section, table, wrap
from latentuq.survey.distributions import count_images, draw_distributions
from latentuq.survey.findings import (
    COLOURS,
    NUMBERS,
    UNSOLVED,
    Findings,
    measure_rate,
    read_findings,
)
from latentuq.survey.layout import FAILED, UNRELIABLE
from latentuq.survey.store import Store

MOST_ROWS = 20_000
"""Images that the table holds at most."""

# What needs a look most has the smallest; in the order of `COLOURS`.
_URGENCY = np.array([2, 1, 0, 3])
# Images of a gallery, pixels along the longest side of their pictures, errors that are listed, and
# characters that the table shows of an error.
_SHOWN, _SIDE, _ERRORS, _LETTERS = 8, 256, 10, 160
# The columns of the table, and how `page.js` shows each.
_COLUMNS = {
    "number": "whole",
    "name": "text",
    "status": "status",
    "why": "text",
    "heaviest mode": "share",
    "modes": "whole",
    "ln evidence": "number",
    "χ² per datum": "number",
    "p-value": "p",
    "uncertainty": "number",
    "surprise": "number",
    "seconds": "number",
}
_PICTURES = ("most_probable", "mean", "std")
_UNCERTAINTY = (
    "The largest uncertainty: the root of the mean square of all pixels' standard deviations, where"
    " white is 1."
)
_SURPRISE = (
    "Data that are least like those that the prior makes. Surprise counts standard deviations:"
    " about 0 if the prior made the image, less where more error is assumed than there is, and much"
    " more where the image is of another kind."
)


def write_page(store: Store) -> Path:
    """Writes a page on all images of a survey, however many are solved, into its folder.

    Args:
        store: The survey.

    Returns:
        The file.
    """
    found = read_findings(store)
    parts = {
        "": _headline(found),
        "Why images are unreliable": _reasons(found),
        "Why images failed": _errors(found),
        "Distributions": draw_distributions(found),
        "The least certain": _gallery(found, "uncertainty", _UNCERTAINTY),
        "The most surprising": _gallery(found, "surprise", _SURPRISE),
        "All images": _images(found),
        "How this was made": _making(found),
    }
    body = "".join(section(name, part) for name, part in parts.items() if part)
    source = printable(Path(store.provenance.get("input") or store.path).name)
    title = f"{count_images(store.images)} of {source}"
    write_file(store.page, wrap(title, f'<div class="survey">{body}</div>', _resource("page.css")))
    return store.page


def _headline(found: Findings) -> str:
    images = found.store.images
    counts = {word: int(np.count_nonzero(found.are(word))) for word in COLOURS}
    bars = "".join(
        f'<span style="flex: {count}; background: {COLOURS[word]}"></span>'
        for word, count in counts.items()
        if count
    )
    legend = "".join(
        f'<li style="--mode: {COLOURS[word]}"><b>{count:,}</b> {word}'
        f" <small>{_share(count, images)}</small></li>"
        for word, count in counts.items()
        if count or word != UNSOLVED
    )
    prior = html.escape(printable(str(found.store.identity.get("model"))))
    said = [f"{count_images(images)} under the prior <b>{prior}</b>."]
    if counts[UNSOLVED]:
        said.append("Not all are solved yet: the same command with --resume goes on.")
    known = found.numbers["seconds"][np.isfinite(found.numbers["seconds"])]
    if known.size:
        said.append(f"The median image took {_show(float(np.median(known)))} seconds.")
    if rate := measure_rate(found):
        said.append(f"All workers together solved {_show(rate)} images per second.")
    return (
        f'<p>{" ".join(said)}</p><div class="parts" aria-hidden="true">{bars}</div>'
        f'<ul class="legend">{legend}</ul><p class="note">Reliable: computed well, and the data do'
        " not contradict the model; it does not mean that the picture is right. Failed: there is an"
        " error in place of an answer.</p>"
    )


def _reasons(found: Findings) -> str:
    """How many images are unreliable for each cause; causes of the prior never make one so."""
    unreliable = found.are(UNRELIABLE)
    total, causes = int(np.count_nonzero(unreliable)), Counter[str]()
    for reasons, times in Counter(found.texts["reasons"][unreliable].tolist()).items():
        causes.update({name: times for name in reasons.split(", ") if name})
    lines = [
        (count, total, f"<b>{_plain_cause(name)}</b> <br>{_explain(name)}")
        for name, count in causes.most_common()
        if not name.startswith("PRIOR_")
    ]
    notes = ["An image may have several reasons."] if sum(causes.values()) > total else []
    notes += [
        f"Besides, of the prior: {_explain(name)}" for name in causes if name.startswith("PRIOR_")
    ]
    return _bars(lines, UNRELIABLE) + _notes(notes) if total else ""


def _plain_cause(name: str) -> str:
    return html.escape(printable(name)).lower().replace("_", " ")


def _explain(name: str) -> str:
    """The sentence of a cause without its numbers, which are those of one image."""
    if name not in Cause.__members__:
        return ""
    clause = re.sub(r"\{.*?\}", "…", re.sub(r": \{\w+\}$", "", Cause[name].clause))
    return html.escape(f"{clause[0].upper()}{clause[1:]}.")


def _errors(found: Findings) -> str:
    """How many images failed with each error, whatever names and numbers are in it."""
    failed = np.flatnonzero(found.are(FAILED)).tolist()
    errors, first = Counter[str](), dict[str, int]()
    for image in failed:
        error, name = found.text("error", image), found.text("name", image)
        if name:
            error = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "…", error)
        error = re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "…", error)
        errors[error] += 1
        first.setdefault(error, image)
    lines = [
        (count, len(failed), f"{html.escape(error)} <small>First: image {first[error]}.</small>")
        for error, count in errors.most_common(_ERRORS)
    ]
    if len(errors) > _ERRORS:
        others = len(failed) - sum(count for count, *_ in lines)
        lines.append((others, len(failed), f"{len(errors) - _ERRORS:,} other errors."))
    return _bars(lines, FAILED) if lines else ""


def _bars(lines: Iterable[tuple[int, int, str]], word: str) -> str:
    """Counts out of a total and what they count, each with a bar."""
    rows = "".join(
        f"<tr><th>{count:,}<br><small>{_share(count, total)}</small></th><td>{text}"
        f'<div class="bar"><span style="width: {100 * count / total:.2f}%"></span></div></td></tr>'
        for count, total, text in lines
    )
    return f'<table class="counts" style="--mode: {COLOURS[word]}">{rows}</table>'


def _notes(sentences: Iterable[str]) -> str:
    return "".join(f'<p class="note">{each}</p>' for each in sentences)


def _gallery(found: Findings, name: str, text: str) -> str:
    """The images in which a number is largest, the largest first; nothing if nothing is known."""
    store, values = found.store, found.numbers[name]
    order = np.argsort(-values, kind="stable")[:_SHOWN]  # What is not a number comes last.
    images = [int(image) for image in order if not np.isnan(values[image])]
    notes, overviews = [], dict[int, Overview]()
    if len(store.layout.shape) == 2:
        names = [name for name in ("y", *_PICTURES, "truth") if name in store.layout.variables]
        overviews = {image: _overview(store.row(image, names)) for image in images}
    else:
        notes.append("Only grey images are pictured; these have other axes.")
    brightest = max((float(np.nanmax(o.std, initial=0)) for o in overviews.values()), default=0.0)
    if brightest:
        notes.append(f"Standard deviations are shown from 0 (black) to {brightest:.2g} (yellow).")
    if not store.layout.draws:
        notes.append("Made with --draws 0, the survey keeps too little for reports on its images.")
    cards = ""
    for image in images:
        panels = overview_panels(overviews[image], brightest) if image in overviews else []
        pictures = row((picture(panel.pixels, panel.name) for panel in panels), "small")
        word, number = found.word(image), true_minus(_show(float(values[image])))
        command = _command(store, str(image)) if store.layout.draws else ""
        cards += (
            f'<article style="--mode: {COLOURS[word]}"><h3>{image}'
            f" <small>{html.escape(found.text('name', image))}</small></h3>"
            f"<p>{word}, {name} {number}</p>{pictures}{command}</article>"
        )
    return f'<p>{text}</p>{_notes(notes)}<div class="cards">{cards}</div>' if cards else ""


def _overview(kept: Mapping[str, np.ndarray]) -> Overview:
    """The pictures of an image, every so many pixels of large ones."""

    def thin(image: np.ndarray) -> np.ndarray:
        step = -(-max(image.shape) // _SIDE)
        return image[::step, ::step].copy()

    data, truth = kept["y"], kept.get("truth")
    return Overview(
        thin(data) if data.ndim == 2 else None,
        *(thin(kept[name]) for name in _PICTURES),
        truth=None if truth is None else thin(truth),
    )


def _command(store: Store, image: str) -> str:
    path = html.escape(shlex.quote(printable(str(store.path))))
    return f"<code>latentuq report {path} <span>--image {image}</span></code>"


def _images(found: Findings) -> str:
    """The table, whose rows a script makes of a block of JSON."""
    surprise = found.numbers["surprise"]
    least = np.where(np.isnan(surprise), np.inf, -surprise)
    order = np.lexsort((least, _URGENCY[found.status]))[:MOST_ROWS]
    data = {"kinds": [*_COLUMNS.values()], "rows": [_cells(found, each) for each in order.tolist()]}
    block = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", r"\u003c")
    head = "".join(
        f'<th scope="col" class="{kind}" aria-sort="none">'
        f'<button type="button">{title}</button></th>'
        for title, kind in _COLUMNS.items()
    )
    options = "".join(f"<option>{word}</option>" for word in COLOURS)
    said = "First come those that need a look most: failed, unreliable, the most surprising."
    if len(order) < found.store.images:
        said += f" Of {count_images(found.store.images)} only the first {len(order):,} are here."
    if found.store.layout.draws:
        said += f" The report on any of them: {_command(found.store, 'NUMBER')}"
    return f"""<p>{said}</p>
<form class="filters" id="filters">
<label>Status <select name="status"><option value="">all</option>{options}</select></label>
<label>Text <input name="text" type="search" placeholder="number, name, why"></label>
<output aria-live="polite"></output></form>
<div class="scroll" tabindex="0" role="region" aria-label="All images">
<table id="images"><thead><tr>{head}</tr></thead><tbody></tbody></table></div>
<p><button type="button" id="more" hidden>Show more</button></p>
<noscript><p>The table needs JavaScript.</p></noscript>
<script type="application/json" id="data">{block}</script>
<script>
{_resource("page.js")}</script>"""


def _resource(name: str) -> str:
    return (resources.files("latentuq.survey") / name).read_text(encoding="utf-8")


def _cells(found: Findings, image: int) -> list[Any]:
    """The cells of an image, in the order of `_COLUMNS`; None where nothing is known."""
    word, why = found.word(image), ""
    if word == FAILED:
        why = found.text("error", image)
        why = why if len(why) <= _LETTERS else f"{why[:_LETTERS]}…"
    elif word != UNSOLVED:
        why = found.text("reasons", image).lower().replace("_", " ")
    numbers = (float(found.numbers[name][image]) for name in ("heaviest", "modes_found", *NUMBERS))
    known = (float(f"{number:.5g}") if math.isfinite(number) else None for number in numbers)
    return [image, found.text("name", image), word, why, *known]


def _making(found: Findings) -> str:
    store, times = found.store, found.times[np.isfinite(found.times)]
    made = {**store.provenance, "store": str(store.path)}
    if times.size:
        made["last finished"] = f"{datetime.fromtimestamp(times.max(), UTC):%Y-%m-%d %H:%M} UTC"
    rest = "<p>What the results depend on, images and files by their checksums:</p>"
    return table(_as_text(made)) + rest + table(_as_text(store.identity))


def _as_text(values: Mapping[str, Any]) -> dict[str, str]:
    shown = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in values.items()
        if value not in (None, "")
    }
    return {printable(name): printable(value) for name, value in shown.items()}


def _share(count: int, total: int) -> str:
    """A share in per cent; 0 and 100 mean none and all."""
    share = 100 * count / total
    if 0 < share < 0.1:
        return "< 0.1 %"
    return "> 99.9 %" if 99.9 < share < 100 else f"{share:.1f} %"


def _show(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
