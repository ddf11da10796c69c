"""The sections of docs/results/inference.md, from the measured cells."""

from typing import Any

import numpy as np

from latentuq.calibration.summary import is_unreliable, verdict_word
from latentuq.core.cells import Cells, commits
from studies.pages import numbers, section


def make_sections(cells: Cells) -> list[str]:
    """Every section of the page."""
    makers = (_exact, _images, _repeatability, _cost, _hidden, _kernel)
    introduction = """\
References: [references.md](references.md). Sections name the commits that measured them; what was
changed in the engine since then is not in their numbers."""
    return [introduction, *(make(cells) for make in makers)]


def _named(cells: Cells, prefix: str) -> dict[str, Any]:
    return {name[len(prefix) + 1 :]: c for name, c in cells.items() if name.startswith(prefix)}


def _exact(cells: Cells) -> str:
    gaps = ("mass_gap", "total_variation", "fit_mean_gap", "fit_covariance_gap")
    rows = [
        [
            name,
            f"{cell['evidence_gap']:+.3f} ± {cell['evidence_error']:.3f}",
            *numbers(cell, **dict.fromkeys(gaps, ".4f")),
            _khat(cell),
            verdict_word(cell),
        ]
        for name, cell in _named(cells, "exact").items()
    ]
    titles = ["density", "ln evidence - exact", "mass", "total variation", "mean", "covariance"]
    before = f"""\
`solve_density` on densities whose integral is known (`studies/exact_densities.py`). Measured at
{commits(_named(cells, "exact").values())}."""
    after = """\
`mass`: largest error of a component's mass, measured on draws by the known responsibilities (bar
0.02; evidence within 0.05). `total variation`: between weighted draws and exact masses of 32 x 32
cells (bar 0.05). `mean`, `covariance`: largest error of the EL2O Gaussian, in units of the exact
one. The needle is a Gaussian of width 0.2 that holds 70 % of the mass where hardly a start falls:
what no search has seen, no verdict can see, and it is kept here to show that."""
    return section("Exact cases", before, [*titles, "k-hat", "verdict"], rows, after)


def _images(cells: Cells) -> str:
    cases = {n: c for n, c in _named(cells, "images").items() if n.endswith("seed 0")}
    rows, outside = [], 0
    for name, cell in cases.items():
        corruption, image = name.split()[:2]
        gap = cell["log_evidence"] - cell["reference"]
        wrong = not within(cell)
        outside += wrong
        rows.append(
            [
                f"`{corruption}` {image}",
                f"{cell['reference']:.2f} ± {cell['reference_error']:.2f}",
                f"{gap:+.2f} ± {cell['log_evidence_error']:.2f}",
                f"{cell['bridge'] - cell['reference']:+.2f}",
                *numbers(cell, weight_gap=".3f", two_sample_accuracy=".3f"),
                _khat(cell),
                *numbers(cell, ess=".0f", refinements="d", missed_mass=".3f"),
                verdict_word(cell) + (" (outside)" if wrong else ""),
            ]
        )
    accuracies = [cell["two_sample_accuracy"] for cell in cases.values()]
    reasons = [
        f"\n- {name.rsplit(' seed', 1)[0]}: {cell['verdict'].split(';')[0]}"
        for name, cell in cases.items()
        if is_unreliable(cell)
    ]
    silent = sum(not within(cell) and not is_unreliable(cell) for cell in cases.values())
    titles = ["problem", "reference", "ours - reference", "bridge - reference", "weights"]
    titles += ["two-sample", "k-hat", "ESS", "refinements", "missed", "verdict"]
    before = f"""\
Seed 0, prior `mnist`, default budget. Measured at {commits(cases.values())}."""
    after = f"""\
Limits: evidence within 0.2 nats plus the reference's error, weights within 0.05, two-sample
accuracy at most 0.57. {outside} of {len(rows)} are outside, {silent} of them without the verdict
"unreliable". Median two-sample accuracy {np.median(accuracies):.3f} (bar 0.54), largest
{max(accuracies):.3f}. {len(reasons)} of {len(rows)} are "unreliable":
{"".join(reasons)}

`bridge` is Meng and Wong's bridge sampling between our draws and the reference's: it uses the
reference's draws but not its evidence. `weights`: largest difference between our weights and the
shares of the reference's draws, divided into modes as ours are. `missed`: mass in modes that at
most one start found."""
    title = "Sixteen image posteriors against the references"
    return section(title, before, titles, rows, after)


def within(cell: dict[str, Any]) -> bool:
    """Whether a result is inside all three limits."""
    gap = abs(cell["log_evidence"] - cell["reference"])
    return (
        gap <= 0.2 + cell["reference_error"]
        and cell["weight_gap"] <= 0.05
        and cell["two_sample_accuracy"] <= 0.57
    )


def _repeatability(cells: Cells) -> str:
    images = _named(cells, "images")
    problems = dict.fromkeys(name.rsplit(" seed", 1)[0] for name in images)
    rows = []
    for problem in problems:
        runs = [cell for name, cell in images.items() if name.startswith(problem + " seed")]
        if len(runs) < 2:
            continue
        weights = np.array([(cell["weights"] + [0.0, 0.0])[:2] for cell in runs])
        rows.append(
            [
                problem,
                str(len(runs)),
                f"{np.std([cell['log_evidence'] for cell in runs], ddof=1):.3f}",
                f"{np.std(weights, axis=0, ddof=1).max():.3f}",
                str(sum(map(is_unreliable, runs))),
                str(sum(not within(cell) for cell in runs)),
                f"{np.median([cell['forward_equivalents'] for cell in runs]) / 1000:.0f}",
            ]
        )
    titles = ["problem", "seeds", "sd of ln evidence", "sd of weights", "unreliable", "outside"]
    titles.append("thousand forward equivalents")
    after = """\
Bars: standard deviation of ln evidence at most 0.1, of the two largest weights at most 0.03.
`outside` counts seeds outside any of the limits above."""
    return section("The same answer from every seed", "", titles, rows, after)


def _cost(cells: Cells) -> str:
    rows = []
    images = _named(cells, "images")
    for problem, cell in _named(cells, "cost").items():
        default, preview, smc = cell["default"], cell["preview"], cell["smc"]
        runs = [c for n, c in images.items() if n.startswith(problem + " seed")]
        error = _error(runs) if len(runs) > 1 else np.nan
        # Half of a call of SMC is its plan, which its repetitions may share.
        repeats = max(1, (smc["sd"] / error) ** 2)
        equal = 0.5 * (1 + repeats)
        rows.append(
            [
                problem,
                *(f"{part['seconds']:.1f}" for part in (default, preview, smc)),
                *(f"{part['forward_equivalents'] / 1e6:.2f}" for part in (default, preview, smc)),
                f"{smc['seconds'] / default['seconds']:.0f}",
                f"{smc['forward_equivalents'] / default['forward_equivalents']:.1f}",
                f"{default['seconds'] / preview['seconds']:.1f}",
                f"{error:.3f}",
                f"{smc['sd']:.2f}",
                f"{equal * smc['seconds'] / default['seconds']:.0f}",
                f"{equal * smc['forward_equivalents'] / default['forward_equivalents']:.0f}",
            ]
        )
    titles = ["problem", "default s", "preview s", "SMC s", "default Mfe", "preview Mfe", "SMC Mfe"]
    titles += ["SMC / default s", "SMC / default fe", "default / preview s", "our error of ln Z"]
    titles += ["SMC's sd", "at equal error: s", "at equal error: fe"]
    before = f"""\
Medians of three solves without compilation, and one call of SMC from the prior (1024 particles,
its own plan included), one after the other in one process. Measured at
{commits(_named(cells, "cost").values())}."""
    after = """\
Mfe: million forward equivalents. Our error of ln evidence is the root of the mean square difference
from the reference over the seeds above, less the reference's own error, and at least their standard
deviation; SMC's is the standard deviation of the runs of [references.md](references.md). At equal
error SMC needs n = (its sd / our error)^2 runs, at least one; they may share a plan, as dear as a
run, so that its cost is (1 + n) / 2 calls."""
    return section("Cost", before, titles, rows, after)


def _error(runs: list[dict[str, Any]]) -> float:
    """Root mean square error of ln evidence over seeds, bias included."""
    gaps = np.array([run["log_evidence"] - run["reference"] for run in runs])
    square = np.mean(gaps**2) - runs[0]["reference_error"] ** 2
    return float(np.sqrt(max(square, np.var(gaps, ddof=1))))


def _hidden(cells: Cells) -> str:
    tried = {n: c for n, c in _named(cells, "hidden").items() if c["hidden"] is not None}
    rows = [
        [
            name,
            f"{cell['hidden']:.3f}",
            "yes" if cell["found_again"] else "no",
            f"{cell['evidence_change']:+.2f}",
            verdict_word(cell),
        ]
        for name, cell in tried.items()
    ]
    caught = sum(cell["found_again"] or is_unreliable(cell) for cell in tried.values())
    titles = ["problem", "its weight", "found again", "change of ln evidence", "verdict"]
    before = f"""\
The second-heaviest mode (where it holds at least 1 %) and all starts that found it are taken out
of the search's result; the rest of the inference goes on as usual. Measured at
{commits(tried.values())}."""
    after = f'Caught (found again, or "unreliable"): {caught} of {len(rows)}.'
    return section("A mode hidden on purpose", before, titles, rows, after)


def _kernel(cells: Cells) -> str:
    cell = cells["kernel"]
    share = cell["gflops"] / cell["matmul_gflops"]
    return f"""## The search kernel

{cell["evaluations"]} Gauss-Newton models at {cell["gflops"]:.0f} GFLOP/s, {share:.0%} of this
machine's float32 matrix products ({cell["matmul_gflops"]:.0f} GFLOP/s on all its cores; aim 60%).
One program of descents is meant, which hardly uses a second core; two run at the same time."""


def _khat(cell: dict[str, Any]) -> str:
    """JSON knows no infinities: the k-hat of weights without a tail is null there."""
    return "-inf" if cell["khat"] is None else f"{cell['khat']:.2f}"
