"""What the paper claims about EL2O beside stochastic variational inference."""

import numpy as np

from studies.pages import table
from studies.reproduce import published
from studies.reproduce.claim import Claim, listed, minus
from studies.reproduce.gaussians import (
    EL2O,
    HESSIANS,
    LAPLACE,
    distance,
    gaussian_kl,
    read_gaussian,
)
from studies.reproduce.recipe import cost_of_ten
from studies.reproduce.run import FAMILIES, MODELS, NOISY, OURS, Cells

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
        search = cost_of_ten(cells[f"recipe {model} {NOISY} annealed"])
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


def _where(holds: dict[str, bool]) -> str:
    """Under which priors something holds."""
    found = [model for model, value in holds.items() if value]
    if len(found) == len(holds):
        return "yes"
    return f"under {listed(f'`{model}`' for model in found)} only" if found else "no"
