"""Which state of the repository measured something."""

import functools
import subprocess
from collections.abc import Iterable
from typing import Any

from studies.pages import ROOT


@functools.cache
def commit() -> str:
    """The commit of this checkout, with "-dirty" where its code differs from it.

    It is "unknown" where there is no git. It is read once, at the start, because others may commit
    while this runs.
    """
    try:
        changed = _git("status", "--porcelain", "--", "src", "studies")
        return _git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):  # There is no git, or no repository.
        return "unknown"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commits(cells: Iterable[dict[str, Any]]) -> str:
    """The commits that measured some cells, in words."""
    found = sorted({cell.get("commit", "unknown") for cell in cells})
    return f"commit{'s' if len(found) > 1 else ''} {', '.join(found)}"
