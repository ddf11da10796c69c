"""What docs/results/inference.md says of the measured cells."""

from typing import Any

import numpy as np

from latentuq.core.cells import Cells
from studies.commits import commits
from studies.pages import is_unreliable, rows, verdict_word


def make_values(cells: Cells) -> dict[str, Any]:
    """All that the template needs; the cells of images know their references."""
    exact = _named(cells, "exact")
    form = "{name} | {evidence_gap:+.3f} ± {evidence_error:.3f} | {mass_gap:.4f}"
    form += " | {total_variation:.4f} | {fit_mean_gap:.4f} | {fit_covariance_gap:.4f}"
    return {
        "exact": rows(form + " | {tail} | {word}", exact),
        "exact_commits": commits(exact),
        **_images(_named(cells, "images")),
        **_hidden(_named(cells, "hidden")),
    }


def _named(cells: Cells, kind: str) -> list[dict[str, Any]]:
    """The cells of one kind, each with its name, its k-hat and the word of its verdict."""
    return [
        cell
        | {"name": name.removeprefix(f"{kind} "), "tail": _khat(cell), "word": verdict_word(cell)}
        for name, cell in cells.items()
        if name.startswith(kind)
    ]


def _khat(cell: dict[str, Any]) -> str:
    """JSON knows no infinities: the k-hat of weights without a tail is null there."""
    khat = cell.get("khat")
    return "-inf" if khat is None else f"{khat:.2f}"


def _rounds(cell: dict[str, Any]) -> int:
    """The rounds of chains; earlier versions had none, but refined a proposal."""
    return cell["rounds"] if "rounds" in cell else cell["refinements"]


def within(cell: dict[str, Any]) -> bool:
    """Whether a result is inside all three limits."""
    gap = abs(cell["log_evidence"] - cell["reference"])
    return (
        gap <= 0.2 + cell["reference_error"]
        and cell["weight_gap"] <= 0.05
        and cell["two_sample_accuracy"] <= 0.57
    )


def _images(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The runs of the first seed beside their references, and those of all seeds."""
    problems: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        problems.setdefault(cell["name"].rsplit(" seed", 1)[0], []).append(cell)
    first = [
        cell
        | {"place": problem.split(), "outside": "" if within(cell) else " (outside)"}
        | {"log_evidence": cell["log_evidence"] - cell["reference"], "rounds": _rounds(cell)}
        for problem, (cell, *_) in problems.items()
    ]
    form = "`{place[0]}` {place[1]} | {reference:.2f} ± {reference_error:.2f}"
    form += " | {log_evidence:+.2f} ± {log_evidence_error:.2f}"
    form += " | {weight_gap:.3f} | {two_sample_accuracy:.3f} | {tail} | {ess:.0f} | {rounds}"
    accuracies = [cell["two_sample_accuracy"] for cell in first]
    outside = [cell for cell in first if cell["outside"]]
    reasons = [
        f"- {problem}: {cell['verdict'].split(';')[0]}"
        for problem, (cell, *_) in problems.items()
        if is_unreliable(cell)
    ]
    seeds = [_repeated(problem, runs) for problem, runs in problems.items()]
    return {
        "images": rows(form + " | {missed_mass:.3f} | {word}{outside}", first),
        "image_commits": commits(first),
        "number": len(first),
        "outside": len(outside),
        "silent": sum(not is_unreliable(cell) for cell in outside),
        "median_accuracy": np.median(accuracies),
        "largest_accuracy": max(accuracies),
        "unreliable": len(reasons),
        "reasons": "\n".join(reasons),
        "seeds": rows(
            "{problem} | {seeds} | {evidence:.3f} | {weights:.3f} | {unreliable} | {outside}"
            " | {cost:.0f}",
            seeds,
        ),
    }


def _repeated(problem: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """How the answers to one problem differ from seed to seed."""
    weights = np.array([(cell["weights"] + [0.0, 0.0])[:2] for cell in runs])
    return {
        "problem": problem,
        "seeds": len(runs),
        "evidence": np.std([cell["log_evidence"] for cell in runs], ddof=1),
        "weights": np.std(weights, axis=0, ddof=1).max(),
        "unreliable": sum(map(is_unreliable, runs)),
        "outside": sum(not within(cell) for cell in runs),
        "cost": np.median([cell["forward_equivalents"] for cell in runs]) / 1000,
    }


def _hidden(cells: list[dict[str, Any]]) -> dict[str, Any]:
    tried = [
        cell | {"found": "yes" if cell["found_again"] else "no"}
        for cell in cells
        if cell["hidden"] is not None
    ]
    form = "{name} | {hidden:.3f} | {found} | {evidence_change:+.2f} | {word}"
    return {
        "hidden": rows(form, tried),
        "hidden_commits": commits(tried),
        "caught": sum(bool(cell["found_again"]) or is_unreliable(cell) for cell in tried),
        "tried": len(tried),
    }
