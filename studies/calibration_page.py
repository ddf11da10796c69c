"""docs/results/calibration.md and its figures, from the rows of all studies in a folder."""

from pathlib import Path
from typing import Any

import numpy as np

from latentuq import UserError
from latentuq.calibration.measure import BINS, LEVELS
from latentuq.calibration.statistics import Rate, Reliability
from latentuq.calibration.studies import KINDS, Study
from latentuq.calibration.summary import (
    Rows,
    check_uniformity,
    check_weights,
    class_noise,
    class_reliability,
    coverage,
    histogram,
    is_unreliable,
    mode_reliability,
    rank_distance,
    top_class_reliability,
)
from latentuq.core.cells import commits, read_file
from latentuq.prior.model_error import LOW_RANK, SIGNAL_DEPENDENT
from latentuq.problem.experiments import EXPERIMENTS
from studies.alarms import ALARMS, SETS, describe_alarms
from studies.calibration import METHODS
from studies.pages import COLOURS, save_figure, section, write_text

_MODEL_ERRORS = ("scalar", "per-pixel", LOW_RANK, SIGNAL_DEPENDENT)
# Weights of modes this far from 0 and 1 are shown by themselves.
_DOUBTFUL = 0.1

Studies = dict[Study, Rows]


def write_calibration(folder: Path, page: Path, command: str) -> Path:
    """Writes the page, and its figures beside it."""
    studies, alarms, models = read_studies(folder)
    if not studies and not alarms:
        raise UserError(f"There are no rows of a study in {folder}.")
    figures = save_figures(studies, page)
    source = f"""Written by `{command}` from the rows in
[{folder.name}]({folder.name}), prior {", ".join(f"`{model}`" for model in models)}.
`python -m studies calibration --study ...` measures a study, and continues one that is there."""
    write_text(
        page,
        [
            "# Calibration: does what the posterior says happen as often as it says?",
            source,
            _simulated(studies),
            _real(studies),
            _methods(studies),
            *(f"![{title}]({path.name})" for title, path in figures.items()),
            _alarms(alarms),
        ],
    )
    return page


def read_studies(folder: Path) -> tuple[Studies, dict[str, Rows], list[str]]:
    """The rows of all studies by their names, those of alarms by model error, and the models."""
    studies: Studies = {}
    alarms: dict[str, Rows] = {}
    models = set()
    for path in sorted(folder.glob("*.json")):
        setup, cells = read_file(path)
        rows = [*cells.values()]
        try:
            models.add(f"{setup['model']} (sha256 {setup['model_checksum'][:12]})")
            if setup["study"] == ALARMS:
                alarms[setup["model_error"]] = rows
            else:
                studies[Study(**setup["study"])] = rows
        except (KeyError, TypeError):
            raise UserError(f"{path} is not a file of a calibration study.") from None
    return studies, alarms, sorted(models)


def _percent(rate: Rate) -> str:
    return f"{100 * rate.value:.1f} ± {100 * rate.error:.1f}"


def _simulated(studies: Studies) -> str:
    rows, shown = [], []
    for corruption in EXPERIMENTS:
        found = studies.get(Study("simulated", corruption, LOW_RANK))
        if not found:
            continue
        shown += found
        uniform, covered = check_uniformity(found), coverage(found, "hidden")
        doubtful = mode_reliability(found, _DOUBTFUL)
        rows.append(
            [
                f"`{corruption}`",
                str(len(found)),
                f"{uniform.ranks.min():.3f}",
                f"{uniform.tarp:.3f}",
                *(_percent(covered[level]) for level in LEVELS),
                f"{mode_reliability(found).error:.3f}",
                f"{doubtful.error:.3f} ({number})" if (number := doubtful.counts.sum()) else "",
                f"{check_weights(found):.3f}",
                str(sum(map(is_unreliable, found))),
            ]
        )
    titles = ["corruption", "problems", "least p of ranks", "p of TARP"]
    titles += [f"{level:.0%} intervals" for level in LEVELS]
    titles += ["error of mode weights", f"from {_DOUBTFUL:.0%} to {1 - _DOUBTFUL:.0%}"]
    titles += ["p of weights", "unreliable"]
    before = f"""\
u from the prior, x and y from u, with the model error `{LOW_RANK}`: unlike the default's, its
likelihood and simulation are the same Gaussian, so this tests the inference alone. Measured at
{commits(shown)}."""
    after = """\
`least p of ranks`: the smallest of the Kolmogorov-Smirnov tests of the ranks of all latent
dimensions, with that of TARP corrected for their number by Holm's method (bar 0.01). `intervals`:
percentage of hidden pixels (of all pixels under the blur) that central intervals cover, ± standard
error clustered by image (bar: within 3 points, or 3 standard errors). `error of mode weights`:
expected calibration error of the stated weight of a mode holding the truth, of all modes and of
those that are neither nearly certain nor nearly empty (so many); `p of weights`: of the heaviest
mode of each problem (chi-squared in bins of a tenth). The grey band in the figure holds 99 % of
uniform ranks (Kolmogorov-Smirnov, one test, fewest problems)."""
    return section("Data simulated from the model", before, titles, rows, after)


def _real(studies: Studies) -> str:
    rows, shown = [], []
    for corruption in EXPERIMENTS:
        for error in _MODEL_ERRORS:
            found = studies.get(Study("real", corruption, error))
            if not found:
                continue
            shown += found
            groups = {name: coverage(found, name) for name in ("uncertain", "uncertain_inked")}
            black = coverage(found, "black")
            noise = class_noise(found)
            chi = np.median([row["chi_squared"] for row in found])
            rows.append(
                [
                    f"`{corruption}`",
                    error,
                    str(len(found)),
                    _percent(groups["uncertain"][0.5]),
                    _percent(groups["uncertain"][0.9]),
                    _percent(groups["uncertain_inked"][0.9]),
                    _percent(black[0.9]),
                    f"{rank_distance(found):.2f}",
                    f"{np.mean([row['crps'] for row in found]):.4f}",
                    f"{np.mean([row['energy'] for row in found]):.3f}",
                    f"{class_reliability(found).error:.3f} ({noise[0]:.3f})",
                    f"{top_class_reliability(found).error:.3f} ({noise[1]:.3f})",
                    f"{chi:.2f}",
                    f"{check_uniformity(found).tarp:.3f}",
                    str(sum(map(is_unreliable, found))),
                ]
            )
    titles = ["corruption", "model error", "images", "50 %", "90 %", "90 %, inked", "90 %, black"]
    titles += ["ranks", "CRPS", "energy", "classes", "top class", "chi-squared", "p of TARP"]
    before = f"""\
Digits of the test set in random order, without those that had a part in making the method; fresh
noise, images drawn with the model error. Measured at {commits(shown)}."""
    after = """\
`50 %`, `90 %`: coverage of hidden pixels whose posterior standard deviation is above 0.05 (bar: 86
to 94 % by 90 % intervals); `inked`: those whose true value is above 0 (bar: 84 %); `black`: all
hidden pixels whose true value is 0. Most hidden pixels are black and always covered, so an average
over all of them would hide everything. `ranks`: largest distance of the distribution of their
randomised ranks (the figure's histograms) from the uniform one. Few lie in the middle: a true pixel
is black or white, and the model error a Gaussian around something grey. So intervals of 90 % are
right, but the shape of what they summarise is not. `classes`, `top class`: expected calibration
error of the probabilities that a classifier, applied to draws, gives to all digits and to the most
probable one (bar 0.05), in brackets what chance alone makes of so few images. `chi-squared`: median
of the reduced one. `p of TARP` has no bar here: no model made these images."""
    return section("Real test images", before, [*titles, "unreliable"], rows, after)


def _methods(studies: Studies) -> str:
    rows, shown = [], []
    for kind in KINDS:
        for corruption in EXPERIMENTS:
            others = [Study(kind, corruption, LOW_RANK, method) for method in METHODS][1:]
            fewest = min((len(studies[name]) for name in others if name in studies), default=0)
            for method in METHODS:
                found = studies.get(Study(kind, corruption, LOW_RANK, method))
                if not found or not fewest:
                    continue
                found = found[:fewest]
                shown += found
                covered = coverage(found, "uncertain")
                uniform = check_uniformity(found)
                rows.append(
                    [
                        f"{kind} `{corruption}`",
                        method,
                        str(len(found)),
                        _percent(covered[0.5]),
                        _percent(covered[0.9]),
                        f"{np.mean([row['crps'] for row in found]):.4f}",
                        f"{np.mean([row['energy'] for row in found]):.3f}",
                        f"{uniform.least:.1e}",
                    ]
                )
    titles = ["data", "method", "problems", "50 %", "90 %", "CRPS", "energy", "least p"]
    before = f"""\
The same problems for Laplace's approximation at our modes and for stochastic variational inference
at its fast settings, model error `{LOW_RANK}`. Measured at {commits(shown)}."""
    after = """\
`least p`: the smallest corrected p-value of all ranks (TARP's alone for real images). SVI is too
sure of itself: its intervals cover too little. Laplace's intervals are wide enough, but not where
they should be: its scores are worse."""
    return section("What over-confidence looks like", before, titles, rows, after)


def _alarms(alarms: dict[str, Rows]) -> str:
    lines = [
        [
            error,
            alarm,
            *(f"{100 * facts[name][0]:.1f} % of {facts[name][2]}" for name in SETS),
            f"{100 * facts['out of model']:.1f} %",
        ]
        for error, rows in alarms.items()
        for alarm, facts in describe_alarms(rows).items()
    ]
    titles = ["model error", "alarm", *SETS, "all but digits"]
    before = f"""\
Half of the image is hidden, noise of 0.2 on the other. How often is the alarm raised? Measured at
{commits(row for rows in alarms.values() for row in rows)}."""
    after = """\
For digits it is a false one (bar: at most 5 %; at least 95 % of the others). `verdict`: it is
"unreliable", because the data do not fit or because the inference has failed; `p-value`: the data
do not fit (the limit was chosen on other digits and garments); `evidence`: ln evidence is below the
5 % quantile of the digits' own, which nobody knows who has only one image."""
    return section("Data that the model does not make", before, titles, lines, after)


def save_figures(studies: Studies, page: Path) -> dict[str, Path]:
    """Ranks of simulated truths, ranks of real pixels, and reliability; those that have rows."""
    figures: dict[str, Path] = {}
    simulated = _by_corruption(studies, "simulated", LOW_RANK)
    if simulated:
        path = page.with_name(f"{page.stem}-simulated.png")
        _save_ranks(simulated, path)
        figures["Ranks of simulated truths"] = path
    real = {
        error: rows for error in _MODEL_ERRORS if (rows := _by_corruption(studies, "real", error))
    }
    if real:
        path = page.with_name(f"{page.stem}-real.png")
        _save_pit(real, path)
        figures["Ranks of real pixels, and class probabilities"] = path
    return figures


def _by_corruption(studies: Studies, kind: str, error: str) -> dict[str, Rows]:
    found = {name: studies.get(Study(kind, name, error), []) for name in EXPERIMENTS}
    return {name: rows for name, rows in found.items() if rows}


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
