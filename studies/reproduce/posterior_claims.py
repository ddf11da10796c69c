"""What the paper claims about its posteriors and prior samples."""

import numpy as np

from latentuq.problem.experiments import EXPERIMENTS
from studies.pages import table
from studies.reproduce.claim import POSSIBLE, Claim, listed, minus, name_digits
from studies.reproduce.run import MASKED, MODELS, Cells

# Error of a digit's probability up to which weights are roughly right.
_ROUGHLY = 0.1
# The p-value of data that do not fit; one minus this, of those that fit too well.
_UNLIKELY = 0.01
# Accuracy of a classifier below which samples are almost perfect.
_PERFECT = 0.55


def check_two_digits(cells: Cells) -> Claim:
    """4s and 9s under the broad mask."""
    shares = {model: cells[f"posterior {model} {MASKED}"]["classes"] for model in MODELS}
    both = [model for model, share in shares.items() if min(share[4], share[9]) >= POSSIBLE]
    answer = "Yes, under both priors."
    if not both:
        answer = "No, under neither prior."
    elif len(both) < len(MODELS):
        (other,) = (model for model in MODELS if model not in both)
        answer = f"Under `{both[0]}` yes, under `{other}` no."
    seen = "; ".join(f"under `{model}` {name_digits(share)}" for model, share in shares.items())
    paper = "; ".join(
        f"a 4 has {share[4]:.3f} and a 9 {share[9]:.3f} under `{model}`"
        for model, share in shares.items()
    )
    return Claim(
        "Are both a 4 and a 9 possible under the broad mask?",
        answer,
        f"A classifier sees in the posterior draws, with mean probability, {seen}. Of the paper's"
        f" two digits {paper} (possible: at least {POSSIBLE:g}).",
    )


def check_weights(cells: Cells) -> Claim:
    """The weights of the Laplace mixture against certified ones, by digit."""
    rows, errors = [], []
    for model in MODELS:
        cell = cells[f"posterior {model} {MASKED}"]
        recipe = cells[f"recipe {model} {MASKED} annealed"]
        theirs = recipe["classes"]
        # Without a minimum there are no weights at all.
        error = float(np.max(np.abs(np.subtract(theirs, cell["classes"])))) if theirs else 1.0
        errors.append(error)
        excess = minus(recipe["log_evidence"], cell["log_evidence"])
        found = name_digits(theirs) if theirs else "no minimum"
        rows.append(
            [f"`{model}`", found, name_digits(cell["classes"]), f"{error:.2f}", _signed(excess)]
        )
    answer = "Roughly." if max(errors) < _ROUGHLY else "No."
    if min(errors) < _ROUGHLY <= max(errors):
        answer = f"Roughly under `{MODELS[int(np.argmin(errors))]}`, not under the other prior."
    titles = ["prior", "digits, Laplace mixture", "digits, certified", "largest error"]
    return Claim(
        "Are the weights of the Laplace mixture the posterior masses?",
        answer,
        "Mean class probabilities of draws of both, and the largest error of any digit's (roughly:"
        f" below {_ROUGHLY:g}). The last column is the sum of the Laplace masses against the"
        f" certified evidence, in nats.\n\n{table([*titles, 'ln evidence, excess'], rows)}",
    )


def check_data(cells: Cells) -> Claim:
    """Are the data reproduced within the errors?"""
    rows, worse, better = [], [], 0
    for corruption in EXPERIMENTS:
        row = [f"`{corruption}`"]
        for model in MODELS:
            cell = cells[f"posterior {model} {corruption}"]
            p = cell["p_value"]
            row += [f"{cell['chi_squared'] / cell['data']:.2f}", f"{p:.3f}"]
            better += p > 1 - _UNLIKELY
            if p < _UNLIKELY:
                worse.append(f"`{corruption}` under `{model}` (p = {p:.2g})")
        rows.append(row)
    cases = "1 case" if better == 1 else f"{better} cases"
    closer = f"; in {cases} more closely than the stated error, too large there" * (better > 0)
    answer = f"Not always: not for {listed(worse)}." if worse else f"Yes{closer}."
    titles = ["problem", *(f"{what}, `{model}`" for model in MODELS for what in ("chi²", "p"))]
    evidence = (
        "Chi-squared per datum at the deepest mode, and the posterior predictive p-value; below"
        f" {_UNLIKELY:g} the data do not fit, above {1 - _UNLIKELY:g} they fit better than the"
        f" stated error allows.\n\n{table(titles, rows)}"
    )
    if better:
        evidence += (
            "\n\nOne scalar sigma is too large for the black border, and an inflated error (the"
            " default prior's) is meant to be."
        )
    return Claim("Do the samples reproduce the data within the errors?", answer, evidence)


def check_flow(cells: Cells) -> Claim:
    """Prior samples before and after the flow."""
    parts, better, perfect = [], [], []
    for model in MODELS:
        cell = cells[f"prior {model}"]
        before, after = cell["image_c2st_before"], cell["image_c2st_after"]
        better.append(after < before)
        perfect.append(after < _PERFECT)
        parts.append(f"{before:.3f} before the flow and {after:.3f} after it for `{model}`")
    answer = "Better: yes." if all(better) else "Better: no."
    answer += " Almost perfect: yes." if all(perfect) else " Almost perfect: no."
    return Claim(
        "Does the flow make better prior samples, almost perfect ones?",
        answer,
        "The accuracy of a classifier that tells decoded test images from prior samples (0.5: it"
        f" cannot; almost perfect: below {_PERFECT:g}) is {listed(parts)}.",
    )


def _signed(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:+.2f}"
