"""The page on a survey: how many images are what and why, which to look at, a table of them all."""

import html
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from latentuq.batch.layout import FAILED, RELIABLE, STATUSES, UNRELIABLE
from latentuq.batch.store import Store
from latentuq.core.files import write_file
from latentuq.core.text import printable
from latentuq.inference.causes import Cause
from latentuq.report.content import Overview
from latentuq.report.figures import TEXT, make_plot, overview_panels, render_svg, true_minus
from latentuq.report.html import inline_plot, picture, row, section, table, wrap
from latentuq.report.palette import MODES

MOST_ROWS = 20_000
"""Images that the table holds at most."""

_UNSOLVED = "not yet solved"
_COLOURS = {RELIABLE: MODES[0], UNRELIABLE: MODES[1], FAILED: "#3d3d3d", _UNSOLVED: "#d0d0d0"}
# What needs a look most has the smallest; in the order of `_COLOURS`.
_URGENCY = np.array([2, 1, 0, 3])
# Images of a gallery, pixels along the longest side of their pictures, errors that are listed, and
# characters that the table shows of an error.
_SHOWN, _SIDE, _ERRORS, _LETTERS = 8, 256, 10, 160
_NUMBERS = (
    "log_evidence",
    "reduced_chi_squared",
    "predictive_p_value",
    "uncertainty",
    "surprise",
    "seconds",
)
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
# Numbers, their names, what they mean, and the range of those that are probabilities.
_PLOTS: tuple[tuple[str, str, str, tuple[float, float] | None], ...] = (
    (
        "log_evidence",
        "ln evidence",
        "How probable the data are under prior and noise. It compares only images of which the same"
        " pixels were seen, at the same noise.",
        None,
    ),
    (
        "reduced_chi_squared",
        "χ² per datum, deepest mode",
        "About 1 for a fit as good as it should be; below it where more error is assumed than there"
        " is.",
        None,
    ),
    (
        "predictive_p_value",
        "p-value",
        "If the model were exactly right, the bars would about reach the line everywhere. A pile at"
        " 0: data unlike what the model makes. A pile at 1: noise or model error are assumed larger"
        " than they are, the latter often on purpose.",
        (0, 1),
    ),
    ("seconds", "seconds", "How long an image took on its worker.", None),
    (
        "heaviest",
        "weight of the heaviest mode",
        "The probability of the weightiest explanation of each image: 1 if there is but one.",
        (0, 1),
    ),
)
_UNCERTAINTY = (
    "The largest uncertainty: the root of the mean square of all pixels' standard deviations, where"
    " white is 1."
)
_SURPRISE = (
    "Data that are least like those that the prior makes. Surprise counts standard deviations:"
    " about 0 if the prior made the image, less where more error is assumed than there is, and much"
    " more where the image is of another kind."
)


@dataclass(frozen=True, eq=False)
class _Found:
    """What the page needs to know of all images.

    Attributes:
        store: The store.
        status: What each image is, as a place in `_COLOURS`.
        numbers: The numbers of all images by name, NaN where there are none.
        texts: The names, reasons and errors of all images.
        times: When each chunk was finished; NaN if it is not.
    """

    store: Store
    status: Int[np.ndarray, " images"]
    numbers: Mapping[str, Float[np.ndarray, " images"]]
    texts: Mapping[str, np.ndarray]
    times: Float[np.ndarray, " chunks"]

    def are(self, word: str) -> Bool[np.ndarray, " images"]:
        return self.status == [*_COLOURS].index(word)

    def word(self, image: int) -> str:
        return [*_COLOURS][self.status[image]]

    def text(self, kind: str, image: int) -> str:
        return printable(str(self.texts[kind][image]))


def write_page(store: Store) -> Path:
    """Writes a page on all images of a survey, however many are solved, into its folder.

    Args:
        store: The survey.

    Returns:
        The file.
    """
    found = _read(store)
    parts = {
        "": _headline(found),
        "Why images are unreliable": _reasons(found),
        "Why images failed": _errors(found),
        "Distributions": _distributions(found),
        "The least certain": _gallery(found, "uncertainty", _UNCERTAINTY),
        "The most surprising": _gallery(found, "surprise", _SURPRISE),
        "All images": _images(found),
        "How this was made": _making(found),
    }
    body = "".join(section(name, part) for name, part in parts.items() if part)
    source = printable(Path(store.provenance.get("input") or store.path).name)
    title, path = f"{_count(store.images)} of {source}", store.path / "summary.html"
    write_file(path, wrap(title, f'<div class="survey">{body}</div>'))
    return path


def _read(store: Store) -> _Found:
    times = np.full(len(store.chunks), np.nan)
    for marker in store.run.glob("[0-9]*.done"):
        times[int(marker.stem)] = marker.stat().st_mtime
    # What is there of a chunk without a marker may be half of it.
    done = np.repeat(np.isfinite(times), store.chunk)[: store.images]
    word = store.column("status")
    status = np.select([done & (word == each) for each in STATUSES], [0, 1, 2], 3)
    numbers = {name: np.where(done, store.column(name), np.nan) for name in _NUMBERS}
    modes, weights = store.column("modes_found"), store.column("weights")
    numbers["modes_found"] = np.where(done & (modes >= 0), modes, np.nan)
    numbers["heaviest"] = np.where(done, np.fmax.reduce(weights, axis=1), np.nan)
    texts = {name: store.column(name) for name in ("name", "reasons", "error")}
    return _Found(store, status, numbers, texts, times)


def _headline(found: _Found) -> str:
    images = found.store.images
    counts = {word: int(np.count_nonzero(found.are(word))) for word in _COLOURS}
    bars = "".join(
        f'<span style="flex: {count}; background: {_COLOURS[word]}"></span>'
        for word, count in counts.items()
        if count
    )
    legend = "".join(
        f'<li style="--mode: {_COLOURS[word]}"><b>{count:,}</b> {word}'
        f" <small>{_share(count, images)}</small></li>"
        for word, count in counts.items()
        if count or word != _UNSOLVED
    )
    prior = html.escape(printable(str(found.store.identity.get("model"))))
    said = [f"{_count(images)} under the prior <b>{prior}</b>."]
    if counts[_UNSOLVED]:
        said.append("Not all are solved yet: the same command with --resume goes on.")
    known = found.numbers["seconds"][np.isfinite(found.numbers["seconds"])]
    if known.size:
        said.append(f"The median image took {_show(float(np.median(known)))} seconds.")
    if rate := _rate(found):
        said.append(f"All workers together solved {_show(rate)} images per second.")
    return (
        f'<p>{" ".join(said)}</p><div class="parts" aria-hidden="true">{bars}</div>'
        f'<ul class="legend">{legend}</ul><p class="note">Reliable: computed well, and the data do'
        " not contradict the model; it does not mean that the picture is right. Failed: there is an"
        " error in place of an answer.</p>"
    )


def _rate(found: _Found) -> float:
    """Images solved per second, from when their chunks were finished; 0 if there are none.

    Between two chunks lies at most the time that the later one took, unless nobody worked.
    """
    seconds, firsts = found.numbers["seconds"], np.arange(0, found.store.images, found.store.chunk)
    work = np.add.reduceat(np.nan_to_num(seconds), firsts)
    order = np.argsort(found.times)[: np.count_nonzero(np.isfinite(found.times))]
    gaps = np.diff(found.times[order], prepend=-math.inf)
    elapsed = float(np.sum(np.minimum(gaps, work[order])))
    return np.count_nonzero(np.isfinite(seconds)) / elapsed if elapsed > 0 else 0.0


def _reasons(found: _Found) -> str:
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


def _errors(found: _Found) -> str:
    """How many images failed with each error, whatever their names in it."""
    failed = np.flatnonzero(found.are(FAILED)).tolist()
    errors, first = Counter[str](), dict[str, int]()
    for image in failed:
        error, name = found.text("error", image), found.text("name", image)
        if name:
            error = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "…", error)
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
    return f'<table class="counts" style="--mode: {_COLOURS[word]}">{rows}</table>'


def _notes(sentences: Iterable[str]) -> str:
    return "".join(f'<p class="note">{each}</p>' for each in sentences)


def _distributions(found: _Found) -> str:
    plots = "".join(_distribution(found, *each) for each in _PLOTS)
    if not plots:
        return ""
    return f'<p>Reliable images in blue, others in orange.</p><div class="plots">{plots}</div>'


def _distribution(
    found: _Found, name: str, title: str, text: str, limits: tuple[float, float] | None
) -> str:
    """A histogram of what is known; nothing if nothing is."""
    values = found.numbers[name]
    known = values[np.isfinite(values)]
    if not known.size:
        return ""
    tail = 0.005 if known.size > 400 else 0.0
    low, high = limits or map(float, np.quantile(known, (tail, 1 - tail)))
    if high - low <= 1e-6 * max(abs(low), abs(high)):
        low, high = low - 0.1 * (abs(low) or 1), high + 0.1 * (abs(high) or 1)
    edges = np.linspace(low, high, int(np.clip(2 * math.sqrt(known.size), 6, 30)) + 1)
    bottom = np.zeros(len(edges) - 1)
    figure, axis = make_plot()
    for word in (RELIABLE, UNRELIABLE):
        heights, _ = np.histogram(values[found.are(word)], edges)
        axis.bar(edges[:-1], heights, np.diff(edges), bottom, align="edge", color=_COLOURS[word])
        bottom += heights
    if name == "predictive_p_value":
        axis.axhline(known.size / len(bottom), color="black", linewidth=1)
    axis.yaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel(title, fontsize=TEXT)
    axis.set_ylabel("images", fontsize=TEXT)
    outside = int(known.size - bottom.sum())
    beyond = f" Beyond the ends of the picture: {_count(outside)}." if outside else ""
    return inline_plot(render_svg(figure), text + beyond)


def _gallery(found: _Found, name: str, text: str) -> str:
    """The images in which a number is largest, the largest first; nothing if nothing is known."""
    store, values = found.store, found.numbers[name]
    order = np.argsort(-values, kind="stable")[:_SHOWN]  # What is not a number comes last.
    images = [int(image) for image in order if not np.isnan(values[image])]
    notes, overviews = [], dict[int, Overview]()
    if len(store.layout.shape) == 2:
        overviews = {image: _overview(store.row(image)) for image in images}
    else:
        notes.append("There are pictures of grey images only, and these have other axes.")
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
            f'<article style="--mode: {_COLOURS[word]}"><h3>{image}'
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
        *(thin(kept[name]) for name in ("most_probable", "mean", "std")),
        truth=None if truth is None else thin(truth),
    )


def _command(store: Store, image: str) -> str:
    path = html.escape(shlex.quote(printable(str(store.path))))
    return f"<code>latentuq report {path} <span>--image {image}</span></code>"


def _images(found: _Found) -> str:
    """The table, whose rows a script makes of a block of JSON."""
    surprise = found.numbers["surprise"]
    least = np.where(np.isnan(surprise), np.inf, -surprise)
    order = np.lexsort((least, _URGENCY[found.status]))[:MOST_ROWS]
    data = {"kinds": [*_COLUMNS.values()], "rows": [_cells(found, each) for each in order.tolist()]}
    block = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", r"\u003c")
    script = (resources.files("latentuq.batch") / "page.js").read_text(encoding="utf-8")
    head = "".join(
        f'<th scope="col" class="{kind}" aria-sort="none">'
        f'<button type="button">{title}</button></th>'
        for title, kind in _COLUMNS.items()
    )
    options = "".join(f"<option>{word}</option>" for word in _COLOURS)
    said = "First come those that need a look most: failed, unreliable, the most surprising."
    if len(order) < found.store.images:
        said += f" Of {_count(found.store.images)} only the first {len(order):,} are here."
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
{script}</script>"""


def _cells(found: _Found, image: int) -> list[Any]:
    """The cells of an image, in the order of `_COLUMNS`; None where nothing is known."""
    word, why = found.word(image), ""
    if word == FAILED:
        why = found.text("error", image)
        why = why if len(why) <= _LETTERS else f"{why[:_LETTERS]}…"
    elif word != _UNSOLVED:
        why = found.text("reasons", image).lower().replace("_", " ")
    numbers = (float(found.numbers[name][image]) for name in ("heaviest", "modes_found", *_NUMBERS))
    known = (float(f"{number:.5g}") if math.isfinite(number) else None for number in numbers)
    return [image, found.text("name", image), word, why, *known]


def _making(found: _Found) -> str:
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


def _count(images: int) -> str:
    return "1 image" if images == 1 else f"{images:,} images"


def _share(count: int, total: int) -> str:
    """A share in per cent; 0 and 100 mean none and all."""
    share = 100 * count / total
    if 0 < share < 0.1:
        return "< 0.1 %"
    return "> 99.9 %" if 99.9 < share < 100 else f"{share:.1f} %"


def _show(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
