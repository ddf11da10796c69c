"""What the paper claims about minima and how they are found."""

from typing import Any

import numpy as np
from scipy.stats import fisher_exact

from latentuq.experiments import EXPERIMENTS
from latentuq.markdown import table
from latentuq.reproduce import published
from latentuq.reproduce.claim import Claim
from latentuq.reproduce.recipe import are_minima, chance_of_all
from latentuq.reproduce.run import MASKED, MODELS, NOISY, OURS, VARIANTS, Cells

# An end this many nats above the deepest one has less than a hundredth of its density.
_POOR = 5.0
# An image is close to the truth within this multiple of what the encoded truth itself misses.
_CLOSE = 1.5


def check_annealing(cells: Cells) -> Claim:
    """Ends that are no minima, with and without annealing, from the same starts."""
    rows = []
    stalls, poor = np.zeros(2, int), np.zeros(2, int)
    number = 0
    for model in MODELS:
        for corruption in (MASKED, NOISY):
            found = [cells[f"recipe {model} {corruption} {variant}"] for variant in VARIANTS]
            deepest = min(min(cell["ends"]) for cell in found)
            stalled = [are_minima(cell).count(False) for cell in found]
            high = [sum(end > deepest + _POOR for end in cell["ends"]) for cell in found]
            number += found[0]["starts"]
            stalls += stalled
            poor += high
            counts = [str(count) for pair in zip(stalled, high, strict=True) for count in pair]
            rows.append([f"`{model}` `{corruption}`", str(found[0]["starts"]), *counts])
    answer, words = compare_counts(int(stalls[0]), int(stalls[1]), number)
    _, high_words = compare_counts(int(poor[0]), int(poor[1]), number)
    titles = ["problem", "starts", "no minimum, annealed", f"> {_POOR:g} nats too high"]
    titles += ["no minimum, plain", f"> {_POOR:g} nats too high"]
    return Claim(
        "Does annealing keep the search from stalling?",
        answer,
        f"End points whose Hessian is not positive definite: {words}. Ends more than {_POOR:g} nats"
        f" above the deepest one: {high_words}. Same starts, the published learning rates,"
        f" {cells[f'recipe {OURS} {MASKED} plain']['steps']} steps.\n\n{table(titles, rows)}",
    )


def compare_counts(annealed: int, plain: int, number: int) -> tuple[str, str]:
    """Whether the first of two counts out of the same number is lower, and the test in words."""
    outcome: Any = fisher_exact([[annealed, number - annealed], [plain, number - plain]])
    p = float(outcome[1])
    answer = "No difference that so many starts could show."
    if annealed == plain == 0:
        answer = "There was nothing to avoid: no start stalled, with it or without."
    elif p < 0.05:
        answer = "Yes." if annealed < plain else "No, the reverse."
    shown = f"{p:.2f}" if p >= 0.01 else f"{p:.1g}"
    return answer, f"{annealed} of {number} with annealing, {plain} without (Fisher's p = {shown})"


def check_truth(cells: Cells) -> Claim:
    """The image of the lowest minimum against the truth."""
    rows, close = [], []
    for corruption in EXPERIMENTS:
        row = [f"`{corruption}`"]
        for model in MODELS:
            cell = cells[f"posterior {model} {corruption}"]
            close.append(cell["rms"] <= _CLOSE * cell["floor"])
            row.append(f"{cell['rms']:.3f} ({cell['floor']:.3f})")
        further = cells[f"truth {corruption}"]
        number = len(further["right"])
        ratios = np.array(further["rms"]) / np.array(further["floor"])
        row += [f"{sum(further['right'])} of {number}", f"{sum(ratios <= _CLOSE)} of {number}"]
        rows.append(row)
    answer = "Yes, in all examples." if all(close) else f"In {sum(close)} of {len(close)} cases."
    titles = ["problem", *(f"rms error, `{model}`" for model in MODELS)]
    titles += [f"other digits, `{OURS}`: right digit", "close"]
    return Claim(
        "Is the lowest minimum close to the truth?",
        answer,
        "Root mean square error of the deepest mode's image; in brackets what is left when the"
        f" encoder is shown the truth. Close: at most {_CLOSE:g} times that. The last columns"
        f" repeat it for digits that the paper did not show.\n\n{table(titles, rows)}",
    )


def check_starts(cells: Cells) -> Claim:
    """Do ten starts find every relevant minimum?"""
    rows, chances = [], []
    for model in MODELS:
        for corruption in (MASKED, NOISY):
            recipe = cells[f"recipe {model} {corruption} annealed"]
            chance = chance_of_all(recipe["basins"], recipe["weights"], published.STARTS)
            chances.append(chance or 0.0)
            heavy = sum(weight >= 0.01 for weight in recipe["weights"])
            ours = cells[f"posterior {model} {corruption}"]
            needed = ours["starts_needed"]
            rows.append(
                [
                    f"`{model}` `{corruption}`",
                    str(heavy),
                    "-" if chance is None else f"{chance:.2f}",
                    str(ours["relevant_modes"]),
                    f"more than {ours['independent_starts']}" if needed is None else str(needed),
                ]
            )
    answer = "Yes." if min(chances) >= 0.95 else "Not always." if max(chances) >= 0.95 else "No."
    titles = ["problem", "minima above 1 %, Adam", "chance that 10 starts find them"]
    titles += ["modes above 1 %, certified", "our starts until the last of them"]
    return Claim(
        "Are ten starts enough to find all relevant minima?",
        answer,
        f"The least chance is {min(chances):.2f}. It is estimated from the"
        f" {cells[f'recipe {OURS} {MASKED} annealed']['starts']} starts that were made, so that"
        f" minima that none of them found do not count.\n\n{table(titles, rows)}",
    )
