"""Results that are measured cell by cell and saved as they come, so that a run can go on later."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from latentuq.core.errors import UserError
from latentuq.core.files import make_folder, write_file

Cells = dict[str, dict[str, Any]]
"""What has been measured, by name."""

Job = Callable[[Cells], dict[str, Any]]
"""Measures a cell; it is given all cells that there are so far."""


def run_cells(
    path: Path,
    setup: dict[str, Any],
    jobs: Mapping[str, Job],
    report: Callable[[str, dict[str, Any]], None] = lambda name, cell: None,
    **stamp: str,
) -> Cells:
    """Runs the jobs whose cells are missing and saves the file after each of them.

    A cell gets the seconds that it took, and the stamp, unless the job says them itself.

    Args:
        path: The JSON file of the cells; its folder is made if it is missing.
        setup: Everything that all cells depend on.
        jobs: The cells by name, in an order in which what one needs comes before it.
        report: This is called with the name and the contents of each new cell.
        **stamp: What each new cell says of its making.

    Returns:
        All cells of the file, those of earlier runs first.

    Raises:
        UserError: The file is no file of cells, is of another setup, or cannot be written.
    """
    cells = read_cells(path, setup)
    make_folder(path.parent)
    for name, job in jobs.items():
        if name in cells:
            continue
        start = time.perf_counter()
        # JSON knows neither infinities nor NaN: they become null.
        cell = json.loads(json.dumps(job(cells)), parse_constant=lambda _: None)
        seconds = round(time.perf_counter() - start, 2)
        cells[name] = cell | {"seconds": seconds, **stamp} | cell
        write_cells(path, setup, cells)
        report(name, cells[name])
    return cells


def job(measure: Callable[..., dict[str, Any]], *arguments: Any) -> Job:
    """A job that calls a function with these arguments and needs no other cells."""
    return lambda _: measure(*arguments)


def read_cells(path: Path, setup: dict[str, Any] | None = None) -> Cells:
    """Reads the cells of a file; there are none if it does not exist.

    Args:
        path: The JSON file.
        setup: What the cells must have been measured with; None takes any.
    """
    if not path.exists():
        return {}
    found, cells = read_file(path)
    if setup is not None and found != json.loads(json.dumps(setup)):
        raise UserError(
            f"{path} is of another model, seed or setting; remove it, or choose another folder."
        )
    return cells


def read_file(path: Path) -> tuple[dict[str, Any], Cells]:
    """Reads a file of cells that exists: its setup and its cells."""
    try:
        contents = json.loads(path.read_text())
        setup, cells = contents["setup"], contents["cells"]
        if all(isinstance(each, dict) for each in (setup, cells, *cells.values())):
            return setup, cells
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UserError(f"{path} is not a file of saved results.")


def write_cells(path: Path, setup: dict[str, Any], cells: Cells) -> None:
    """Writes a file of cells, with one line for each cell."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(cell)}" for name, cell in cells.items())
    write_file(path, f'{{"setup": {json.dumps(setup)},\n"cells": {{\n{lines}\n}}}}\n')
