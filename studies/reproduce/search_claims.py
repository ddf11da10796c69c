"""What the paper claims about minima and how they are found."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import binomtest

from latentuq.problem.experiments import EXPERIMENTS
from studies.pages import table
from studies.reproduce import published
from studies.reproduce.claim import Claim, listed, name_starts
from studies.reproduce.recipe import ARRIVED, are_minima, chance_of_all
from studies.reproduce.run import MASKED, MODELS, NOISY, OURS, VARIANTS, Cells

# An end this many nats above the deepest one has less than a hundredth of its density.
_POOR = 5.0
# An image is close to the truth within this multiple of what the encoded truth itself misses.
_CLOSE = 1.5


def check_annealing(cells: Cells) -> Claim:
    """Ends that are no minima, with and without annealing, from the same starts."""
    rows = []
    stalls: list[list[bool]] = [[] for _ in VARIANTS]
    poor: list[list[bool]] = [[] for _ in VARIANTS]
    for model in MODELS:
        for corruption in (MASKED, NOISY):
            found = [cells[f"recipe {model} {corruption} {variant}"] for variant in VARIANTS]
            deepest = min(min(cell["ends"]) for cell in found)
            stalled = [[not minimum for minimum in are_minima(cell)] for cell in found]
            high = [[end > deepest + _POOR for end in cell["ends"]] for cell in found]
            for place in range(len(VARIANTS)):
                stalls[place] += stalled[place]
                poor[place] += high[place]
            counts = [str(sum(flags)) for pair in zip(stalled, high, strict=True) for flags in pair]
            rows.append([f"`{model}` `{corruption}`", str(found[0]["starts"]), *counts])
    answer, words = compare_pairs(*stalls)
    _, high_words = compare_pairs(*poor)
    steps = listed(
        f"{cells[f'recipe {OURS} {corruption} plain']['steps']} steps on `{corruption}`"
        for corruption in (MASKED, NOISY)
    )
    titles = ["problem", "starts", "no minimum, annealed", f"> {_POOR:g} nats too high"]
    titles += ["no minimum, plain", f"> {_POOR:g} nats too high"]
    return Claim(
        "Does annealing keep the search from stalling?",
        answer,
        "End points that are no minimum, because the Hessian is not positive definite or a Newton"
        f" step would gain {ARRIVED:g} nats or more: {words}. Ends more than {_POOR:g} nats"
        f" above the deepest one: {high_words}. Same starts, so that they are paired; the published"
        f" learning rates, {steps}.\n\n{table(titles, rows)}",
    )


def compare_pairs(annealed: Sequence[bool], plain: Sequence[bool]) -> tuple[str, str]:
    """Whether the first of two variants fails less often from the same starts, and the test.

    McNemar's: only starts from which one of the two failed tell them apart.
    """
    pairs = list(zip(annealed, plain, strict=True))
    first, second = pairs.count((True, False)), pairs.count((False, True))
    p = binomtest(first, first + second).pvalue if first + second else 1.0
    answer = "No difference that so many starts could show."
    if not any(annealed) and not any(plain):
        answer = "There was nothing to avoid: no start stalled, with it or without."
    elif p < 0.05:
        answer = "Yes." if first < second else "No, the reverse."
    shown = f"{p:.2f}" if p >= 0.01 else f"{p:.1g}"
    return (
        answer,
        f"{sum(annealed)} of {len(pairs)} with annealing, {sum(plain)} without (McNemar's p ="
        f" {shown})",
    )


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
            rows.append(
                [
                    f"`{model}` `{corruption}`",
                    str(heavy),
                    "-" if chance is None else f"{chance:.2f}",
                    str(ours["relevant_modes"]),
                    name_starts(ours),
                ]
            )
    answer = "Yes." if min(chances) >= 0.95 else "Not always." if max(chances) >= 0.95 else "No."
    titles = ["problem", "minima above 1 %, Adam"]
    titles += [
        f"chance that {published.STARTS} starts find them",
        "modes above 1 %, certified",
        "our starts until the last of them",
    ]
    return Claim(
        "Are ten starts enough to find all relevant minima?",
        answer,
        f"The least chance is {min(chances):.2f}. It is estimated from the"
        f" {cells[f'recipe {OURS} {MASKED} annealed']['starts']} starts that were made, so that"
        f" minima that none of them found do not count.\n\n{table(titles, rows)}",
    )
