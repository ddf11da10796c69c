"""JSON files of results that grow cell by cell and know what they were measured with."""

import functools
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from latentuq.core.errors import UserError


def read_results(path: Path, setup: dict[str, Any], part: str, kind: str) -> Any | None:
    """What an earlier run has saved; None if there was none.

    Args:
        path: The file.
        setup: What the results depend on; they must not be mixed with those of another.
        part: Name of the results in the file.
        kind: What the file is, for messages.
    """
    if not path.exists():
        return None
    try:
        contents = json.loads(path.read_text())
        found, results = contents["setup"], contents[part]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is not a file of {kind}.") from None
    if found != setup:
        raise UserError(
            f"{path} is of another model, seed or setting; remove it, or choose another folder."
        )
    return results


@functools.cache
def commit() -> str:
    """The commit of this package's checkout, with "-dirty" where its code differs from it.

    "unknown" where it is not a checkout: an installed package may lie in somebody else's. Read
    once, at the start: others may commit while this runs.
    """
    here = Path(__file__).parent
    try:
        top = Path(_git(here, "rev-parse", "--show-toplevel"))
        if top / "src" / "latentuq" != here:
            return "unknown"
        changed = _git(here, "status", "--porcelain", "--", ".")
        return _git(here, "rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):  # No git, or no repository.
        return "unknown"


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commits(cells: Iterable[dict[str, Any]]) -> str:
    """Those that measured some cells, in words."""
    found = sorted({cell.get("commit", "unknown") for cell in cells})
    return f"commit{'s' if len(found) > 1 else ''} {', '.join(found)}"
