"""What all pages of results share: where they are, their templates, their tables and figures."""

import re
import string
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from latentuq.core.files import atomic_path, write_file

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""One for each of the paper's problems, told apart by the colour-blind (Okabe and Ito)."""

_TEXTS = Path(__file__).parent / "text"
_REFINED = '"refined" is what earlier versions called a reliable answer whose fit was refined'


class _Blank(string.Formatter):
    """Formats what is missing or is not a number as nothing."""

    def get_value(self, key: Any, args: Any, kwargs: Any) -> Any:
        return kwargs.get(key)

    def format_field(self, value: Any, format_spec: str) -> str:
        missing = value is None or value != value
        return "" if missing else super().format_field(value, format_spec)


def rows(form: str, found: Iterable[Mapping[str, Any]]) -> str:
    """The rows of a Markdown table, each written in one form; what is missing stays empty."""
    return "\n".join(f"| {_Blank().vformat(form, (), each)} |" for each in found)


def table(titles: Sequence[str], body: str) -> str:
    """A Markdown table whose titles are known only when it is made."""
    return f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}\n{body}"


def fill_page(name: str, values: Mapping[str, Any]) -> str:
    """The template `text/NAME.md` with its values, without the sections whose table is empty."""
    text = (_TEXTS / f"{name}.md").read_text().format_map({"refined": _REFINED, **values})
    sections = re.split(r"\n(?=## )", text)
    kept = [each for each in sections if not re.search(r"^\|( --- \|)+\n(?!\|)", each, re.M)]
    parts = [part.strip() for part in "\n".join(kept).split("\n\n")]
    return "\n\n".join(_wrapped(part) for part in parts if part) + "\n"


def _wrapped(part: str) -> str:
    """Lines of at most 100 characters, but for tables, headings, figures and lists."""
    if part.startswith(("|", "#", "!", "-")):
        return part
    return textwrap.fill(part, 100, break_long_words=False, break_on_hyphens=False)


def write_page(name: str, path: Path, values: Mapping[str, Any]) -> Path:
    """Writes the page of a template, and returns its path."""
    write_file(path, fill_page(name, values))
    return path


def save_figure(figure: Any, path: Path) -> None:
    """Saves a figure of a page."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=130)


def verdict_word(row: dict[str, Any]) -> str:
    """The word that a row's verdict starts with, which says whether to trust the posterior."""
    return re.split(r"\W", row.get("verdict", ""), maxsplit=1)[0]


def is_unreliable(row: dict[str, Any]) -> bool:
    """Whether a row's posterior should not be trusted, by its own verdict."""
    return verdict_word(row) == "unreliable"
