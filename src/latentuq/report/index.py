"""An index of several reports: one row for each."""

import html
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from latentuq.inference.verdict import Verdict
from latentuq.report.content import Content
from latentuq.report.html import overview_pictures, picture, wrap
from latentuq.report.palette import grey_pixels, mode_colour

# Modes in a row of the index.
_MOST_MODES = 4


class Entry(NamedTuple):
    """A report in the index.

    Its name is its heading and its folder; `summary` is about the problem, `note` on the answer.
    """

    name: str
    summary: str
    note: str
    verdict: Verdict
    content: Content


def make_index(title: str, introduction: str, rows: Sequence[str]) -> str:
    """The page of several reports.

    Args:
        title: The title of the page.
        introduction: What it is about, in a sentence.
        rows: What `make_row` made of each, in the order of the page.
    """
    how = "A name leads to the whole report. Blue-grey pixels are missing."
    return wrap(title, f"<p>{html.escape(introduction)} {how}</p>{''.join(rows)}")


def make_row_of_failure(name: str, reason: str) -> str:
    """The row of an image that there is no report on."""
    return (
        f'<section class="entry"><h2>{html.escape(name)} <small>failed</small></h2>'
        f"<p>{html.escape(reason)}</p></section>\n"
    )


def make_row(entry: Entry) -> str:
    """The row of a report: data, most probable image, mean, deviation, truth and modes."""
    content, name = entry.content, html.escape(entry.name)
    modes = "".join(
        f'<div style="--mode: {mode_colour(place)}">'
        f"{picture(grey_pixels(card.image), f'{card.weight:.1%}')}</div>"
        for place, card in enumerate(content.cards[:_MOST_MODES])
    )
    return (
        f'<section class="entry"><h2><a href="{quote(entry.name)}/report.html">{name}</a>'
        f" <small>{entry.verdict.word}</small></h2>"
        f"<p>{html.escape(entry.summary)}</p>"
        f'<div class="row large">{"".join(overview_pictures(content))}</div>'
        f'<p class="note">Modes and their probabilities. {html.escape(entry.note)}</p>'
        f'<div class="modes">{modes}</div>'
        "</section>\n"
    )
