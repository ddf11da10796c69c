"""A report as one HTML file: opens offline, prints, and reads well on a phone."""

import base64
import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from latentuq.inference.causes import Standing
from latentuq.inference.verdict import ANSWERS, QUESTIONS, show_p_value
from latentuq.posterior.posterior import Posterior
from latentuq.posterior.summary import DOWNWEIGHTED
from latentuq.report.content import Content
from latentuq.report.figures import (
    data_range,
    draw_data,
    draw_slices,
    heat_range,
    overview_panels,
    render_svg,
    true_minus,
)
from latentuq.report.glossary import GLOSSARY
from latentuq.report.palette import grey_pixels, heat_pixels, mode_colour

_SYMBOLS = {Standing.OK: "✓", Standing.BAD: "✗", Standing.UNKNOWN: "?"}
# Draws from which the spread within a mode is hardly understated.
_ENOUGH = 12


def make_page(
    title: str,
    post: Posterior,
    content: Content,
    drawn: Mapping[str, str],
    provenance: Mapping[str, str],
    notes: Sequence[str] = (),
) -> str:
    """The page of one posterior.

    Args:
        title: The heading, which says what was reconstructed.
        post: The posterior that the page is about.
        content: The images and numbers that are shown.
        drawn: The report's figures as SVG, by name.
        provenance: Command, versions and the like, by name.
        notes: Sentences about the data or the answer.
    """
    sections = [
        section("", _overview(content, notes) + _headline(post)),
        section("What it could be", _cards(content)),
        section("Samples", _samples(post, content)),
        section("How pixels vary together", _components(content)),
        section("Behind it", _plots(content, drawn)),
        section("How far to trust it", _certificate(post)),
        section("How this was made", table(provenance)),
        section("What the words mean", _glossary()),
    ]
    return wrap(title, "".join(sections))


def wrap(title: str, body: str, style: str = "") -> str:
    """A whole document around the body; `style` comes after that of every page."""
    shared = (resources.files("latentuq") / "report" / "report.css").read_text(encoding="utf-8")
    name = html.escape(title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>\n{shared}{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{name}</h1>\n{body}</main>\n</body>\n</html>\n"
    )


def picture(pixels: UInt8[np.ndarray, "height width 3"], caption: str = "", text: str = "") -> str:
    """An image with its caption; the browser enlarges its pixels."""
    note = f"<figcaption>{caption}</figcaption>" if caption else ""
    image = inline_image(encode_png(pixels), text or caption.replace("<br>", ", "))
    return f"<figure>{image}{note}</figure>"


def encode_png(pixels: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """Pixels as the bytes of a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def inline_image(png: bytes, text: str, style: str = "") -> str:
    """The element of an image that is part of the page; `text` is for those who do not see it."""
    source = base64.b64encode(png).decode()
    styled = f' style="{style}"' if style else ""
    return f'<img src="data:image/png;base64,{source}" alt="{html.escape(text)}"{styled}>'


def overview_pictures(content: Content) -> list[str]:
    """The panels of the overview with their captions."""
    return [
        picture(panel.pixels, "<br>".join(filter(None, (panel.name, panel.note))))
        for panel in overview_panels(content, heat_range(content))
    ]


def _overview(content: Content, remarks: Sequence[str]) -> str:
    shown = overview_pictures(content)
    if content.data.ndim != 2:
        shown.insert(0, inline_plot(render_svg(draw_data(content)), "data"))
    missing = content.data.ndim == 2 and np.isnan(content.data).any()
    notes = ["Blue-grey pixels are missing."] if missing else []
    if content.comparison is not None:
        notes.append(f"Beside the truth: {content.comparison}")
    notes += [html.escape(each) for each in remarks]
    return row(shown, "large") + "".join(f'<p class="note">{note}</p>' for note in notes)


def _headline(post: Posterior) -> str:
    verdict = post.verdict
    marks = "".join(
        f'<li class="{mark.standing}"><b>{QUESTIONS[name]}</b>'
        f" <em>{_SYMBOLS[mark.standing]} {ANSWERS[mark.standing].lower()}</em>"
        f"<span>{html.escape(true_minus(mark.sentence))}</span></li>"
        for name, mark in verdict.marks.items()
    )
    return (
        f'<div class="verdict {verdict.word}"><p><strong>{verdict.word}</strong>'
        f"{html.escape(str(verdict).removeprefix(verdict.word))}</p>"
        f'<ul class="marks">{marks}</ul>{show_advice(verdict.advice)}'
        f"<p>{html.escape(post.diagnostics.learned)}</p></div>"
    )


def show_advice(advice: Sequence[str]) -> str:
    """What to do, as a list; nothing if there is nothing to be done."""
    items = "".join(f"<li>{html.escape(each)}</li>" for each in advice)
    return f"<p>What to try:</p><ul>{items}</ul>" if items else ""


def sheet(images: Iterable[np.ndarray], name: str, size: str, *limits: float) -> str:
    """Grey images of one kind in a row, without captions."""
    return row((picture(grey_pixels(each, *limits), text=name) for each in images), size)


def _cards(content: Content) -> str:
    high = heat_range(content)
    cards, rest = [], ""
    for place, card in enumerate(content.cards):
        deepest = ", the most probable point" if card.deepest else ""
        few = ""
        if card.draws < _ENOUGH:
            few = f" Draws in its basin: {card.draws}, so that its spread is understated."
        samples = sheet(card.samples, "sample", "small")
        head = row(
            [
                picture(grey_pixels(card.image), "mode"),
                picture(heat_pixels(card.std, high), "standard deviation"),
            ],
            "medium",
        )
        cards.append(
            f'<article style="--mode: {mode_colour(place)}"><h3>{card.weight:.1%}'
            f" <small>± {card.weight_error:.1%}</small></h3>"
            f'<div class="bar"><span style="width: {100 * card.weight:.1f}%"></span></div>'
            f'{head}{samples}<p class="note">−ln p(u|y) {true_minus(f"{card.depth:.2f}")}, χ² per'
            f" datum {card.chi_squared:.2f}{deepest}.{few}</p></article>"
        )
    if content.rest > 5e-5:
        rest = f'<p class="note">All other modes together: {content.rest:.2%}.</p>'
    return f'<div class="cards">{"".join(cards)}</div>{rest}'


def _samples(post: Posterior, content: Content) -> str:
    samples = sheet(content.samples, "sample", "tiny")
    text = "<p>Clean images that are consistent with the data, the generator's error included.</p>"
    check = html.escape(true_minus(post.verdict.fit.details))
    if content.data.ndim != 2:
        return f"{text}{samples}<p>{check}</p>"
    limits = data_range(content.data)
    return (
        f"{text}{samples}<p>The data, and under them the same samples, each in its place, as the"
        f" instrument would have seen them, with fresh noise. {check}</p>"
        f"{sheet([content.data], 'data', 'tiny', *limits)}"
        f"{sheet(content.replicates, 'replicate', 'tiny', *limits)}"
    )


def _components(content: Content) -> str:
    parts = []
    for place, component in enumerate(content.components, 1):
        pair = row(
            [
                picture(grey_pixels(component.low), "−2 sd"),
                picture(grey_pixels(component.high), "+2 sd"),
            ],
            "small",
        )
        title = f"component {place}, {component.share:.0%} of the variance"
        parts.append(f"<div><p>{title}</p>{pair}</div>")
    text = "<p>What changes if the leading components of the posterior change: mean ∓ 2 sd.</p>"
    return f'{text}<div class="pairs">{"".join(parts)}</div>'


def _plots(content: Content, drawn: Mapping[str, str]) -> str:
    plots = [
        inline_plot(
            drawn["latent"], "Posterior draws of u in the colour of the mode that each belongs to."
        ),
        inline_plot(
            drawn["search"], "Where every start of the search ended (grey: modes not shown)."
        ),
    ]
    plots += [
        inline_plot(
            render_svg(draw_slices([one])),
            f"A slice of −ln p through the centre of the heaviest mode's Gaussian, {one.name}.",
        )
        for one in content.slices
    ]
    return f'<div class="plots">{"".join(plots)}</div>'


def inline_plot(drawn: str, caption: str) -> str:
    """A figure with its caption, without the names that several on a page would share."""
    inline = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", drawn[drawn.index("<svg") :])
    image = f'<div role="img" aria-label="{caption}">{inline}</div>'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _certificate(post: Posterior) -> str:
    marks = {
        f"{name}: {mark.standing}": true_minus(mark.details)
        for name, mark in post.verdict.marks.items()
    }
    return (
        f"<p>{html.escape(post.diagnostics.course)}</p>"
        f"<details><summary>The numbers</summary>{table(marks | show_numbers(post))}</details>"
    )


def show_numbers(post: Posterior) -> dict[str, str]:
    """The numbers of the certificate as people read them, by name."""
    d = post.diagnostics
    numbers = {
        "ln evidence": true_minus(f"{post.log_evidence:.3f} ± {post.log_evidence_error:.3f}"),
        "effective draws": true_minus(f"{d.ess:.0f} of {d.draws}, {d.quality}"),
        "missed mass": f"{d.missed_mass:.2g}",
        "chance of a new basin": f"{d.new_basin_chance:.2g}",
        "rounds of chains": str(d.rounds),
        "forward equivalents": f"{d.forward_equivalents:,}",
    }
    if post.problem is not None and post.problem.downweighted:
        numbers["ln evidence"] += f" ({DOWNWEIGHTED})"
    if d.predictive_p_value is not None:
        numbers["posterior predictive check"] = f"p-value {show_p_value(d.predictive_p_value)}"
    if d.reduced_chi_squared is not None:
        numbers["χ² per datum, deepest mode"] = f"{d.reduced_chi_squared:.2f}"
    return numbers


def table(rows: Mapping[str, str]) -> str:
    """Names and what belongs to them."""
    cells = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table>{cells}</table>"


def _glossary() -> str:
    terms = "".join(f"<dt>{term}</dt><dd>{text}</dd>" for term, text in GLOSSARY.items())
    return f"<details><summary>{len(GLOSSARY)} words</summary><dl>{terms}</dl></details>"


def section(title: str, body: str) -> str:
    """A part of a page, with its heading if it has one."""
    head = f"<h2>{html.escape(title)}</h2>" if title else ""
    return f"<section>{head}{body}</section>\n"


def row(pictures: Iterable[str], size: str) -> str:
    """Pictures side by side, of the size that `report.css` gives them."""
    return f'<div class="row {size}">{"".join(pictures)}</div>'
