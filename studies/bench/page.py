"""docs/results/bench.md and its figure, from the cells of a run."""

from pathlib import Path
from typing import Any

import numpy as np

from latentuq.core.cells import Cells
from latentuq.problem.experiments import EXPERIMENTS
from studies.bench.methods import METHODS
from studies.bench.run import COMPILING
from studies.commits import commits
from studies.pages import COLOURS, rows, save_figure, table, verdict_word, write_page

# The columns, and the stages that they add up; those of the earlier engine were refinements.
_STAGES = {
    "search": ("search",),
    "fit": ("fit",),
    "sampling": ("refine", "explore", "move", "weigh", "probe"),
    "certify": ("certify",),
}
_MARKERS = "o^sDv<>Pp*hX+x12|_34"
# Errors below are drawn there.
_LEAST_DRAWN = 0.005
_PARTS = ("evidence_gap", "weight_gap", "two_sample_accuracy")
# How many times as long as ours a method is expected to take.
_BARS = {"full-rank-paper": 50, "adam": 20, "adam-batched": 3}
_EQUAL_ERROR_BAR = 10
_TITLES = ["method", "seconds", "spread", "time", "compile s", "thousand gradients", "Mfe"]
_TITLES += ["evidence", "weights", "two-sample", "energy", "CRPS"]
_FORM = "{title} | {seconds:.2f} | {spread} | {time:.2f} | {compile_seconds:.1f}"
_FORM += " | {thousand_gradients:.0f} | {million_evaluations:.2f} | {evidence_gap:.3f}"
_FORM += " | {weight_gap:.3f} | {two_sample_accuracy:.3f} | {energy:.3f} | {crps:.4f}"


class Medians(dict[str, Any]):
    """Medians over the runs of one method on one problem, and the runs; NaN if there are none."""

    def __missing__(self, name: str) -> float:
        return np.nan


Found = dict[str, dict[str, Medians]]
"""What was measured, by problem and method."""


def summarise(cells: Cells) -> Found:
    """Medians of all methods on the problems that were run."""
    found: Found = {}
    for corruption in EXPERIMENTS:
        compiling = cells.get(f"{COMPILING} {corruption}", {}).get("seconds", 0.0)
        for name in METHODS:
            # A method that refused the problem has no numbers.
            named = f"{name} {corruption}"
            runs = [cell for each, cell in cells.items() if each.rsplit(" ", 1)[0] == named]
            runs = [run for run in runs if "error" not in run]
            if runs:
                row = found.setdefault(corruption, {})[name] = _medians(runs)
                row["title"] = METHODS[name].title
                # Ours begins before the others, which need its modes.
                row["compile_seconds"] += compiling if name == "latentuq" else 0.0
        medians = found.get(corruption, {})
        ours = medians.get("latentuq", Medians())["seconds"]
        for row in medians.values():
            row["time"] = row["seconds"] / ours
    return found


def _medians(runs: list[dict[str, Any]]) -> Medians:
    row = Medians(runs=runs)
    for name in {name: None for run in runs for name in run}:
        values = [run[name] for run in runs if isinstance(run.get(name), int | float)]
        if values:
            # The gap of the evidence has a sign, which does not matter.
            row[name] = float(np.median(np.abs(values) if name == "evidence_gap" else values))
    seconds = [run["seconds"] for run in runs]
    row["spread"] = f"{min(seconds):.2f}-{max(seconds):.2f}" if len(runs) > 1 else ""
    row["compile_seconds"] = max(run["compile_seconds"] for run in runs)
    row["thousand_gradients"] = row["gradients"] / 1e3
    row["million_evaluations"] = row["forward_equivalents"] / 1e6
    return row


def write_bench(cells: Cells, setup: dict[str, Any], folder: Path, command: str) -> Path:
    """Writes the page and the figure beside the cells."""
    found = summarise(cells)
    draw_times(found, folder / "bench.png")
    problems = [
        f"## {name}, image {EXPERIMENTS[name].image}\n\n{EXPERIMENTS[name].summary}\n\n"
        + table(_TITLES, rows(_FORM, medians.values()))
        for name, medians in found.items()
    ]
    machine = cells.get("machine")
    values = {
        "command": command,
        "commits": commits(cells.values()),
        "setup": setup,
        "repeats": _repeats(found),
        "short": _short(found),
        "bars": table(["method", "bar", *(f"`{name}`" for name in found)], _bars(found)),
        "equal_error": _equal_error(equal_error_runs(found)),
        "problems": "\n\n".join(problems),
        "stages": _stages(found, machine),
        "machine": _describe_machine(machine),
        "grown": _grown(cells),
        "mass_errors": _mass_errors(found),
    }
    return write_page("bench", folder / "bench.md", values)


def _mass_errors(found: Found) -> str:
    """How well the true masses are known."""
    told = []
    for corruption, medians in found.items():
        # The same for all methods.
        row = next(iter(medians.values()))
        if row["reference_weight_error"] > 0:
            error, khat = row["reference_weight_error"], row["reference_weight_khat"]
            told.append(f"`{corruption}` {error:.1g} (k-hat {khat:.2f})")
    if not told:
        return ""
    return (
        "; the truth is importance sampling from a mixture fitted to the reference's draws and from"
        f" a proposal of ours, both at once, with standard errors of {', '.join(told)}"
    )


def _repeats(found: Found) -> str:
    """How often the methods ran."""
    methods: dict[int, list[str]] = {}
    for name in METHODS:
        numbers = [len(medians[name]["runs"]) for medians in found.values() if name in medians]
        methods.setdefault(max(numbers, default=0), []).append(f"`{name}`")
    return "; ".join(
        f"{'once' if number == 1 else f'{number} times'} {', '.join(names)}"
        for number, names in sorted(methods.items(), reverse=True)
        if number
    )


def _short(found: Found) -> str:
    """Ratios of time over the problems, and on how many of them a method is less accurate."""
    lines = []
    for name, method in METHODS.items():
        pairs = [
            (medians[name], medians["latentuq"])
            for medians in found.values()
            if name != "latentuq" and {name, "latentuq"} <= {*medians}
        ]
        if pairs:
            times = [theirs["time"] for theirs, _ in pairs]
            worse = {
                part: sum(theirs[part] > ours[part] for theirs, ours in pairs) for part in _PARTS
            }
            line = {"title": method.title, "least": min(times), "most": max(times)}
            lines.append(line | worse | {"number": len(pairs)})
    form = "{title} | {least:.2f} | {most:.2f} | {evidence_gap} of {number}"
    return rows(form + " | {weight_gap} of {number} | {two_sample_accuracy} of {number}", lines)


def _bars(found: Found) -> str:
    """Ratios of time beside what we set out to reach, problem by problem."""

    def times(name: str) -> list[float]:
        return [medians.get(name, Medians())["time"] for medians in found.values()]

    tried = {name for medians in found.values() for name in medians}
    lines = [
        {"title": METHODS[name].title, "bar": bar, "ratios": times(name)}
        for name, bar in _BARS.items()
        if name in tried
    ]
    if "smc" in tried:
        # Half of a call of SMC is its plan, which its repetitions may share.
        title, calls = METHODS["smc"].title, 0.5 * (1 + equal_error_runs(found))
        own = [0.5 * (1 + equal_error_runs({"": medians})) for medians in found.values()]
        equal = [calls * time for time in times("smc")]
        own_equal = [each * time for each, time in zip(own, times("smc"), strict=True)]
        lines += [
            {"title": f"{title}, at equal error", "bar": _EQUAL_ERROR_BAR, "ratios": equal},
            {"title": f"{title}, at that problem's equal error", "ratios": own_equal},
        ]
    form = "{title} | {bar}" + "".join(f" | {{ratios[{place}]:.1f}}" for place in range(len(found)))
    return rows(form, lines)


def equal_error_runs(found: Found) -> float:
    """How many runs of SMC have our error of ln evidence, at least one; NaN if none was made."""
    squares = []
    for name in ("smc", "latentuq"):
        runs = [
            run for medians in found.values() if name in medians for run in medians[name]["runs"]
        ]
        if not runs:
            return np.nan
        errors = [run["evidence_gap"] ** 2 - run["reference_error"] ** 2 for run in runs]
        # It may be smaller than what the references can tell.
        squares.append(max(float(np.mean(errors)), 1e-4))
    return max(1.0, squares[0] / squares[1])


def _equal_error(runs: float) -> str:
    if np.isnan(runs):
        return ""
    return (
        "At equal error: the mean square error of SMC's ln evidence over all problems and repeats,"
        f" less that of the references, is {runs:.1f} times ours; so many of its runs, which may"
        " share a plan, as dear as a run, have our error."
    )


def _stages(found: Found, machine: dict[str, Any] | None) -> str:
    """Where our time goes, and what we say of our answers."""
    lines = []
    for corruption, medians in found.items():
        ours = medians.get("latentuq", Medians(runs=[]))
        stages = [run["stages"] for run in ours["runs"] if run.get("stages")]
        if not stages:
            continue
        line: dict[str, Any] = {
            name: np.median([sum(stage.get(part, 0) for part in parts) for stage in stages])
            for name, parts in _STAGES.items()
        }
        words = [verdict_word(run) for run in ours["runs"] if "verdict" in run]
        line["verdicts"] = ", ".join(f"{words.count(word)} {word}" for word in sorted(set(words)))
        if machine:
            gflop = ours["million_evaluations"] * machine["forward_mflop"][corruption] * 1e3
            line["rate"] = gflop / ours["seconds"] / machine["matmul_gflops"]
        lines.append({"problem": corruption, **ours, **line})
    form = "`{problem}` | {seconds:.2f} | {search:.2f} | {fit:.2f} | {sampling:.2f} | {certify:.2f}"
    return rows(form + " | {verdicts} | {khat:.2f} | {ess:.0f} | {rate:.0%}", lines)


def _describe_machine(machine: dict[str, Any] | None) -> str:
    if machine is None:
        return "the rate of this machine was not measured"
    passes = machine["forward_mflop"].values()
    return (
        f"the machine multiplies 2048 x 2048 matrices at {machine['matmul_gflops']:.0f} GFLOP/s,"
        f" and one pass takes {min(passes):.2f} to {max(passes):.2f} MFLOP, by the number of pixels"
        " that are data"
    )


def _grown(cells: Cells) -> str:
    grown = [
        {"rounds": cell.get("refinements"), **cell, "what": name, "verdict": verdict_word(cell)}
        | {"cost": cell["forward_equivalents"] / 1e6}
        for name, cell in cells.items()
        if name.split()[0] in ("dimension", "size", "starts")
    ]
    return rows("{what} | {seconds:.2f} | {cost:.3f} | {modes} | {rounds} | {verdict}", grown)


def draw_times(found: Found, path: Path) -> None:
    """Two-sample accuracy above one half, and error of the evidence, against time, log-log."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(9, 5), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True)
    parts = {
        "two_sample_accuracy": "two-sample accuracy - 0.5",
        "evidence_gap": "|error of ln evidence| (nats)",
    }
    shown = []
    for (part, label), axis in zip(parts.items(), panels, strict=True):
        for marker, (name, method) in zip(_MARKERS, METHODS.items(), strict=False):
            for colour, corruption in zip(COLOURS, EXPERIMENTS, strict=True):
                row = found.get(corruption, {}).get(name, Medians())
                error = row[part] - (0.5 if part == "two_sample_accuracy" else 0)
                if np.isnan(error):
                    continue
                ours = name == "latentuq"
                axis.plot(
                    row["seconds"],
                    max(error, _LEAST_DRAWN),
                    marker,
                    color=colour,
                    markersize=11 if ours else 6,
                    markerfacecolor=colour if ours else "none",
                )
                if (marker, method.title) not in shown:
                    shown.append((marker, method.title))
        axis.set(xscale="log", yscale="log", xlabel="seconds", ylabel=label)
        axis.axhline(_LEAST_DRAWN, color="0.7", lw=0.8, zorder=0)
        axis.grid(alpha=0.25, which="both", linewidth=0.5)
    handles = [
        Line2D([], [], color=c, lw=4, label=n) for c, n in zip(COLOURS, EXPERIMENTS, strict=True)
    ]
    handles += [
        Line2D([], [], color="black", marker=marker, lw=0, markerfacecolor="none", label=title)
        for marker, title in shown
    ]
    figure.legend(handles=handles, loc="outside right upper", fontsize=8, frameon=False)
    save_figure(figure, path)
