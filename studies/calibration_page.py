"""docs/results/calibration.md and its figures, from the rows of all studies in a folder."""

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from latentuq import UserError
from latentuq.calibration.measure import BINS, Rows, coverage, histogram
from latentuq.core.cells import read_file
from latentuq.prior.model_error import LOW_RANK, SIGNAL_DEPENDENT
from latentuq.problem.experiments import EXPERIMENTS
from studies.calibration import METHODS, OURS
from studies.calibration_cases import KINDS, Study
from studies.calibration_summary import (
    Reliability,
    check_uniformity,
    check_weights,
    class_noise,
    class_reliability,
    mode_reliability,
    rank_distance,
    top_class_reliability,
)
from studies.commits import commits
from studies.pages import COLOURS, is_unreliable, rows, save_figure, write_page

_MODEL_ERRORS = ("scalar", "per-pixel", LOW_RANK, SIGNAL_DEPENDENT)
# Weights of modes this far from 0 and 1 are shown by themselves.
_DOUBTFUL = 0.1

Studies = dict[Study, Rows]


def write_calibration(folder: Path, page: Path, command: str) -> Path:
    """Writes the page, and its figures beside it."""
    studies, models = read_studies(folder)
    if not studies:
        raise UserError(f"There are no rows of a study in {folder}.")
    if simulated := _by_corruption(studies, "simulated", LOW_RANK):
        _save_ranks(simulated, page.with_name(f"{page.stem}-simulated.png"))
    real = {error: _by_corruption(studies, "real", error) for error in _MODEL_ERRORS}
    real = {error: found for error, found in real.items() if found}
    if real:
        _save_pit(real, page.with_name(f"{page.stem}-real.png"))
    values = {
        "command": command,
        "page": page.stem,
        "folder": folder.name,
        "models": ", ".join(f"`{model}`" for model in models),
        **_simulated(simulated),
        **_real(real),
        **_methods(studies),
    }
    return write_page("calibration", page, values)


def read_studies(folder: Path) -> tuple[Studies, list[str]]:
    """The rows of all studies by their names, and the models."""
    studies: Studies = {}
    models = set()
    for path in sorted(folder.glob("*.json")):
        setup, cells = read_file(path)
        found = [*cells.values()]
        try:
            models.add(f"{setup['model']} (sha256 {setup['model_checksum'][:12]})")
            studies[Study(**setup["study"])] = found
        except (KeyError, TypeError):
            raise UserError(f"{path} is not a file of a calibration study.") from None
    return studies, sorted(models)


def _commits(studies: Iterable[Rows]) -> str:
    return commits(row for rows in studies for row in rows)


def _described(found: Rows, group: str) -> dict[str, Any]:
    """What all tables say of a study: coverage in percent of a group of pixels, and scores."""
    covered = {
        f"covered{100 * level:.0f}": f"{100 * rate.value:.1f} ± {100 * rate.error:.1f}"
        for level, rate in coverage(found, group).items()
    }
    return covered | {
        "number": len(found),
        "crps": np.mean([row["crps"] for row in found]),
        "energy": np.mean([row["energy"] for row in found]),
        "uniform": check_uniformity(found),
        "unreliable": sum(map(is_unreliable, found)),
    }


def _simulated(studies: dict[str, Rows]) -> dict[str, str]:
    lines = []
    for corruption, found in studies.items():
        doubtful = mode_reliability(found, _DOUBTFUL)
        number = doubtful.counts.sum()
        line = {
            "corruption": corruption,
            "ranks": check_uniformity(found).ranks.min(),
            "modes": mode_reliability(found).error,
            "doubtful": f"{doubtful.error:.3f} ({number})" if number else "",
            "weights": check_weights(found),
        }
        lines.append(_described(found, "hidden") | line)
    form = "`{corruption}` | {number} | {ranks:.3f} | {uniform.tarp:.3f} | {covered50}"
    form += " | {covered80} | {covered90} | {covered95} | {modes:.3f} | {doubtful} | {weights:.3f}"
    table = rows(form + " | {unreliable}", lines)
    return {"simulated": table, "simulated_commits": _commits(studies.values())}


def _real(studies: dict[str, dict[str, Rows]]) -> dict[str, str]:
    lines = []
    for corruption in EXPERIMENTS:
        for error in studies:
            if found := studies[error].get(corruption):
                line = {
                    "corruption": corruption,
                    "error": error,
                    "inked": _described(found, "uncertain_inked")["covered90"],
                    "black": _described(found, "black")["covered90"],
                    "ranks": rank_distance(found),
                    "classes": class_reliability(found).error,
                    "top": top_class_reliability(found).error,
                    "noise": class_noise(found),
                    "chi": np.median([row["chi_squared"] for row in found]),
                }
                lines.append(_described(found, "uncertain") | line)
    form = "`{corruption}` | {error} | {number} | {covered50} | {covered90} | {inked} | {black}"
    form += " | {ranks:.2f} | {crps:.4f} | {energy:.3f} | {classes:.3f} ({noise[0]:.3f})"
    form += " | {top:.3f} ({noise[1]:.3f}) | {chi:.2f} | {uniform.tarp:.3f} | {unreliable}"
    every = _commits(found for each in studies.values() for found in each.values())
    return {"real": rows(form, lines), "real_commits": every}


def _methods(studies: Studies) -> dict[str, str]:
    """All methods on the problems that every one of them has solved."""
    lines, shown = [], []
    for kind, corruption in product(KINDS, EXPERIMENTS):
        names = {method: Study(kind, corruption, LOW_RANK, method) for method in METHODS}
        found = {method: studies[name] for method, name in names.items() if name in studies}
        fewest = min((len(each) for method, each in found.items() if method != OURS), default=0)
        for method, each in found.items():
            if fewest:
                shown.append(each[:fewest])
                line = {"kind": kind, "corruption": corruption, "method": method}
                lines.append(_described(each[:fewest], "uncertain") | line)
    form = "{kind} `{corruption}` | {method} | {number} | {covered50} | {covered90} | {crps:.4f}"
    table = rows(form + " | {energy:.3f} | {uniform.least:.1e}", lines)
    return {"methods": table, "method_commits": _commits(shown)}


def _by_corruption(studies: Studies, kind: str, error: str) -> dict[str, Rows]:
    found = {name: studies.get(Study(kind, name, error), []) for name in EXPERIMENTS}
    return {name: each for name, each in found.items() if each}


def _save_ranks(found: dict[str, Rows], path: Path) -> None:
    """Empirical distribution of the ranks minus the uniform one, and the calibration of weights."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4), layout="constrained")
    latent, image, modes = figure.subplots(1, 3)
    levels = np.linspace(0, 1, 101)
    for colour, name in zip(COLOURS, EXPERIMENTS, strict=True):
        rows = found.get(name)
        if not rows:
            continue
        ranks = np.array([row["ranks"] for row in rows])
        for place, column in enumerate(ranks.T):
            label = name if place == 0 else None
            latent.plot(levels, _excess(column, levels), color=colour, lw=0.8, label=label)
        image.plot(levels, _excess(np.array([row["tarp"] for row in rows]), levels), color=colour)
        _plot_reliability(modes, mode_reliability(rows), colour, name)
    number = min(len(rows) for rows in found.values())
    band = 1.63 * np.ones_like(levels) / np.sqrt(number)
    for axis, title in ((latent, "latent dimensions (SBC)"), (image, "images (TARP)")):
        axis.fill_between(levels, -band, band, color="0.9", lw=0, zorder=0)
        axis.set(title=title, xlabel="rank", ylabel="fraction below - rank", xlim=(0, 1))
        axis.set_ylim(-0.25, 0.25)
    modes.set(title="weights of modes")
    figure.legend(*latent.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    save_figure(figure, path)


def _excess(ranks: Any, levels: Any) -> Any:
    return np.searchsorted(np.sort(ranks), levels, side="right") / len(ranks) - levels


def _plot_reliability(axis: Any, found: Reliability, colour: str, label: str) -> None:
    sizes = 8 + 60 * found.counts / max(found.counts.max(), 1)
    axis.plot([0, 1], [0, 1], color="0.7", lw=0.8, zorder=0)
    axis.scatter(
        found.stated, found.observed, s=sizes, color=colour, label=label, alpha=0.8, clip_on=False
    )
    axis.set(xlabel="stated probability", ylabel="how often it was so", xlim=(0, 1), ylim=(0, 1))


def _save_pit(found: dict[str, dict[str, Rows]], path: Path) -> None:
    """Histograms of pixel ranks, one panel per model error, and the class probabilities."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.6 * len(found) + 2.8, 3.4), layout="constrained")
    *panels, classes = figure.subplots(1, len(found) + 1)
    edges = np.linspace(0, 1, BINS + 1)
    for axis, (error, by_corruption) in zip(panels, found.items(), strict=True):
        for colour, name in zip(COLOURS, EXPERIMENTS, strict=True):
            if name in by_corruption:
                axis.stairs(histogram(by_corruption[name]), edges, color=colour, label=name)
        axis.axhline(1, color="0.7", lw=0.8, zorder=0)
        axis.set(title=error, xlabel="rank of the true pixel", xlim=(0, 1), ylim=(0, 4))
    panels[0].set_ylabel("density")
    error, by_corruption = list(found.items())[-1]
    for colour, name in zip(COLOURS, EXPERIMENTS, strict=True):
        if name in by_corruption:
            _plot_reliability(classes, class_reliability(by_corruption[name]), colour, name)
    classes.set(title=f"digits, {error}")
    figure.legend(*classes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    save_figure(figure, path)
