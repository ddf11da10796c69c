"""Claims and numbers of the paper beside our answers, and how answers are put in words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

POSSIBLE = 0.02
"""Probability from which a digit counts as possible."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes:
        question: What it claims, as a question.
        answer: In a few words.
        evidence: The numbers behind the answer, in Markdown.
    """

    question: str
    answer: str
    evidence: str


class Row(NamedTuple):
    """A number of the paper beside ours.

    Attributes:
        what: Its name.
        paper: What the paper says.
        theirs: What we find with the paper's networks.
        ours: What we find with our default prior.
        differs: Whether either is another answer than the paper's.
        why: The reason, for when it is.
    """

    what: str
    paper: str
    theirs: str
    ours: str
    differs: bool = False
    why: str = ""


def minus(a: float | None, b: float | None) -> float:
    """The difference of what may be missing."""
    return float("nan") if a is None or b is None else a - b


def listed(parts: Iterable[str]) -> str:
    """A list in words."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def likely_digits(classes: Sequence[float]) -> list[int]:
    """The possible digits, likeliest first."""
    order = sorted(range(len(classes)), key=lambda digit: -classes[digit])
    return [digit for digit in order if classes[digit] >= POSSIBLE]


def name_digits(classes: Sequence[float]) -> str:
    """The possible digits with their probabilities, in words."""
    return listed(
        f"{'an' if digit == 8 else 'a'} {digit} ({classes[digit]:.2f})"
        for digit in likely_digits(classes)
    )


def name_starts(cell: Mapping[str, Any]) -> str:
    """How many starts a posterior needed to reach all of its relevant modes."""
    needed = cell["starts_needed"]
    return f"more than {cell['independent_starts']}" if needed is None else str(needed)
