"""What the paper claims about stochastic variational inference itself."""

from typing import Any

import numpy as np

from studies.pages import table
from studies.reproduce.claim import Claim, listed, minus
from studies.reproduce.fit_claims import TITLES
from studies.reproduce.gaussians import distance, read_gaussian
from studies.reproduce.run import FAMILIES, MODELS, NOISY, OURS, RATES, SAMPLES, Cells
from studies.reproduce.variational import DIAGONALS

# Standard deviations by which a mean is away from a point.
_AWAY = 0.2
# A run this many nats below a converged fit has not converged.
_BELOW = 10.0


def check_samples(cells: Cells) -> Claim:
    """The ELBO of full-rank SVI against the draws per step."""
    cell = cells[f"posterior {OURS} {NOISY}"]
    mean, std = np.array(cell["mean"]), np.array(cell["std"])
    runs: dict[int, list[dict[str, Any]]] = {
        samples: cells[f"samples {samples}"]["runs"] for samples in SAMPLES
    }
    published_run = cells[f"svi {OURS} full-rank"]
    runs[published_run["samples"]] = [published_run]
    rows, losses, errors = [], [], []
    for samples, found in runs.items():
        gaps = [minus(cell["log_evidence"], run["elbo"]) for run in found]
        losses.append(float(np.mean(gaps)))
        errors.append(float(np.max([run["elbo_error"] or np.nan for run in found])))
        away = [distance(read_gaussian(run).mean, mean, std) for run in found]
        rows.append(
            [
                str(samples),
                str(len(found)),
                f"{np.mean(gaps):.3f}",
                f"{min(gaps):.3f} to {max(gaps):.3f}" if len(found) > 1 else "",
                f"{np.mean(away):.2f}",
                f"{np.mean([run['forward_equivalents'] for run in found]) / 1e6:.2f}",
            ]
        )
    gain, late = losses[0] - losses[-1], losses[2] - losses[-1]
    bars = [3 * float(np.hypot(errors[place], errors[-1])) for place in (0, 2)]
    sizes = list(runs)
    answer = "No."
    if gain > bars[0]:
        answer = f"Up to {sizes[2]} draws, not beyond." if abs(late) < bars[1] else "Yes."
    single = [str(samples) for samples, found in runs.items() if len(found) == 1]
    once = ""
    if single:
        once = f" With {listed(single)} draws there is one run{' each' * (len(single) > 1)}, and"
        once += " the errors, those of the ELBO's estimate, know nothing of the scatter of runs."
    titles = ["draws", "runs", "KL", "range", "mean off by", "Mfe"]
    return Claim(
        "Does SVI improve with more samples per step?",
        answer,
        f"Full-rank SVI on `{NOISY}` under `{OURS}`, {published_run['steps']} steps each. From"
        f" {sizes[0]} to {sizes[-1]} draws KL(q | p) falls by {gain:.3f} nats (three standard"
        f" errors: {bars[0]:.3f}), from {sizes[2]} to {sizes[-1]} by {late:.3f} ({bars[1]:.3f})."
        f"{once}\n\n{table(titles, rows)}",
    )


def check_stability(cells: Cells) -> Claim:
    """Full-rank SVI without an offset on the diagonal, at rising learning rates."""
    rows = []
    broken = {}
    for diagonal in DIAGONALS:
        for rate in RATES:
            cell = cells[f"stability {diagonal} {rate:g}"]
            bad = cell["broken"] + cell["fallen"]
            broken[diagonal, rate] = bad
            ends = [elbo for elbo in cell["elbos"] if elbo is not None]
            rows.append(
                [
                    diagonal,
                    f"{rate:g}",
                    f"{cell['broken']} of {cell['runs']}",
                    f"{cell['fallen']} of {cell['runs']}",
                    f"{np.mean(ends):.1f}" if ends else "-",
                ]
            )
    at_paper = sum(broken[diagonal, RATES[0]] for diagonal in DIAGONALS)
    elsewhere = sum(broken.values()) - at_paper
    whole = [cells[f"svi {model} full-rank"]["finite"] for model in MODELS]
    steps, samples = (
        cells[f"stability softplus {RATES[0]:g}"][name] for name in ("steps", "samples")
    )
    answer = f"Not seen in {steps} steps under `{OURS}`."
    if at_paper or not all(whole):
        answer = "Yes."
    elif elsewhere:
        answer = f"Not at the paper's learning rate of {RATES[0]:g}; at higher ones it can be."
    short = [f"{rate:g} by {below:.0f} nats" for rate in RATES if (below := _below(cells, rate))]
    slow = ""
    if short:
        slow = " Not all runs had converged, so that more steps might show more: they ended below"
        slow += f" the full-rank fit of the comparison above at a rate of {listed(short)}."
    titles = ["diagonal", "learning rate", "not finite", "fell by 10 nats", "mean ELBO at the end"]
    return Claim(
        "Is full-rank SVI numerically unstable?",
        answer,
        f"On `{NOISY}` under `{OURS}`, without the paper's offset on the diagonal, {samples} draws,"
        f" {steps} steps, its plain gradient.{slow} The full-rank fits of the comparison above,"
        f" with the path gradient, stayed finite at every step under {sum(whole)} of {len(whole)}"
        f" priors.\n\n{table(titles, rows)}",
    )


def _below(cells: Cells, rate: float) -> float:
    """How far runs at a rate ended below a converged fit, in nats; zero if they had converged."""
    runs = [cells[f"stability {diagonal} {rate:g}"]["elbos"] for diagonal in DIAGONALS]
    ends = [elbo for elbos in runs for elbo in elbos if elbo is not None]
    below = cells[f"svi {OURS} full-rank"]["elbo"] - np.mean(ends) if ends else 0.0
    return below if below > _BELOW else 0.0


def check_means(cells: Cells) -> Claim:
    """Where SVI's means are, and whether they belong there."""
    rows, away, fault, nearer = [], [], [], []
    for model in MODELS:
        cell = cells[f"posterior {model} {NOISY}"]
        mode, mean, std = (np.array(cell[name]) for name in ("map", "mean", "std"))
        rows.append(
            [
                f"`{model}`",
                "deepest mode",
                "0.00",
                f"{distance(mode, mean, std):.2f}",
                f"{cell['rms']:.3f}",
            ]
        )
        for family in FAMILIES:
            fit = cells[f"svi {model} {family}"]
            centre = np.array(fit["mean"])
            away.append(distance(centre, mode, std) > _AWAY)
            fault.append(distance(centre, mean, std) > distance(mode, mean, std))
            nearer.append(cell["rms"] < fit["rms"])
            rows.append(
                [
                    f"`{model}`",
                    TITLES[family],
                    f"{distance(centre, mode, std):.2f}",
                    f"{distance(centre, mean, std):.2f}",
                    f"{fit['rms']:.3f}",
                ]
            )
    number = len(away)
    answer = "Away: " + ("yes." if all(away) else f"in {sum(away)} of {number} fits.")
    answer += " A fault: " + ("no." if not any(fault) else f"in {sum(fault)} of {number} fits.")
    titles = ["prior", "point", "from the mode", "from the posterior mean", "rms error of image"]
    return Claim(
        "Are SVI's means away from the mode, and is that a fault?",
        answer,
        "A Gaussian's mean should be the posterior's mean, which for a skewed posterior is not its"
        " mode. Distances in posterior standard deviations, root mean square over the dimensions."
        f" SVI's mean is nearer to the posterior mean than the mode is in {number - sum(fault)} of"
        f" {number} fits; the mode's image is nearer to the truth than the image at SVI's mean in"
        f" {sum(nearer)} of {number}.\n\n{table(titles, rows)}",
    )
