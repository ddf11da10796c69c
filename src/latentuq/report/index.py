"""An index of several reports: one row for each."""

import html
from collections.abc import Sequence
from typing import NamedTuple

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


def make_index(title: str, introduction: str, entries: Sequence[Entry]) -> str:
    """The page: data, most probable image, mean, standard deviation, truth and modes of each.

    Args:
        title: The title of the page.
        introduction: The paragraph below it.
        entries: The reports, in the order of the page.
    """
    rows = "".join(_row(entry) for entry in entries)
    return wrap(title, f"<p>{html.escape(introduction)}</p>{rows}")


def _row(entry: Entry) -> str:
    content, name = entry.content, html.escape(entry.name)
    modes = "".join(
        f'<div style="--mode: {mode_colour(place)}">'
        f"{picture(grey_pixels(card.image), f'{card.weight:.1%}')}</div>"
        for place, card in enumerate(content.cards[:_MOST_MODES])
    )
    return (
        f'<section class="entry"><h2><a href="{name}/report.html">{name}</a>'
        f" <small>{entry.verdict.word}</small></h2>"
        f"<p>{html.escape(entry.summary)}</p>"
        f'<div class="row large">{"".join(overview_pictures(content))}</div>'
        f'<p class="note">Modes and their probabilities. {html.escape(entry.note)}</p>'
        f'<div class="modes">{modes}</div>'
        "</section>\n"
    )
