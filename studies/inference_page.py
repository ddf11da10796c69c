"""docs/results/inference.md from the measured cells."""

from pathlib import Path
from typing import Any

import numpy as np

from latentuq.core.files import atomic_path
from studies.markdown import table

Cells = dict[str, Any]


def write_page(cells: Cells, path: Path, stamp: str) -> None:
    """Writes every section whose cells exist, and says which were measured with another engine."""
    sections = [
        section
        for make in (_exact, _images, _repeatability, _cost, _hidden, _kernel)
        if (section := make(cells))
    ]
    commits = ", ".join(sorted({cell["commit"] for cell in cells.values()}))
    old = sorted({name.split()[0] for name, cell in cells.items() if cell["stamp"] != stamp})
    if old:
        sections.insert(0, f"**Measured with an earlier version of the engine:** {', '.join(old)}.")
    text = _HEAD.format(commits=commits) + "\n\n" + "\n\n".join(sections) + "\n"
    with atomic_path(path) as aside:
        aside.write_text(text)
    print(f"Wrote {path}")


_HEAD = """# Inference: is it right, repeatable, honest, cheap?

Written by `python benchmarks/inference.py` from [inference.json](inference.json) (commits
{commits}). References: [references.md](references.md)."""


def _named(cells: Cells, prefix: str) -> dict[str, Any]:
    return {name[len(prefix) + 1 :]: c for name, c in cells.items() if name.startswith(prefix)}


def _exact(cells: Cells) -> str:
    rows = [
        [
            name,
            f"{cell['evidence_gap']:+.3f} ± {cell['evidence_error']:.3f}",
            _number(cell, "mass_gap"),
            _number(cell, "total_variation"),
            _number(cell, "fit_mean_gap"),
            _number(cell, "fit_covariance_gap"),
            f"{cell['khat']:.2f}",
            cell["verdict"].split(":")[0],
        ]
        for name, cell in _named(cells, "exact").items()
    ]
    if not rows:
        return ""
    titles = ["density", "ln evidence - exact", "mass", "total variation", "mean", "covariance"]
    return f"""## Exact cases

`solve_density` on densities whose integral is known (`benchmarks/exact_densities.py`).

{table([*titles, "k-hat", "verdict"], rows)}

`mass`: largest error of a component's mass, measured on draws by the known responsibilities (bar
0.02; evidence within 0.05). `total variation`: between weighted draws and exact masses of 32 x 32
cells (bar 0.05). `mean`, `covariance`: largest error of the EL2O Gaussian, in units of the exact
one. The needle is a Gaussian of width 0.2 that holds 70 % of the mass where hardly a start falls:
what no search has seen, no verdict can see, and it is kept here to show that."""


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
                f"{cell['weight_gap']:.3f}",
                f"{cell['two_sample_accuracy']:.3f}",
                f"{cell['khat']:.2f}",
                f"{cell['ess']:.0f}",
                str(cell["refinements"]),
                f"{cell['missed_mass']:.3f}",
                cell["verdict"].split(":")[0] + (" (outside)" if wrong else ""),
            ]
        )
    if not rows:
        return ""
    accuracies = [cell["two_sample_accuracy"] for cell in cases.values()]
    reasons = [
        f"\n- {name.rsplit(' seed', 1)[0]}: {cell['verdict'].split(';')[0]}"
        for name, cell in cases.items()
        if cell["verdict"].startswith("unreliable")
    ]
    silent = sum(
        not within(cell) and not cell["verdict"].startswith("unreliable") for cell in cases.values()
    )
    titles = ["problem", "reference", "ours - reference", "bridge - reference", "weights"]
    titles += ["two-sample", "k-hat", "ESS", "refinements", "missed", "verdict"]
    return f"""## Sixteen image posteriors against the references

Seed 0, prior `mnist`, default budget.

{table(titles, rows)}

Limits: evidence within 0.2 nats plus the reference's error, weights within 0.05, two-sample
accuracy at most 0.57. {outside} of {len(rows)} are outside, {silent} of them without the verdict
"unreliable". Median two-sample accuracy {np.median(accuracies):.3f} (bar 0.54), largest
{max(accuracies):.3f}. {len(reasons)} of {len(rows)} are "unreliable":
{"".join(reasons)}

`bridge` is Meng and Wong's bridge sampling between our draws and the reference's: it uses the
reference's draws but not its evidence. `weights`: largest difference between our weights and the
shares of the reference's draws, divided into modes as ours are. `missed`: mass in modes that at
most one start found."""


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
                str(sum(cell["verdict"].startswith("unreliable") for cell in runs)),
                str(sum(not within(cell) for cell in runs)),
                f"{np.median([cell['forward_equivalents'] for cell in runs]) / 1000:.0f}",
            ]
        )
    if not rows:
        return ""
    titles = ["problem", "seeds", "sd of ln evidence", "sd of weights", "unreliable", "outside"]
    return f"""## The same answer from every seed

{table([*titles, "thousand forward equivalents"], rows)}

Bars: standard deviation of ln evidence at most 0.1, of the two largest weights at most 0.03.
`outside` counts seeds outside any of the limits above."""


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
    if not rows:
        return ""
    titles = ["problem", "default s", "preview s", "SMC s", "default Mfe", "preview Mfe", "SMC Mfe"]
    titles += ["SMC / default s", "SMC / default fe", "default / preview s", "our error of ln Z"]
    titles += ["SMC's sd", "at equal error: s", "at equal error: fe"]
    return f"""## Cost

Medians of three solves without compilation, and one call of SMC from the prior (1024 particles,
its own plan included), one after the other in one process.

{table(titles, rows)}

Mfe: million forward equivalents. Our error of ln evidence is the root of the mean square difference
from the reference over the seeds above, less the reference's own error, and at least their standard
deviation; SMC's is the standard deviation of the runs of [references.md](references.md). At equal
error SMC needs n = (its sd / our error)^2 runs, at least one; they may share a plan, as dear as a
run, so that its cost is (1 + n) / 2 calls."""


def _error(runs: list[dict[str, Any]]) -> float:
    """Root mean square error of ln evidence over seeds, bias included."""
    gaps = np.array([run["log_evidence"] - run["reference"] for run in runs])
    square = np.mean(gaps**2) - runs[0]["reference_error"] ** 2
    return float(np.sqrt(max(square, np.var(gaps, ddof=1))))


def _hidden(cells: Cells) -> str:
    tried = {n: c for n, c in _named(cells, "hidden").items() if c["hidden"] is not None}
    if not tried:
        return ""
    rows = [
        [
            name,
            f"{cell['hidden']:.3f}",
            "yes" if cell["found_again"] else "no",
            f"{cell['evidence_change']:+.2f}",
            cell["verdict"].split(":")[0],
        ]
        for name, cell in tried.items()
    ]
    caught = sum(
        cell["found_again"] or cell["verdict"].startswith("unreliable") for cell in tried.values()
    )
    return f"""## A mode hidden on purpose

The second-heaviest mode (where it holds at least 1 %) and all starts that found it are taken out
of the search's result; the rest of the inference goes on as usual.

{table(["problem", "its weight", "found again", "change of ln evidence", "verdict"], rows)}

Caught (found again, or "unreliable"): {caught} of {len(rows)}."""


def _kernel(cells: Cells) -> str:
    if "kernel" not in cells:
        return ""
    cell = cells["kernel"]
    share = cell["gflops"] / cell["matmul_gflops"]
    return f"""## The search kernel

{cell["evaluations"]} Gauss-Newton models at {cell["gflops"]:.0f} GFLOP/s, {share:.0%} of this
machine's float32 matrix products ({cell["matmul_gflops"]:.0f} GFLOP/s on all its cores; aim 60%).
One program of descents is meant, which hardly uses a second core; two run at the same time."""


def _number(cell: dict[str, Any], name: str) -> str:
    return f"{cell[name]:.4f}" if name in cell else ""
