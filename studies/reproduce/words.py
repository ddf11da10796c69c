"""How measured answers are put in words."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from studies.reproduce.plan import MODELS

POSSIBLE = 0.02
"""The probability from which a digit counts as possible."""


def listed(parts: Iterable[str]) -> str:
    """A list in words: one, two and three."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def under(holds: Iterable[bool]) -> list[str]:
    """The names of the priors under which something holds."""
    return [f"`{model}`" for model, value in zip(MODELS, holds, strict=True) if value]


def minus(a: float | None, b: float | None) -> float:
    """The difference of two numbers; NaN if one of them is missing."""
    return float("nan") if a is None or b is None else a - b


def likely_digits(classes: Sequence[float]) -> list[int]:
    """The possible digits, the most probable first."""
    order = sorted(range(len(classes)), key=lambda digit: -classes[digit])
    return [digit for digit in order if classes[digit] >= POSSIBLE]


def name_digits(classes: Sequence[float]) -> str:
    """The possible digits with their probabilities, in words."""
    named = {digit: f"{'an' if digit == 8 else 'a'} {digit}" for digit in likely_digits(classes)}
    return listed(f"{name} ({classes[digit]:.2f})" for digit, name in named.items())


def name_starts(cell: Mapping[str, Any]) -> str:
    """How many starts a posterior needed to reach all of its relevant modes."""
    needed = cell["starts_needed"]
    return f"more than {cell['independent_starts']}" if needed is None else str(needed)
