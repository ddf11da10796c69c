"""What the paper claims about EL2O and stochastic variational inference."""

from typing import Any

import numpy as np

from latentuq.markdown import table
from latentuq.reproduce import published
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

# In words, because a bar would end the cell of a table.
_MEASURES = _REVERSE, _FORWARD = "KL(q given p)", "KL(p given q)"

# ELBOs, in nats, this close are one.
_SAME = 0.1
# Standard deviations by which a mean is away from a point.
_AWAY = 0.2
# A run this many nats below a converged fit has not converged.
_BELOW = 10.0


def check_agreement(cells: Cells) -> Claim:
    """EL2O against full-rank SVI, both on draws of their own fit."""
    gaps, same, parts, few = {}, {}, [], []
    for model in MODELS:
        svi, limit = cells[f"svi {model} full-rank"], cells[f"limit {model}"]
        gap = abs(minus(limit["elbo"], svi["elbo"]))
        noise = 3 * float(np.hypot(limit["elbo_error"], svi["elbo_error"]))
        gaps[model], same[model] = gap, gap < max(_SAME, noise)
        q = read_gaussian(svi)
        parts.append(
            f"`{model}`: ELBO {limit['elbo']:.2f} ± {limit['elbo_error']:.2f} against"
            f" {svi['elbo']:.2f} ± {svi['elbo_error']:.2f},"
            f" KL(EL2O | SVI) {gaussian_kl(read_gaussian(limit), q):.2f} nats"
        )
        fits = cells[f"gaussians {model}"]["fits"]
        found = [f"{gaussian_kl(read_gaussian(fits[name]), q):.2f}" for name in (EL2O, HESSIANS)]
        few.append(f"{found[0]} from gradients and {found[1]} from averaged Hessians (`{model}`)")
    agreeing = [model for model in MODELS if same[model]]
    answer = f"Yes, within {max(gaps.values()):.2f} nats of the ELBO."
    if not agreeing:
        answer = f"No: the ELBOs differ by up to {max(gaps.values()):.2f} nats."
    elif len(agreeing) < len(MODELS):
        answer = f"Under `{agreeing[0]}` only, within {gaps[agreeing[0]]:.2f} nats of the ELBO."
    many = cells[f"limit {OURS}"]
    return Claim(
        "Do EL2O and KL minimisation agree when the samples come from q?",
        answer,
        f"In the limit of many samples, says the paper. On `{NOISY}`, EL2O from gradients goes on"
        f" from full-rank SVI's fit with {many['samples']} draws in each of {many['iterations']}"
        f" iterations. {'; '.join(parts)} (the same: ELBOs within {_SAME:g} nats or three standard"
        " errors). With fewer draws, from the mode, as compared below, the KL to SVI's fit is"
        f" {listed(few)}.",
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
    """All Gaussian fits against the certified posterior, by KL in both directions."""
    rows, ratios = [], []
    wins: dict[tuple[str, str], dict[str, bool]] = {
        (family, measure): {} for family in FAMILIES for measure in _MEASURES
    }
    for model in MODELS:
        cell = cells[f"posterior {model} {NOISY}"]
        mean, std, draws = (np.array(cell[name]) for name in ("mean", "std", "draws"))
        search = _search_cost(cells, model)
        fits = cells[f"gaussians {model}"]["fits"] | {
            family: cells[f"svi {model} {family}"] for family in FAMILIES
        }
        losses = {name: minus(cell["log_evidence"], fit["elbo"]) for name, fit in fits.items()}
        scores = {name: read_gaussian(fit).log_prob(draws) for name, fit in fits.items()}
        costs = {
            name: fit["forward_equivalents"] + (0 if name in FAMILIES else search)
            for name, fit in fits.items()
        }
        for family in FAMILIES:
            wins[family, _REVERSE][model] = losses[LAPLACE] < losses[family]
            wins[family, _FORWARD][model] = bool(np.mean(scores[LAPLACE]) > np.mean(scores[family]))
        ratios.append(f"{costs['full-rank'] / costs[EL2O]:.1f} (`{model}`)")
        for name, fit in fits.items():
            q = read_gaussian(fit)
            error = np.hypot(fit["elbo_error"] or np.nan, cell["log_evidence_error"])
            score_error = np.std(scores[name], ddof=1) / np.sqrt(len(draws))
            rows.append(
                [
                    f"`{model}`",
                    TITLES[name],
                    f"{losses[name]:.2f} ± {error:.2f}",
                    f"{np.mean(scores[name]):.1f} ± {score_error:.1f}",
                    f"{distance(q.mean, mean, std):.2f}",
                    f"{np.exp(np.mean(np.log(q.std / std))):.2f}",
                    f"{costs[name] / 1e6:.3f}",
                ]
            )
    answers = []
    for family in FAMILIES:
        reverse, forward = (_where(wins[family, measure]) for measure in _MEASURES)
        words = f"{reverse} by {_REVERSE}, {forward} by {_FORWARD}"
        words = reverse if reverse == forward else words
        answers.append(f"Than {TITLES[family]}: {words}.")
    titles = ["prior", "fit", _REVERSE, "mean ln q of posterior draws", "mean off by"]
    titles += ["width / true width", "Mfe"]
    return Claim(
        "Is the paper's EL2O (a Gaussian at the mode) more accurate than SVI?",
        " ".join(answers),
        f"On `{NOISY}`, against the certified posterior: {_REVERSE} in nats, which is what SVI"
        " minimises; the mean of ln q over posterior draws, which is higher by as"
        f" much as {_FORWARD} is lower; the root mean square gap of the means in posterior standard"
        " deviations; the geometric mean of the widths; the cost in millions of forward evaluations"
        f" (for all but SVI with {published.STARTS} starts of Adam, the search for the mode)."
        f" Full-rank SVI costs {listed(ratios)} times as much as EL2O iterated on gradients."
        f"\n\n{table(titles, rows)}",
    )


def _search_cost(cells: Cells, model: str) -> float:
    """Forward equivalents of the paper's ten starts of Adam."""
    recipe = cells[f"recipe {model} {NOISY} annealed"]
    return recipe["forward_equivalents"] * published.STARTS / recipe["starts"]


def _where(holds: dict[str, bool]) -> str:
    """Under which priors something holds."""
    found = [model for model, value in holds.items() if value]
    if len(found) == len(holds):
        return "yes"
    return f"under {listed(f'`{model}`' for model in found)} only" if found else "no"


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
