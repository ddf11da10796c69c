"""What all pages of results share: where they are, how they begin, tables and figures."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from latentuq.core.cells import commits
from latentuq.core.files import atomic_path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""One for each of the paper's problems, told apart by the colour-blind (Okabe and Ito)."""


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def numbers(cell: Mapping[str, Any], **formats: str) -> list[str]:
    """Some numbers of a cell as text, empty where it does not have them."""
    values = {name: cell.get(name) for name in formats}
    return [
        "" if value is None or value != value else f"{value:{formats[name]}}"
        for name, value in values.items()
    ]


def section(title: str, before: str, titles: Sequence[str], rows: Sequence[Any], after: str) -> str:
    """A heading, a table and what is said before and after it; nothing if the table is empty."""
    if not rows:
        return ""
    parts = [f"## {title}", before, table(titles, rows), after]
    return "\n\n".join(part for part in parts if part)


def write_page(
    path: Path, title: str, command: str, cells: Iterable[dict[str, Any]], sections: Iterable[str]
) -> Path:
    """Writes a page that says by which command and from which file of cells it was made.

    Args:
        path: The page; the file of cells is beside it and has the same name.
        title: The heading of the page.
        command: What to call to write the page again.
        cells: What was measured, for the commits that measured it.
        sections: The rest of the page; empty ones are left out.
    """
    data = f"{path.stem}.json"
    source = f"Written by `{command}` from [{data}]({data}) ({commits(cells)})."
    write_text(path, [f"# {title}", source, *sections])
    return path


def write_text(path: Path, sections: Iterable[str]) -> None:
    """Writes sections that are not empty, a blank line between them."""
    with atomic_path(path) as temporary:
        temporary.write_text("\n\n".join(each for each in sections if each) + "\n")


def save_figure(figure: Any, path: Path) -> None:
    """Saves a figure of a page."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=130)
