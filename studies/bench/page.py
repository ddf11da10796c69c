"""docs/results/bench.md and its figure, from the cells of a run."""

from pathlib import Path
from typing import Any

import numpy as np

from latentuq.calibration.summary import verdict_word
from latentuq.core.cells import Cells
from latentuq.problem.experiments import EXPERIMENTS
from studies.bench.methods import METHODS
from studies.bench.run import COMPILING
from studies.pages import COLOURS, numbers, save_figure, section, table, write_page

_STAGES = ("search", "fit", "refine", "certify")
_MARKERS = "o^sDv<>Pp*hX+x12|_34"
# Errors below are drawn there.
_LEAST_DRAWN = 0.005
_PARTS = {"evidence_gap": "evidence", "weight_gap": "weights", "two_sample_accuracy": "two-sample"}
# How many times as long as ours a method is expected to take.
_BARS = {"full-rank-paper": 50, "adam": 20, "adam-batched": 3}
_EQUAL_ERROR_BAR = 10


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
                # Ours begins before the others, which need its modes.
                row["compile_seconds"] += compiling if name == "latentuq" else 0.0
        rows = found.get(corruption, {})
        ours = rows.get("latentuq", Medians())["seconds"]
        for row in rows.values():
            row["time"] = row["seconds"] / ours
    return found


def _medians(runs: list[dict[str, Any]]) -> Medians:
    row = Medians(runs=runs)
    for name in {name: None for run in runs for name in run}:
        values = [run[name] for run in runs if isinstance(run.get(name), int | float)]
        if values:
            # The gap of the evidence has a sign, which does not matter.
            row[name] = float(np.median(np.abs(values) if name == "evidence_gap" else values))
    row["compile_seconds"] = max(run["compile_seconds"] for run in runs)
    row["thousand_gradients"] = row["gradients"] / 1e3
    row["million_evaluations"] = row["forward_equivalents"] / 1e6
    return row


def write_bench(cells: Cells, setup: dict[str, Any], folder: Path, command: str) -> Path:
    """Writes the page and the figure beside the cells."""
    found = summarise(cells)
    draw_times(found, folder / "bench.png")
    introduction = f"""\
The prior is `{setup["model"]}` (sha256 {setup["model_checksum"][:12]}) with the model error
`{setup["model_error"]}`, that of the ground truth ([references.md](references.md)). All methods ran
in one process, or a few if the run was resumed, one after the other and then all again.
{_repeats(found)} Times are medians without compilation, which is listed apart. Our settings
were chosen on image posteriors that include these four ([inference.md](../inference.md)).

![Error against time](bench.png)

On the grey line: that error or a smaller one."""
    legend = f"""\
`time`: relative to ours. `compile s`: of the first run; what an earlier problem or method has
compiled is not compiled again. `Mfe`: million evaluations of the density, a gradient counted as
three; Laplace's are without those of our search, which its time includes. `evidence`: median
distance of ln evidence from the reference's; SVI and cross-coding give lower bounds, NUTS and the
Gibbs samplers none. `weights`: largest error of the masses of the two heaviest modes, counted on a
method's draws{_mass_errors(found)}. `two-sample`: accuracy of a classifier that tells at most
1,000 of them, repeats left out, from the reference's (0.5: it cannot). `energy`, `CRPS`: scores of
the true image, model error included; lower is better."""
    sections = [
        introduction,
        _short(found),
        _bars(found),
        _not_slower(found),
        *(_problem(corruption, rows) for corruption, rows in found.items()),
        _costs(cells, found),
        legend,
    ]
    title = "Our inference beside the others"
    return write_page(folder / "bench.md", title, command, cells.values(), sections)


def _mass_errors(found: Found) -> str:
    """How well the true masses are known."""
    told = []
    for corruption, rows in found.items():
        # The same for all methods.
        row = next(iter(rows.values()))
        if row["reference_weight_error"] > 0:
            error, khat = row["reference_weight_error"], row["reference_weight_khat"]
            told.append(f"`{corruption}` {error:.1g} (k-hat {khat:.2f})")
    if not told:
        return ""
    return f"""; the truth is importance sampling from a mixture fitted to
the reference's draws and from a proposal of ours, both at once, with standard errors of
{", ".join(told)}"""


def _repeats(found: Found) -> str:
    """How often the methods ran."""
    methods: dict[int, list[str]] = {}
    for name in METHODS:
        most = max((len(rows[name]["runs"]) for rows in found.values() if name in rows), default=0)
        methods.setdefault(most, []).append(f"`{name}`")
    told = [
        f"{'once' if number == 1 else f'{number} times'} {', '.join(names)}"
        for number, names in sorted(methods.items(), reverse=True)
        if number
    ]
    return f"So often on each problem: {'; '.join(told)}."


def _problem(corruption: str, rows: dict[str, Medians]) -> str:
    """The table of one problem."""
    lines = []
    for name, row in rows.items():
        seconds = [run["seconds"] for run in row["runs"]]
        spread = f"{min(seconds):.2f}-{max(seconds):.2f}" if len(seconds) > 1 else ""
        costs = {"time": ".2f", "compile_seconds": ".1f"}
        costs |= {"thousand_gradients": ".0f", "million_evaluations": ".2f"}
        errors = dict.fromkeys(_PARTS, ".3f") | {"energy": ".3f", "crps": ".4f"}
        shown = numbers(row, **costs, **errors)
        lines.append([METHODS[name].title, f"{row['seconds']:.2f}", spread, *shown])
    titles = ["method", "seconds", "spread", "time", "compile s", "thousand gradients", "Mfe"]
    titles += [*_PARTS.values(), "energy", "CRPS"]
    experiment = EXPERIMENTS[corruption]
    return section(f"{corruption}, image {experiment.image}", experiment.summary, titles, lines, "")


def _short(found: Found) -> str:
    """Ratios of time over the problems, and on how many of them a method is less accurate."""
    lines = []
    for name, method in METHODS.items():
        pairs = [
            (rows[name], rows["latentuq"])
            for rows in found.values()
            if name != "latentuq" and {name, "latentuq"} <= {*rows}
        ]
        if pairs:
            times = [theirs["time"] for theirs, _ in pairs]
            worse = [sum(theirs[part] > ours[part] for theirs, ours in pairs) for part in _PARTS]
            counts = [f"{number} of {len(pairs)}" for number in worse]
            lines.append([method.title, f"{min(times):.2f}", f"{max(times):.2f}", *counts])
    titles = [
        "method",
        "time / ours, least",
        "most",
        *(f"{part} worse" for part in _PARTS.values()),
    ]
    after = """\
Time relative to ours over the problems, and on how many of them the method's median error is larger
than ours (a method without evidence is not counted as worse; where there is one mode, everybody's
weights are right)."""
    return section("In short", "", titles, lines, after)


def _bars(found: Found) -> str:
    """Ratios of time beside what we set out to reach, problem by problem."""

    def times(name: str) -> list[float]:
        return [rows.get(name, Medians())["time"] for rows in found.values()]

    # Half of a call of SMC is its plan, which its repetitions may share.
    repeats = equal_error_runs(found)
    own = [equal_error_runs({name: rows}) for name, rows in found.items()]
    equal = [0.5 * (1 + repeats) * time for time in times("smc")]
    own_equal = [0.5 * (1 + runs) * time for runs, time in zip(own, times("smc"), strict=True)]
    lines = [(name, "", str(bar), times(name)) for name, bar in _BARS.items()]
    lines += [
        ("smc", ", at equal error", str(_EQUAL_ERROR_BAR), equal),
        ("smc", ", at that problem's equal error", "", own_equal),
    ]
    shown = [
        [METHODS[name].title + note, bar, *("" if np.isnan(x) else f"{x:.1f}" for x in ratios)]
        for name, note, bar, ratios in lines
        if not np.all(np.isnan(ratios))
    ]
    titles = ["method", "bar", *(f"`{name}`" for name in found)]
    after = f"""\
At equal error: the mean square error of SMC's ln evidence over all problems and repeats, less that
of the references, is {repeats:.1f} times ours; so many of its runs, which may share a plan, as dear
as a run, have our error."""
    return section("What we set out to reach", "Time relative to ours.", titles, shown, after)


def equal_error_runs(found: Found) -> float:
    """How many runs of SMC have our error of ln evidence, at least one; NaN if none was made."""
    squares = []
    for name in ("smc", "latentuq"):
        runs = [run for rows in found.values() if name in rows for run in rows[name]["runs"]]
        if not runs:
            return np.nan
        errors = [run["evidence_gap"] ** 2 - run["reference_error"] ** 2 for run in runs]
        # It may be smaller than what the references can tell.
        squares.append(max(float(np.mean(errors)), 1e-4))
    return max(1.0, squares[0] / squares[1])


def _not_slower(found: Found) -> str:
    """Errors of the methods that take no longer than ours, beside our own."""
    lines, better = [], []
    for corruption, rows in found.items():
        ours = rows.get("latentuq", Medians())
        for name, theirs in rows.items():
            if name in ("latentuq", "preview") or not theirs["time"] <= 1:
                continue
            line = [f"`{corruption}`", METHODS[name].title, f"{theirs['time']:.2f}"]
            for part in _PARTS:
                pair = theirs[part], ours[part]
                # The masses of a single mode are known without error.
                several = part != "weight_gap" or ours["reference_weight_error"] > 0
                told = not np.any(np.isnan(pair)) and several
                line.append(f"{pair[0]:.3f} ({pair[1]:.3f})" if told else "")
                better += [pair[1] < pair[0]] if told else []
            lines.append(line)
    titles = ["problem", "method", "time", *_PARTS.values()]
    after = f"""\
Median errors, ours in brackets; ours are smaller in {sum(better)} of {len(better)}. Where there is
one mode, weights are left out."""
    return section("Beside what is not slower", "", titles, lines, after)


def _costs(cells: Cells, found: Found) -> str:
    """Where our time goes, and how it grows."""
    machine = cells.get("machine", {})
    lines = []
    for corruption, rows in found.items():
        ours = rows.get("latentuq", Medians(runs=[]))
        stages = [run["stages"] for run in ours["runs"] if run.get("stages")]
        if not stages:
            continue
        line = [f"`{corruption}`", f"{ours['seconds']:.2f}"]
        line += [f"{np.median([stage.get(name, 0) for stage in stages]):.2f}" for name in _STAGES]
        line += [_verdicts(ours["runs"]), *numbers(ours, khat=".2f", ess=".0f")]
        if machine:
            gflop = ours["million_evaluations"] * machine["forward_mflop"][corruption] * 1e3
            line.append(f"{gflop / ours['seconds'] / machine['matmul_gflops']:.0%}")
        lines.append(line)
    text = "## Where the time goes, and what we say of the answer"
    if lines:
        titles = ["problem", "seconds", *_STAGES, "verdicts", "k-hat", "ESS"]
        titles += ["of the matmul rate"] if machine else []
        text += f"\n\n{table(titles, lines)}"
    if machine:
        passes = machine["forward_mflop"].values()
        text += f"""

The machine multiplies 2048 x 2048 matrices at {machine["matmul_gflops"]:.0f} GFLOP/s; one
pass through flow and decoder takes {min(passes):.2f} to {max(passes):.2f} MFLOP, by the number of
pixels that are data. The last column counts these passes (Mfe) alone, nothing of what whitening,
mixtures and factorisations cost."""
    grown = [
        [
            name,
            f"{cell['seconds']:.2f}",
            f"{cell['forward_equivalents'] / 1e6:.3f}",
            *numbers(cell, modes="d", refinements="d"),
            verdict_word(cell),
        ]
        for name, cell in cells.items()
        if name.split()[0] in ("dimension", "size", "starts")
    ]
    if grown:
        titles = ["what", "seconds", "Mfe", "modes", "refinements", "verdict"]
        text += f"""

### How it grows

{table(titles, grown)}

`dimension`, `size`: a whole solve under a prior with random weights, of that latent dimension, or
with that image side and 10 dimensions; half of the image is hidden, noise 0.1. `starts`: descents
of that many prior draws on `masknoise05`."""
    return text if lines or machine or grown else ""


def _verdicts(runs: list[dict[str, Any]]) -> str:
    found = [verdict_word(run) for run in runs if "verdict" in run]
    return ", ".join(f"{found.count(word)} {word}" for word in sorted(set(found)))


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
