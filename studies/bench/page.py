"""docs/results/bench.md and its figure, from the cells of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from latentuq.calibration.summary import verdict_word
from latentuq.core.cells import Cells
from latentuq.problem.experiments import EXPERIMENTS
from studies.bench.methods import METHODS
from studies.bench.run import COMPILING
from studies.pages import COLOURS, save_figure, section, table, write_page

_STAGES = ("search", "fit", "refine", "certify")
_MARKERS = "o^sDv<>Pp*hX+x12|_34"
# Errors below are drawn there.
_LEAST_DRAWN = 0.005
_PARTS = {"evidence_gap": "evidence", "weight_gap": "weights", "two_sample_accuracy": "two-sample"}
# How many times as long as ours a method is expected to take.
_BARS = {"full-rank-paper": 50, "adam": 20, "adam-batched": 3}
_EQUAL_ERROR_BAR = 10


def write_bench(cells: Cells, setup: dict[str, Any], folder: Path, command: str) -> Path:
    """Writes the page and the figure beside the cells."""
    done = [name for name in EXPERIMENTS if any(_runs(cells, m, name) for m in METHODS)]
    draw_times(cells, folder / "bench.png")
    introduction = f"""\
The prior is `{setup["model"]}` (sha256 {setup["model_checksum"][:12]}) with the model error
`{setup["model_error"]}`, that of the ground truth ([references.md](references.md)). All methods ran
in one process, or a few if the run was resumed, one after the other and then all again.
{_repeats(cells, done)} Times are medians without compilation, which is listed apart. Our settings
were chosen on image posteriors that include these four ([inference.md](../inference.md)).

![Error against time](bench.png)

On the grey line: that error or a smaller one."""
    legend = f"""\
`time`: relative to ours. `compile s`: of the first run; what an earlier problem or method has
compiled is not compiled again. `Mfe`: million evaluations of the density, a gradient counted as
three; Laplace's are without those of our search, which its time includes. `evidence`: median
distance of ln evidence from the reference's; SVI and cross-coding give lower bounds, NUTS and the
Gibbs samplers none. `weights`: largest error of the masses of the two heaviest modes, counted on a
method's draws{_mass_errors(cells, done)}. `two-sample`: accuracy of a classifier that tells at most
1,000 of them, repeats left out, from the reference's (0.5: it cannot). `energy`, `CRPS`: scores of
the true image, model error included; lower is better."""
    sections = [
        introduction,
        summary(cells, done),
        _bars(cells, done),
        _not_slower(cells, done),
        *(_problem(cells, corruption) for corruption in done),
        _costs(cells, done),
        legend,
    ]
    title = "Our inference beside the others"
    return write_page(folder / "bench.md", title, command, cells.values(), sections)


def _mass_errors(cells: Cells, done: list[str]) -> str:
    """How well the true masses are known."""
    told = []
    for corruption in done:
        runs = [run for name in METHODS for run in _runs(cells, name, corruption)]
        error = median(runs, "reference_weight_error")
        if error > 0:
            khat = median(runs, "reference_weight_khat")
            told.append(f"`{corruption}` {error:.1g} (k-hat {khat:.2f})")
    if not told:
        return ""
    return f"""; the truth is importance sampling from a mixture fitted to
the reference's draws and from a proposal of ours, both at once, with standard errors of
{", ".join(told)}"""


def _repeats(cells: Cells, done: list[str]) -> str:
    """How often the methods ran."""
    methods: dict[int, list[str]] = {}
    for name in METHODS:
        most = max((len(_runs(cells, name, corruption)) for corruption in done), default=0)
        methods.setdefault(most, []).append(f"`{name}`")
    told = [
        f"{'once' if number == 1 else f'{number} times'} {', '.join(names)}"
        for number, names in sorted(methods.items(), reverse=True)
        if number
    ]
    return f"So often on each problem: {'; '.join(told)}."


def _runs(cells: Cells, method: str, corruption: str) -> list[dict[str, Any]]:
    """The finished repeats of one method on one problem."""
    named = f"{method} {corruption}"
    found = (cell for name, cell in cells.items() if name.rsplit(" ", 1)[0] == named)
    return [cell for cell in found if "error" not in cell]


def median(runs: list[dict[str, Any]], name: str, size: Callable[..., float] = float) -> float:
    """The median of a number over repeats; NaN where a method does not have it."""
    values = [size(run[name]) for run in runs if run.get(name) is not None]
    return float(np.median(values)) if values else np.nan


def _size(runs: list[dict[str, Any]], name: str) -> float:
    """The median magnitude of a number over repeats."""
    return median(runs, name, abs)


def _problem(cells: Cells, corruption: str) -> str:
    """The table of one problem."""
    ours = median(_runs(cells, "latentuq", corruption), "seconds")
    rows = []
    for name, method in METHODS.items():
        runs = _runs(cells, name, corruption)
        if not runs:
            continue
        seconds = [run["seconds"] for run in runs]
        rows.append(
            [
                method.title,
                f"{np.median(seconds):.2f}",
                f"{min(seconds):.2f}-{max(seconds):.2f}" if len(runs) > 1 else "",
                f"{np.median(seconds) / ours:.2f}",
                f"{_compile_seconds(cells, name, corruption):.1f}",
                f"{median(runs, 'gradients') / 1e3:.0f}",
                f"{median(runs, 'forward_equivalents') / 1e6:.2f}",
                _decimal(_size(runs, "evidence_gap")),
                f"{median(runs, 'weight_gap'):.3f}",
                f"{median(runs, 'two_sample_accuracy'):.3f}",
                f"{median(runs, 'energy'):.3f}",
                f"{median(runs, 'crps'):.4f}",
            ]
        )
    titles = ["method", "seconds", "spread", "time", "compile s", "thousand gradients", "Mfe"]
    titles += ["evidence", "weights", "two-sample", "energy", "CRPS"]
    experiment = EXPERIMENTS[corruption]
    heading = f"## {corruption}, image {experiment.image}"
    return f"{heading}\n\n{experiment.summary}\n\n{table(titles, rows)}"


def _compile_seconds(cells: Cells, method: str, corruption: str) -> float:
    """Of the first run; ours begins before the others, which need its modes."""
    seconds = max(run["compile_seconds"] for run in _runs(cells, method, corruption))
    ahead = cells.get(f"{COMPILING} {corruption}", {}) if method == "latentuq" else {}
    return seconds + ahead.get("seconds", 0.0)


def _decimal(value: float, digits: int = 3) -> str:
    return "" if np.isnan(value) else f"{value:.{digits}f}"


def summary(cells: Cells, done: list[str]) -> str:
    """Ratios of time over the problems, and on how many of them a method is less accurate."""
    rows = []
    for name, method in METHODS.items():
        ratios, errors = [], []
        for corruption in done:
            ours, theirs = _runs(cells, "latentuq", corruption), _runs(cells, name, corruption)
            if not ours or not theirs or name == "latentuq":
                continue
            ratios.append(median(theirs, "seconds") / median(ours, "seconds"))
            errors.append([_size(theirs, part) > _size(ours, part) for part in _PARTS])
        if ratios:
            worse = np.array(errors)
            rows.append(
                [
                    method.title,
                    f"{min(ratios):.2f}",
                    f"{max(ratios):.2f}",
                    *(f"{int(column.sum())} of {len(column)}" for column in worse.T),
                ]
            )
    titles = ["method", "time / ours, least", "most", "evidence worse", "weights worse"]
    after = """\
Time relative to ours over the problems, and on how many of them the method's median error is larger
than ours (a method without evidence is not counted as worse; where there is one mode, everybody's
weights are right)."""
    return section("In short", "", [*titles, "two-sample worse"], rows, after)


def _bars(cells: Cells, done: list[str]) -> str:
    """Ratios of time beside what we set out to reach, problem by problem."""
    rows = []

    def add(method: str, note: str, bar: str, ratios: list[float]) -> None:
        if not np.all(np.isnan(ratios)):
            title = METHODS[method].title + note
            rows.append([title, bar, *(_decimal(ratio, 1) for ratio in ratios)])

    for name, bar in _BARS.items():
        add(name, "", str(bar), [_ratio(cells, name, each) for each in done])
    repeats = equal_error_runs(cells, done)
    ratios = [_equal_error_ratio(cells, each, repeats) for each in done]
    add("smc", ", at equal error", str(_EQUAL_ERROR_BAR), ratios)
    ratios = [_equal_error_ratio(cells, each, equal_error_runs(cells, [each])) for each in done]
    add("smc", ", at that problem's equal error", "", ratios)
    titles = ["method", "bar", *(f"`{name}`" for name in done)]
    after = f"""\
At equal error: the mean square error of SMC's ln evidence over all problems and repeats, less that
of the references, is {repeats:.1f} times ours; so many of its runs, which may share a plan, as dear
as a run, have our error."""
    return section("What we set out to reach", "Time relative to ours.", titles, rows, after)


def _not_slower(cells: Cells, done: list[str]) -> str:
    """Errors of the methods that take no longer than ours, beside our own."""
    rows, better = [], []
    for corruption in done:
        ours = _runs(cells, "latentuq", corruption)
        for name, method in METHODS.items():
            theirs, ratio = _runs(cells, name, corruption), _ratio(cells, name, corruption)
            if name in ("latentuq", "preview") or not theirs or not ratio <= 1:
                continue
            row = [f"`{corruption}`", method.title, f"{ratio:.2f}"]
            for part in _PARTS:
                pair = _size(theirs, part), _size(ours, part)
                told = not np.any(np.isnan(pair)) and (part != "weight_gap" or _has_modes(ours))
                row.append(f"{pair[0]:.3f} ({pair[1]:.3f})" if told else "")
                if told:
                    better.append(pair[1] < pair[0])
            rows.append(row)
    titles = ["problem", "method", "time", *_PARTS.values()]
    after = f"""\
Median errors, ours in brackets; ours are smaller in {sum(better)} of {len(better)}. Where there is
one mode, weights are left out."""
    return section("Beside what is not slower", "", titles, rows, after)


def _has_modes(runs: list[dict[str, Any]]) -> bool:
    """Whether there are several: the masses of one are known without error."""
    return median(runs, "reference_weight_error") > 0


def _ratio(cells: Cells, method: str, corruption: str) -> float:
    theirs, ours = (_runs(cells, name, corruption) for name in (method, "latentuq"))
    return median(theirs, "seconds") / median(ours, "seconds")


def _equal_error_ratio(cells: Cells, corruption: str, repeats: float) -> float:
    """Half of a call of SMC is its plan, which its repetitions may share."""
    return 0.5 * (1 + repeats) * _ratio(cells, "smc", corruption)


def equal_error_runs(cells: Cells, done: list[str]) -> float:
    """How many runs of SMC have our error of ln evidence, at least one; NaN if none was made."""
    squares = []
    for method in ("smc", "latentuq"):
        runs = [run for corruption in done for run in _runs(cells, method, corruption)]
        if not runs:
            return np.nan
        errors = [run["evidence_gap"] ** 2 - run["reference_error"] ** 2 for run in runs]
        # It may be smaller than what the references can tell.
        squares.append(max(float(np.mean(errors)), 1e-4))
    return max(1.0, squares[0] / squares[1])


def _costs(cells: Cells, done: list[str]) -> str:
    """Where our time goes, and how it grows."""
    machine = cells.get("machine", {})
    rows = []
    for corruption in done:
        runs = _runs(cells, "latentuq", corruption)
        stages = [run["stages"] for run in runs if run.get("stages")]
        if not stages:
            continue
        seconds = median(runs, "seconds")
        row = [f"`{corruption}`", f"{seconds:.2f}"]
        row += [f"{np.median([stage.get(name, 0) for stage in stages]):.2f}" for name in _STAGES]
        row += [
            _verdicts(runs),
            _decimal(median(runs, "khat"), 2),
            _decimal(median(runs, "ess"), 0),
        ]
        if machine:
            pass_mflop = machine["forward_mflop"][corruption]
            rate = median(runs, "forward_equivalents") * pass_mflop / seconds / 1e3
            row.append(f"{rate / machine['matmul_gflops']:.0%}")
        rows.append(row)
    text = "## Where the time goes, and what we say of the answer"
    if rows:
        titles = ["problem", "seconds", *_STAGES, "verdicts", "k-hat", "ESS"]
        titles += ["of the matmul rate"] if machine else []
        text += f"\n\n{table(titles, rows)}"
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
            str(cell["modes"]),
            str(cell.get("refinements", "")),
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
    return text if rows or machine or grown else ""


def _verdicts(runs: list[dict[str, Any]]) -> str:
    found = [verdict_word(run) for run in runs if "verdict" in run]
    return ", ".join(f"{found.count(word)} {word}" for word in sorted(set(found)))


def draw_times(cells: Cells, path: Path) -> None:
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
                runs = _runs(cells, name, corruption)
                error = _size(runs, part) - (0.5 if part == "two_sample_accuracy" else 0)
                if not runs or np.isnan(error):
                    continue
                ours = name == "latentuq"
                axis.plot(
                    median(runs, "seconds"),
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
