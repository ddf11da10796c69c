"""What the paper claims about its posteriors, its prior samples and its search for minima.

Each check returns its answer in a few words (`short`) and what the page says in support of it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest

from latentuq.core.cells import Cells
from latentuq.problem.experiments import EXPERIMENTS
from studies.pages import rows
from studies.reproduce import published
from studies.reproduce.plan import MASKED, MODELS, OURS, RELEVANT, SEARCHED, VARIANTS, by_model
from studies.reproduce.recipe import are_minima, chance_of_all
from studies.reproduce.words import POSSIBLE, listed, minus, name_digits, name_starts, under

# The error of a digit's probability up to which weights are roughly right.
ROUGHLY = 0.1
# Data with a lower p-value do not fit, those with a higher one fit too well.
UNLIKELY, LIKELY = 0.01, 0.99
# The accuracy of a classifier below which samples are almost perfect.
PERFECT = 0.55
# An end this many nats above the deepest one has less than a hundredth of its density.
POOR = 5.0
# An image is close to the truth within this multiple of what the encoded truth itself misses.
CLOSE = 1.5


def check_two_digits(cells: Cells) -> dict[str, Any]:
    """Are there 4s and 9s under the broad mask?"""
    shares = {m: cell["classes"] for m, cell in by_model(cells, "posterior", MASKED).items()}
    both = [min(share[4], share[9]) >= POSSIBLE for share in shares.values()]
    short = "Yes, under both priors." if all(both) else "No, under neither prior."
    if sum(both) == 1:
        short = f"Under {under(both)[0]} yes, under {under(not each for each in both)[0]} no."
    seen = [f"under `{model}` {name_digits(share)}" for model, share in shares.items()]
    form = "a 4 has {:.3f} and a 9 {:.3f} under `{}`"
    paper = [form.format(share[4], share[9], model) for model, share in shares.items()]
    return {"short": short, "seen": "; ".join(seen), "paper": "; ".join(paper)}


def check_weights(cells: Cells) -> dict[str, Any]:
    """Are the weights of the Laplace mixture the certified ones, digit by digit?"""
    found = []
    for model in MODELS:
        cell = cells[f"posterior {model} {MASKED}"]
        recipe = cells[f"recipe {model} {MASKED} annealed"]
        theirs, ours = recipe["classes"], cell["classes"]
        excess = minus(recipe["log_evidence"], cell["log_evidence"])
        found.append(
            {
                "model": model,
                "theirs": name_digits(theirs) if theirs else "no minimum",
                "ours": name_digits(ours),
                # Without a minimum there are no weights at all.
                "error": np.max(np.abs(np.subtract(theirs, ours))) if theirs else 1.0,
                "excess": "-" if np.isnan(excess) else f"{excess:+.2f}",
            }
        )
    right = under(each["error"] < ROUGHLY for each in found)
    short = "Roughly." if right else "No."
    if len(right) == 1:
        short = f"Roughly under {right[0]}, not under the other prior."
    form = "`{model}` | {theirs} | {ours} | {error:.2f} | {excess}"
    return {"short": short, "rows": rows(form, found)}


def check_data(cells: Cells) -> dict[str, Any]:
    """Are the data reproduced within the errors?"""
    lines, worse, better = [], [], 0
    for corruption in EXPERIMENTS:
        line = f"| `{corruption}` |"
        for model, cell in by_model(cells, "posterior", corruption).items():
            p = cell["p_value"]
            line += f" {cell['chi_squared'] / cell['data']:.2f} | {p:.3f} |"
            better += p > LIKELY
            if p < UNLIKELY:
                worse.append(f"`{corruption}` under `{model}` (p = {p:.2g})")
        lines.append(line)
    short, remark = "Yes.", ""
    if better:
        cases = "1 case" if better == 1 else f"{better} cases"
        short = f"Yes; in {cases} more closely than the stated error, which is too large there."
        remark = (
            "One scalar sigma is too large for the black border, and the error of the default prior"
            " is inflated on purpose."
        )
    return {
        "short": f"Not always: not for {listed(worse)}." if worse else short,
        "rows": "\n".join(lines),
        "remark": remark,
    }


def check_flow(cells: Cells) -> dict[str, Any]:
    """Are prior samples better after the flow, and almost perfect?"""
    priors = by_model(cells, "prior")
    pairs = [(p["image_c2st_before"], p["image_c2st_after"]) for p in priors.values()]
    better = "yes" if all(after < before for before, after in pairs) else "no"
    perfect = "yes" if all(after < PERFECT for _, after in pairs) else "no"
    form = "{image_c2st_before:.3f} before the flow and {image_c2st_after:.3f} after it for `{m}`"
    return {
        "short": f"Better: {better}. Almost perfect: {perfect}.",
        "accuracies": listed(form.format(m=model, **prior) for model, prior in priors.items()),
    }


def check_annealing(cells: Cells) -> dict[str, Any]:
    """Which ends are no minima, with and without annealing, from the same starts?"""
    lines = []
    stalls, poor = ({variant: [] for variant in VARIANTS} for _ in range(2))
    for model in MODELS:
        for corruption in SEARCHED:
            found = {v: cells[f"recipe {model} {corruption} {v}"] for v in VARIANTS}
            deepest = min(min(cell["ends"]) for cell in found.values())
            line = f"| `{model}` `{corruption}` | {found[VARIANTS[0]]['starts']} |"
            for variant, cell in found.items():
                stalled = [not minimum for minimum in are_minima(cell)]
                high = [end > deepest + POOR for end in cell["ends"]]
                stalls[variant] += stalled
                poor[variant] += high
                line += f" {sum(stalled)} | {sum(high)} |"
            lines.append(line)
    steps = {name: cells[f"recipe {OURS} {name} plain"]["steps"] for name in SEARCHED}
    short, stalled = compare_pairs(*stalls.values())
    return {
        "short": short,
        "stalled": stalled,
        "high": compare_pairs(*poor.values())[1],
        "steps": listed(f"{number} steps on `{name}`" for name, number in steps.items()),
        "rows": "\n".join(lines),
    }


def compare_pairs(annealed: Sequence[bool], plain: Sequence[bool]) -> tuple[str, str]:
    """Whether the first of two variants fails less often from the same starts, and the test.

    The test is McNemar's: only starts from which one of the two failed tell them apart.
    """
    pairs = list(zip(annealed, plain, strict=True))
    first, second = pairs.count((True, False)), pairs.count((False, True))
    p = binomtest(first, first + second).pvalue if first + second else 1.0
    short = "There is no difference that so many starts could show."
    if not any(annealed) and not any(plain):
        short = "There was nothing to avoid: no start stalled, with it or without."
    elif p < 0.05:
        short = "Yes." if first < second else "No, it makes it stall more often."
    shown = f"{p:.2f}" if p >= 0.01 else f"{p:.1g}"
    counts = f"{sum(annealed)} of {len(pairs)} with annealing, {sum(plain)} without"
    return short, f"{counts} (McNemar's p = {shown})"


def check_truth(cells: Cells) -> dict[str, Any]:
    """Is the image of the lowest minimum close to the truth?"""
    lines, close = [], []
    for corruption in EXPERIMENTS:
        found = by_model(cells, "posterior", corruption).values()
        close += [cell["rms"] <= CLOSE * cell["floor"] for cell in found]
        errors = " | ".join(f"{cell['rms']:.3f} ({cell['floor']:.3f})" for cell in found)
        further = cells[f"truth {corruption}"]
        near = np.array(further["rms"]) / np.array(further["floor"]) <= CLOSE
        right = f"{sum(further['right'])} of {len(near)} | {sum(near)} of {len(near)}"
        lines.append(f"| `{corruption}` | {errors} | {right} |")
    short = "Yes, in all examples." if all(close) else f"In {sum(close)} of {len(close)} cases."
    return {"short": short, "rows": "\n".join(lines)}


def check_starts(cells: Cells) -> dict[str, Any]:
    """Do ten starts find every relevant minimum?"""
    lines, chances = [], []
    for model in MODELS:
        for corruption in SEARCHED:
            recipe = cells[f"recipe {model} {corruption} annealed"]
            ours = cells[f"posterior {model} {corruption}"]
            chance = chance_of_all(recipe["basins"], recipe["weights"], published.STARTS)
            chances.append(chance or 0.0)
            heavy = sum(weight >= RELEVANT for weight in recipe["weights"])
            shown = "-" if chance is None else f"{chance:.2f}"
            certified = f"{ours['relevant_modes']} | {name_starts(ours)}"
            lines.append(f"| `{model}` `{corruption}` | {heavy} | {shown} | {certified} |")
    least, most = min(chances), max(chances)
    return {
        "short": "Yes." if least >= 0.95 else "Not always." if most >= 0.95 else "No.",
        "least": least,
        "made": cells[f"recipe {OURS} {MASKED} annealed"]["starts"],
        "rows": "\n".join(lines),
    }
