"""A claim of the paper with its answer, and how answers are put in words."""

from collections.abc import Iterable
from dataclasses import dataclass


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


def minus(a: float | None, b: float | None) -> float:
    """The difference of what may be missing."""
    return float("nan") if a is None or b is None else a - b


def listed(parts: Iterable[str]) -> str:
    """A list in words."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
