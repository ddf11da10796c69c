"""What the paper claims about its posteriors and prior samples."""

import numpy as np

from latentuq.experiments import EXPERIMENTS
from latentuq.markdown import table
from latentuq.reproduce.claim import Claim, listed, minus
from latentuq.reproduce.run import MASKED, MODELS, OURS, THEIRS, Cells

# Probability from which a digit counts as possible.
_SECOND_DIGIT = 0.05
# Accuracy of a classifier below which samples are almost perfect.
_PERFECT = 0.55


def check_two_digits(cells: Cells) -> Claim:
    """4s and 9s under the broad mask."""
    shares = {model: cells[f"posterior {model} {MASKED}"]["classes"] for model in MODELS}
    both = {model: min(share[4], share[9]) >= _SECOND_DIGIT for model, share in shares.items()}
    answer = "Yes, under both priors."
    if both[THEIRS] and not both[OURS]:
        answer = f"Under the paper's prior yes, under `{OURS}` no."
    elif both[OURS] and not both[THEIRS]:
        answer = f"Under `{OURS}` yes, under the paper's prior no."
    elif not any(both.values()):
        answer = "No, under neither prior."
    found = "; ".join(
        f"`{model}`: a 4 with probability {share[4]:.3f}, a 9 with {share[9]:.3f}, any other digit"
        f" with {max(0.0, 1 - share[4] - share[9]):.3f}"
        for model, share in shares.items()
    )
    evidence = f"{found} (a classifier's reading of posterior draws)."
    if both[THEIRS] and not both[OURS]:
        evidence += (
            f" The data are the same: the second digit comes with the paper's generator. Figures 1"
            f" and 3 show its 9s, and that `{OURS}` has none."
        )
    return Claim("Is the masked 4 either a 4 or a 9?", answer, evidence)


def check_weights(cells: Cells) -> Claim:
    """The weights of the Laplace mixture against certified ones, by digit."""
    rows, worst = [], 0.0
    for model in MODELS:
        cell = cells[f"posterior {model} {MASKED}"]
        recipe = cells[f"recipe {model} {MASKED} annealed"]
        digits = recipe.get("digits", [])
        theirs = np.mean(np.equal(digits, 9)) if digits else float("nan")
        ours = np.mean(np.equal(cell["digits"], 9))
        worst = max(worst, abs(theirs - ours)) if digits else 1.0
        excess = minus(recipe["log_evidence"], cell["log_evidence"])
        rows.append([f"`{model}`", f"{theirs:.3f}", f"{ours:.3f}", _signed(excess)])
    answer = "Roughly." if worst < 0.1 else "No."
    titles = ["prior", "P(9), Laplace mixture", "P(9), certified", "ln evidence, excess"]
    return Claim(
        "Are the weights of the Laplace mixture the posterior masses?",
        answer,
        f"The largest error of the probability of a 9 is {worst:.3f}. The last column is the sum of"
        f" the Laplace masses against the certified evidence, in nats.\n\n{table(titles, rows)}",
    )


def check_data(cells: Cells) -> Claim:
    """Are the data reproduced within the errors?"""
    rows, odd = [], []
    for corruption in EXPERIMENTS:
        row = [f"`{corruption}`"]
        for model in MODELS:
            cell = cells[f"posterior {model} {corruption}"]
            row += [f"{cell['chi_squared'] / cell['data']:.2f}", f"{cell['p_value']:.3f}"]
            if not 0.01 <= cell["p_value"] <= 0.99:
                odd.append(f"`{corruption}` under `{model}` (p = {cell['p_value']:.3g})")
        rows.append(row)
    answer = "Yes." if not odd else f"Not always: not for {listed(odd)}."
    titles = ["problem", *(f"{what}, `{model}`" for model in MODELS for what in ("chi²", "p"))]
    evidence = (
        "Chi-squared per datum at the deepest mode, and the posterior predictive p-value (bounds:"
        f" 0.01 and 0.99).\n\n{table(titles, rows)}"
    )
    if odd:
        evidence += (
            "\n\nA p-value near 1 means that the data fit better than the stated error allows: one"
            " scalar sigma is too large for the black border, and an inflated error (the default"
            " prior's) is meant to be. Near 0 they do not fit."
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
