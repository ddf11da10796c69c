"""What the paper claims about EL2O and stochastic variational inference."""

from typing import Any

import numpy as np

from latentuq.markdown import table
from latentuq.reproduce.claim import Claim, listed, minus
from latentuq.reproduce.gaussians import (
    EL2O,
    HESSIANS,
    LAPLACE,
    distance,
    gaussian_kl,
    read_gaussian,
)
from latentuq.reproduce.run import FAMILIES, MODELS, NOISY, OURS, RATES, SAMPLES, Cells
from latentuq.reproduce.variational import DIAGONALS

TITLES = {
    LAPLACE: "Laplace (the paper's EL2O)",
    EL2O: "EL2O, gradients",
    HESSIANS: "EL2O, averaged Hessians",
    "mean-field": "mean-field SVI",
    "full-rank": "full-rank SVI",
}
"""Of all Gaussian fits, for tables and figures."""

# Divergence, in nats, below which two Gaussians are one.
_SAME = 0.1
# Standard deviations by which a mean is away from a point.
_AWAY = 0.2


def check_agreement(cells: Cells) -> Claim:
    """EL2O against full-rank SVI, both on draws of their own fit."""
    parts, same, notes = [], {}, []
    for model in MODELS:
        svi = read_gaussian(cells[f"svi {model} full-rank"])
        fits = cells[f"gaussians {model}"]["fits"]
        gaps = {name: gaussian_kl(read_gaussian(fits[name]), svi) for name in fits}
        same[model] = gaps[EL2O] < _SAME
        parts.append(f"`{model}` {gaps[EL2O]:.3f}")
        notes.append(f"{gaps[HESSIANS]:.3f} for `{model}`")
    answer = "Yes." if all(same.values()) else "No."
    if any(same.values()) and not all(same.values()):
        answer = f"Under `{next(model for model in MODELS if same[model])}` only."
    return Claim(
        "Do EL2O and KL minimisation agree when the samples come from q?",
        answer,
        f"KL(EL2O | full-rank SVI) on `{NOISY}`, in nats: {listed(parts)} (the same below"
        f" {_SAME:g}), with EL2O from gradients. With averaged Hessians, the paper's update, it is"
        f" {listed(notes)}; the two updates have the same fixed points only where the Hessian sees"
        " all of the curvature, which between the kinks of a LeakyReLU it does not.",
    )


def check_noise(cells: Cells) -> Claim:
    """A Gaussian target leaves EL2O nothing to average."""
    cell = cells["noise"]
    quiet = cell["el2o"] < 1e-3 * cell["plain"] and cell["el2o_kl"] < 1e-3
    return Claim(
        "Is EL2O free of sampling noise for a Gaussian target?",
        "Yes." if quiet else "No.",
        f"At the exact fit of a linear problem, {cell['samples']} draws move the mean by"
        f" {cell['plain']:.2g} posterior standard deviations in stochastic KL minimisation and by"
        f" {cell['el2o']:.1g} in EL2O; one EL2O update from a wrong Gaussian ends at a KL of at"
        f" most {cell['el2o_kl']:.1g} nats in {cell['repeats']} trials. SVI with the plain gradient"
        f" ends at {cell['svi_kl']:.1g}; with the path gradient, which has EL2O's term, at"
        f" {cell['path_kl']:.1g}: "
        + (
            "the noise is a property of the gradient, not of minimising KL."
            if cell["path_kl"] < 0.1 * cell["svi_kl"]
            else "here the path gradient does not help."
        ),
    )


def check_accuracy(cells: Cells) -> Claim:
    """All Gaussian fits against the certified posterior."""
    rows, better, cheaper = [], [], []
    for model in MODELS:
        cell = cells[f"posterior {model} {NOISY}"]
        mean, std = np.array(cell["mean"]), np.array(cell["std"])
        fits = cells[f"gaussians {model}"]["fits"] | {
            family: cells[f"svi {model} {family}"] for family in FAMILIES
        }
        losses = {name: minus(cell["log_evidence"], fit["elbo"]) for name, fit in fits.items()}
        better.append(losses[LAPLACE] < losses["full-rank"])
        ratio = fits["full-rank"]["forward_equivalents"] / fits[EL2O]["forward_equivalents"]
        cheaper.append(f"{ratio:.0f} (`{model}`)")
        for name, fit in fits.items():
            q = read_gaussian(fit)
            rows.append(
                [
                    f"`{model}`",
                    TITLES[name],
                    f"{losses[name]:.2f} ± {fit['elbo_error'] or np.nan:.2f}",
                    f"{distance(q.mean, mean, std):.2f}",
                    f"{np.exp(np.mean(np.log(q.std / std))):.2f}",
                    f"{fit['forward_equivalents'] / 1e6:.3f}",
                ]
            )
    answer = "Yes." if all(better) else "No." if not any(better) else "Under one prior of two."
    titles = ["prior", "fit", "KL(q given p)", "mean off by", "width / true width", "Mfe"]
    return Claim(
        "Is the paper's EL2O (a Gaussian at the mode) more accurate than SVI?",
        answer,
        f"On `{NOISY}`, against the certified posterior: KL in nats, the root mean square gap of"
        " the means in posterior standard deviations, the geometric mean of the widths, the cost in"
        " millions of forward evaluations (without the search for the mode, and without the"
        " encoder). EL2O iterated on gradients costs less than full-rank SVI by a factor of"
        f" {listed(cheaper)}.\n\n{table(titles, rows)}",
    )


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
                f"{np.mean([run['seconds'] for run in found]):.0f}",
            ]
        )
    gain, late = losses[0] - losses[-1], losses[2] - losses[-1]
    noise = 3 * float(np.hypot(errors[0], errors[-1]))
    clear, flat = gain > noise, abs(late) < 3 * float(np.hypot(errors[2], errors[-1]))
    sizes = list(runs)
    answer = "No."
    if clear:
        answer = f"Up to {sizes[2]} draws, not beyond." if flat else "Yes."
    return Claim(
        "Does SVI improve with more samples per step?",
        answer,
        f"Full-rank SVI on `{NOISY}` under `{OURS}`, {published_run['steps']} steps each. From"
        f" {sizes[0]} to {sizes[-1]} draws KL(q | p) falls by {gain:.3f} nats, from {sizes[2]} to"
        f" {sizes[-1]} by {late:.3f} (three standard errors: {noise:.3f})."
        f"\n\n{table(['draws', 'runs', 'KL', 'range', 'mean off by', 'seconds'], rows)}",
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
    answer = "No."
    if at_paper or not all(whole):
        answer = "Yes."
    elif elsewhere:
        answer = f"Not at the paper's learning rate of {RATES[0]:g}; at higher ones it can be."
    steps, samples = (
        cells[f"stability softplus {RATES[0]:g}"][name] for name in ("steps", "samples")
    )
    titles = ["diagonal", "learning rate", "not finite", "fell by 10 nats", "mean ELBO at the end"]
    return Claim(
        "Is full-rank SVI numerically unstable?",
        answer,
        f"On `{NOISY}` under `{OURS}`, without the paper's offset on the diagonal, {samples} draws,"
        f" {steps} steps, its plain gradient. The full-rank fits of the comparison above stayed"
        f" finite at every step under {sum(whole)} of {len(whole)} priors."
        f"\n\n{table(titles, rows)}",
    )


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
