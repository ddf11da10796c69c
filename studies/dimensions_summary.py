"""What the page of the study of dimensions says of modes that are missed and of stated errors."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from studies.pages import rows

MOST_MISSING, REACHABLE = 0.02, 1 / 500
MASS_PULL = 4.0
"""Stated errors up to which the worst of up to fifty masses counts as right."""
LARGEST_PULL, ROOT_MEAN_SQUARE = 5.0, 1.3

_CHANCES = {
    "1 in 50 or more": (1 / 50, np.inf),
    "1 in 50 to 500": (REACHABLE, 1 / 50),
    "1 in 500 to 5,000": (1 / 5000, REACHABLE),
    "fewer": (-np.inf, 1 / 5000),
}

Row = dict[str, Any]


class Bar(NamedTuple):
    """Something that we set out to reach: what it is, what was measured, and whether it is met."""

    bar: str
    measured: str
    met: bool


def pull(gap: float, error: float | None) -> float:
    """How many stated errors a number is off; infinite if it is off without any, or is none."""
    if error is None or not np.isfinite(gap) or (error == 0 and gap != 0):
        return np.inf
    return abs(gap) / error if error else 0.0


def root_mean_square(values: Iterable[float]) -> float:
    """The root of the mean square; not a number if there are no values."""
    squares = np.square([*values])
    return float(np.sqrt(np.mean(squares))) if len(squares) else np.nan


def share(part: Sequence[Any], whole: Sequence[Any]) -> str:
    """How many of all, as numbers and in percent."""
    return f"{len(part)} of {len(whole)} ({len(part) / len(whole):.1%})"


def median(found: list[Row], name: str) -> float:
    """The median of what rows say under a name."""
    return float(np.median([row[name] for row in found]))


def is_silent(row: Row) -> bool:
    """Whether an answer lacks modes that matter and does not say so."""
    return row["ok"] and row["missing"] > MOST_MISSING


def is_false_alarm(row: Row) -> bool:
    """Whether an answer is said to be bad although its masses are right to their errors."""
    return _masses_hold(row) and not row["ok"]


def _masses_hold(row: Row) -> bool:
    return row["missing"] <= MOST_MISSING and row["mass_pull"] <= MASS_PULL


def discovery_bars(found: list[Row]) -> Iterator[Bar]:
    reachable = [row for row in found if row["rarest"] >= REACHABLE]
    silent = [row for row in reachable if is_silent(row)]
    if reachable:
        yield Bar(
            "discovery: no silent miss where every mode of 2 % attracts at least 1 start in 500",
            share(silent, reachable),
            not silent,
        )
    right = [row for row in found if _masses_hold(row)]
    alarms = [row for row in right if is_false_alarm(row)]
    if right:
        yield Bar(
            "discovery: at most 5 % of right answers are false alarms",
            share(alarms, right),
            len(alarms) <= 0.05 * len(right),
        )


def discovery_values(found: list[Row]) -> dict[str, Any]:
    def group(title: str, chosen: Callable[[Row], bool]) -> Row:
        each = [row for row in found if chosen(row)]
        return {
            "title": title,
            "targets": len(each),
            "missed": sum(row["missing"] > MOST_MISSING for row in each),
            "silent": sum(map(is_silent, each)),
            "right": sum(map(_masses_hold, each)),
            "alarms": sum(map(is_false_alarm, each)),
            "thousands": median(each, "thousands"),
        }

    def grouped(name: str, form: str) -> list[Row]:
        values = sorted({row[name] for row in found})
        return [group(form.format(value), lambda row, v=value: row[name] == v) for value in values]

    chances = [
        group(title, lambda row, low=low, high=high: low <= row["rarest"] < high)
        for title, (low, high) in _CHANCES.items()
        if any(low <= row["rarest"] < high for row in found)
    ]
    form = "{title} | {targets} | {missed} | {silent} | {right} | {alarms} | {thousands:.0f}"
    return {
        "chances": rows(form, chances),
        "kinds": rows(form, grouped("kind", "{}") + grouped("dim", "{} dimensions")),
    }


def _pulls(row: Row) -> tuple[float, float]:
    """The stated errors by which ln Z and the tail are off."""
    tail = row["tail"]
    gap = np.nan if tail is None else tail - row["exact_tail"]
    return pull(row["gap"], row["log_evidence_error"]), pull(gap, row["tail_error"])


def errors_bars(found: list[Row]) -> Iterator[Bar]:
    ok = [row for row in found if row["ok"]]
    for place, what in enumerate(("ln Z", "tail probabilities")):
        if ok:
            pulls = [_pulls(row)[place] for row in ok]
            square = root_mean_square(pulls)
            yield Bar(
                f"errors: root mean square of error / stated error of {what} at most"
                f" {ROOT_MEAN_SQUARE}",
                f"{square:.2f}",
                square <= ROOT_MEAN_SQUARE,
            )
            beyond = [each for each in pulls if each > LARGEST_PULL]
            yield Bar(
                f"errors: none of {what} beyond {LARGEST_PULL:.0f}",
                f"{share(beyond, pulls)}, largest {max(pulls):.1f}",
                not beyond,
            )
    if found:
        bad = [row for row in found if not row["ok"]]
        yield Bar("errors: at most 15 % not ok", share(bad, found), len(bad) <= 0.15 * len(found))


def errors_values(found: list[Row]) -> dict[str, Any]:
    lines = []
    for shape in dict.fromkeys(row["shape"] for row in found):
        runs = [row for row in found if row["shape"] == shape]
        ok = [row for row in runs if row["ok"]]
        pulls = [_pulls(row) for row in ok]
        lines.append(
            {
                "shape": shape,
                "runs": len(runs),
                "bad": len(runs) - len(ok),
                "gap": np.mean([row["gap"] for row in ok]) if ok else None,
                "evidence": root_mean_square(each for each, _ in pulls),
                "truth": runs[0]["exact_tail"],
                "tail": np.mean([row["tail"] for row in ok]) if ok else None,
                "tails": root_mean_square(each for _, each in pulls),
                "largest": max(map(max, pulls), default=None),
                "thousands": median(runs, "thousands"),
            }
        )
    form = "{shape} | {runs} | {bad} | {gap:+.3f} | {evidence:.1f} | {truth:.4f} | {tail:.4f}"
    return {"shapes": rows(form + " | {tails:.1f} | {largest:.1f} | {thousands:.0f}", lines)}
