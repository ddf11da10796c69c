"""What docs/results/dimensions.md says of the measured cells, and whether the bars are met."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from latentuq.core.cells import Cells
from studies.dimensions_summary import (
    Bar,
    Row,
    discovery_bars,
    discovery_values,
    errors_bars,
    errors_values,
    median,
    pull,
    root_mean_square,
    share,
)
from studies.dimensions_trained import LARGEST_ERROR, Problem
from studies.pages import rows

EVIDENCE_LIMIT, ACCURACY_LIMIT, MEDIAN_ACCURACY = 0.3, 0.57, 0.54
SINGLE_PULL = 3.0
"""Stated errors up to which a number that is by itself counts as right."""
MEGABYTES = 4000


def make_values(cells: Cells) -> dict[str, Any]:
    """All that the template needs; a part that was not measured has neither rows nor bars."""
    parts = {
        part: [_prepared(cell) for name, cell in cells.items() if name.startswith(f"{part} ")]
        for part in ("growth", "discovery", "errors")
    }
    references = {name: cell for name, cell in cells.items() if name.endswith(" reference")}
    solves = [*_beside_references(cells, references)]
    work = _work([*parts["growth"], *solves])
    bars = [
        *_trained_bars(solves, references),
        *_growth_bars(parts["growth"], work),
        *discovery_bars(parts["discovery"]),
        *errors_bars(parts["errors"]),
    ]
    judged = [bar._asdict() | {"answer": "yes" if bar.met else "**no**"} for bar in bars]
    return {
        "bars": rows("{bar} | {measured} | {answer}", judged),
        **_trained_values(solves, references),
        **_growth_values(parts["growth"], work),
        **discovery_values(parts["discovery"]),
        **errors_values(parts["errors"]),
    }


def _prepared(cell: Row) -> Row:
    """A cell with what all parts need: whether it is said to be right, and its gap to the truth."""
    exact, found = cell.get("exact"), cell["log_evidence"]
    return cell | {
        "ok": cell["computed"] == "ok",
        "gap": np.nan if exact is None or found is None else found - exact,
        "thousands": cell["forward_equivalents"] / 1000,
    }


def _beside_references(cells: Cells, references: Cells) -> Iterator[Row]:
    """The solves under trained priors that have a reference, with it."""
    for name, cell in cells.items():
        if name.startswith("trained ") and name not in references:
            problem = Problem(cell["dim"], cell["corruption"], cell["image"])
            if problem.reference in references:
                reference = references[problem.reference]
                truth = {"exact": reference["log_evidence"], "reference": reference}
                yield _prepared(cell | truth | {"kind": "trained", "name": name})


def _within(row: Row) -> bool:
    return abs(row["gap"]) <= EVIDENCE_LIMIT


def _is_outside(row: Row) -> bool:
    """Whether a solve misses its reference, in the evidence or in the draws."""
    return not _within(row) or row["accuracy"] > ACCURACY_LIMIT


def _trained_bars(solves: list[Row], references: Cells) -> Iterator[Bar]:
    if not solves:
        return
    near = [row for row in solves if _within(row)]
    bad = [row for row in solves if not row["ok"]]
    silent = [row for row in solves if row["ok"] and _is_outside(row)]
    accuracies = [row["accuracy"] for row in solves]
    worst = max(cell["error"] for cell in references.values())
    yield Bar(
        f"trained: error of every reference at most {LARGEST_ERROR}",
        f"{worst:.3f}",
        worst <= LARGEST_ERROR,
    )
    yield Bar(
        f"trained: ln evidence within {EVIDENCE_LIMIT} in 95 %",
        share(near, solves),
        len(near) >= 0.95 * len(solves),
    )
    yield Bar(
        f"trained: two-sample accuracy at most {ACCURACY_LIMIT}",
        f"{max(accuracies):.3f}",
        max(accuracies) <= ACCURACY_LIMIT,
    )
    yield Bar(
        f"trained: its median at most {MEDIAN_ACCURACY}",
        f"{np.median(accuracies):.3f}",
        bool(np.median(accuracies) <= MEDIAN_ACCURACY),
    )
    yield Bar(
        'trained: at most 5 % "unreliable"', share(bad, solves), len(bad) <= 0.05 * len(solves)
    )
    yield Bar("trained: no silent miss", share(silent, solves), not silent)
    for dim in (32, 64):
        if found := [row for row in solves if row["dim"] == dim]:
            faster = time_of_smc(found)
            yield Bar(
                f"trained: at {dim} dimensions SMC of equal error takes at least 5 times as long",
                f"{faster:.1f} times",
                faster >= 5,
            )


def time_of_smc(solves: list[Row]) -> float:
    """How many times as long as ours SMC from the prior takes until its error is ours.

    Its runs are repeated until the mean square error of their ln evidence is ours, and share one
    adaptive pass, which takes as long as a run.
    """
    theirs = np.mean([np.var(_runs(row, "log_evidence"), ddof=1) for row in solves])
    # The references' own errors are counted as ours: they are known too badly to be taken off.
    ours = np.mean([row["gap"] ** 2 for row in solves])
    repeats = max(1.0, float(theirs / ours))
    times = [np.median(_runs(row, "seconds")) / row["seconds"] for row in solves]
    return (1 + repeats) * float(np.median(times))


def _runs(row: Row, name: str) -> list[float]:
    return [run[name] for run in row["reference"]["runs"]]


def _trained_values(solves: list[Row], references: Cells) -> dict[str, Any]:
    lines = []
    for dim in sorted({row["dim"] for row in solves}):
        found = [row for row in solves if row["dim"] == dim]
        accuracies = [row["accuracy"] for row in found]
        lines.append(
            {
                "dim": dim,
                "solves": len(found),
                "within": np.mean([_within(row) for row in found]),
                "square": root_mean_square(row["gap"] for row in found),
                "accuracy": np.median(accuracies),
                "largest": max(accuracies),
                "bad": sum(not row["ok"] for row in found),
                "silent": sum(row["ok"] and _is_outside(row) for row in found),
                "thousands": median(found, "thousands"),
                "seconds": median(found, "seconds"),
                "smc": time_of_smc(found),
            }
        )
    form = "{dim} | {solves} | {within:.0%} | {square:.2f} | {accuracy:.3f} | {largest:.3f}"
    form += " | {bad} | {silent} | {thousands:.0f} | {seconds:.1f} | {smc:.1f}"
    named = "- {name}: ln evidence {gap:+.2f}, two-sample {accuracy:.3f}, `computed` {computed}"
    told = [
        named.format(**row) + f" ({', '.join(row['causes'])})"
        for row in solves
        if _is_outside(row) or not row["ok"]
    ]
    runs = [len(cell["runs"]) for cell in references.values()]
    return {
        "trained": rows(form, lines),
        "exceptions": "\n".join(told) or "None.",
        "references": len(references),
        "runs": f"{min(runs)} to {max(runs)}" if runs else "no",
    }


def _work(found: list[Row]) -> list[Row]:
    """How much more work problems of 64 and of 256 dimensions are than those of 10."""
    lines = []
    for kind in dict.fromkeys(row["kind"] for row in found):
        alike = [row for row in found if row["kind"] == kind]
        costs = {
            dim: median([row for row in alike if row["dim"] == dim], "thousands")
            for dim in {row["dim"] for row in alike}
        }
        ratios = {dim: costs.get(dim, np.nan) / costs.get(10, np.nan) for dim in (64, 256)}
        if np.any(np.isfinite([*ratios.values()])):
            lines.append({"kind": kind, "at_64": ratios[64], "at_256": ratios[256]})
    return lines


def _growth_bars(found: list[Row], work: list[Row]) -> Iterator[Bar]:
    for line in work:
        for dim, most in ((64, 6), (256, 30)):
            ratio = line[f"at_{dim}"]
            if np.isfinite(ratio):
                yield Bar(
                    f"growth, {line['kind']}: work at {dim} at most {most} times that at 10",
                    f"{ratio:.1f} times",
                    ratio <= most,
                )
    if found:
        most = max(row["megabytes"] for row in found)
        yield Bar("growth: memory under 4 GB", f"{most} MB", most < MEGABYTES)
    if pulls := [pull(row["gap"], row["log_evidence_error"]) for row in _exact(found)]:
        yield Bar(
            f"growth: exact ln evidence within {SINGLE_PULL:.0f} stated errors",
            f"{max(pulls):.1f} at most",
            max(pulls) <= SINGLE_PULL,
        )


def _exact(found: list[Row]) -> list[Row]:
    return [row for row in found if row["exact"] is not None]


def _growth_values(found: list[Row], work: list[Row]) -> dict[str, Any]:
    form = "{kind} | {dim} | {thousands:.0f} | {seconds:.1f} | {megabytes}"
    form += " | {gap:+.3f} | {log_evidence_error:.3f} | {computed}"
    return {
        "growth": rows(form, found),
        "work": rows("{kind} | {at_64:.1f} | {at_256:.1f}", work),
    }
