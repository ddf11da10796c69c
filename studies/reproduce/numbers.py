"""The table "the paper says / we find"."""

from typing import Any

import numpy as np

from studies.pages import table
from studies.reproduce import published
from studies.reproduce.claim import POSSIBLE, Row, likely_digits, name_digits, name_starts
from studies.reproduce.recipe import cost_of_ten
from studies.reproduce.run import FAMILIES, MASKED, MODELS, NOISY, OURS, THEIRS, Cells
from studies.reproduce.settings import corruption_rows, formula_rows, network_rows

_SHOWN = 4
# Weight from which a minimum dominates.
_DOMINATES = 0.1
_WALL = "wall time, which other work on the machine lengthens"
# Errors below this are rounding, not those of a weight.
_LEAST_ERROR = 1e-3


def make_table(cells: Cells) -> str:
    """All rows, with a reason wherever we differ."""
    rows = [
        *network_rows(cells),
        *corruption_rows(cells),
        *_search(cells),
        *_weights(cells),
        *_variational(cells),
        *formula_rows(),
    ]
    titles = ["", "the paper", f"`{THEIRS}`", f"`{OURS}`", "where we differ, why"]
    lines = [
        [row.what, row.paper, row.theirs, row.ours, row.why if row.differs else ""] for row in rows
    ]
    return table(titles, lines)


def _search(cells: Cells) -> list[Row]:
    recipes = {model: cells[f"recipe {model} {NOISY} annealed"] for model in MODELS}
    seconds = [cell["seconds"] / cell["starts"] for cell in recipes.values()]
    deepest = [_deepest(cell) for cell in recipes.values()]
    whole = [cells[f"posterior {model} {NOISY}"] for model in MODELS]
    needed = [cells[f"posterior {model} {MASKED}"] for model in MODELS]
    k, n = published.DEEPEST
    shares = [share for share, _ in deepest]
    return [
        Row(
            f"seconds per start of Adam, `{NOISY}`",
            f"about {published.SECONDS_PER_START:g}",
            *(f"{value:.2f}" for value in seconds),
            differs=any(_off(value, published.SECONDS_PER_START) for value in seconds),
            why=f"Compiled, {recipes[OURS]['starts']} starts at once,"
            f" {recipes[OURS]['steps']} steps each; {_WALL}.",
        ),
        Row(
            f"starts that end in the deepest minimum, `{NOISY}`",
            f"{k} of {n}",
            *(
                f"{sum_} of {cell['starts']}"
                for (_, sum_), cell in zip(deepest, recipes.values(), strict=True)
            ),
            differs=max(abs(share - k / n) for share in shares) > 0.25,
            why="The number of basins is a property of the networks.",
        ),
        Row(
            f"starts needed for all modes above 1 %, `{MASKED}`",
            f"about {published.STARTS}",
            *(name_starts(cell) for cell in needed),
            differs=any(
                (cell["starts_needed"] or np.inf) > 2 * published.STARTS for cell in needed
            ),
            why="The starts that we make are more, because each is cheap, and not all modes are"
            " reached from the prior alone.",
        ),
        Row(
            f"seconds of a whole answer, `{NOISY}`",
            f"about {published.STARTS * published.SECONDS_PER_START:g}",
            *(f"{cell['seconds']:.0f} ({cell['starts']} starts)" for cell in whole),
            differs=any(
                _off(cell["seconds"], published.STARTS * published.SECONDS_PER_START)
                for cell in whole
            ),
            why="Levenberg-Marquardt instead of Adam; compilation and certificate are included;"
            f" {_WALL}.",
        ),
    ]


def _deepest(cell: dict[str, Any]) -> tuple[float, int]:
    """Share and number of the starts that end in the deepest minimum."""
    number = cell["basins"].count(0)
    return number / cell["starts"], number


def _off(found: float, low: float, high: float | None = None) -> bool:
    """Whether a number is off a published one, or range, by more than a factor of two."""
    return not low / 2 <= found <= 2 * (high or low)


def _weights(cells: Cells) -> list[Row]:
    rows = []
    for corruption, paper in (
        (MASKED, published.MASKED_WEIGHTS),
        (NOISY, published.NOISY_WEIGHTS),
    ):
        said = " / ".join(f"{weight:g}" for weight in paper)
        if corruption == MASKED:
            said += " (text: {:.0%}, {:.0%})".format(*published.MASKED_TEXT)
        recipes = [cells[f"recipe {model} {corruption} annealed"]["weights"] for model in MODELS]
        certified = [cells[f"posterior {model} {corruption}"] for model in MODELS]
        rows.append(
            Row(
                f"weights by Laplace at Adam's minima, `{corruption}`",
                said,
                *(_list(sorted(weights, reverse=True)) for weights in recipes),
                differs=any(_other(weights, paper) for weights in recipes),
                why="Other networks have other minima, and Laplace's masses of minima that overlap"
                " count twice.",
            )
        )
        rows.append(
            Row(
                f"weights, certified, `{corruption}`",
                said,
                *(_certified(cell) for cell in certified),
                differs=any(
                    _other(cell["weights"], paper, cell["weight_errors"]) for cell in certified
                ),
                why="Other networks have another posterior, and these are integrals of it, by"
                " importance sampling.",
            )
        )
    minima = [
        sum(w >= _DOMINATES for w in cells[f"recipe {model} {MASKED} annealed"]["weights"])
        for model in MODELS
    ]
    rows.append(
        Row(
            f"dominating minima (weight above {_DOMINATES:.0%}), `{MASKED}`",
            str(published.DOMINATING),
            *(str(number) for number in minima),
            differs=any(number != published.DOMINATING for number in minima),
            why="Other networks have other minima.",
        )
    )
    shares = [cells[f"posterior {model} {MASKED}"]["classes"] for model in MODELS]
    rows.append(
        Row(
            f"digits above {POSSIBLE:.0%}, `{MASKED}`",
            "a 4 and a 9",
            *(name_digits(share) for share in shares),
            differs=any(set(likely_digits(share)) != {4, 9} for share in shares),
            why="Which digits a generator can make of what is visible is a property of the prior.",
        )
    )
    return rows


def _list(weights: list[float]) -> str:
    shown = " / ".join(f"{weight:.3f}" for weight in weights[:_SHOWN]) or "no minimum"
    return shown + (" / ..." if len(weights) > _SHOWN else "")


def _certified(cell: dict[str, Any]) -> str:
    pairs = zip(cell["weights"], cell["weight_errors"], strict=True)
    heavy = [f"{weight:.3f} ± {error:.3f}" for weight, error in pairs if weight >= 0.01]
    shown = " / ".join(heavy[:_SHOWN])
    return shown + (f" ({cell['relevant_modes']} above 1 %)" if len(heavy) > _SHOWN else "")


def _other(found: list[float], paper: tuple[float, ...], errors: list[float] | None = None) -> bool:
    """Whether weights, sorted, are off by more than three errors, or a tenth where none is known.

    A minimum that one of the two lacks has weight zero there.
    """
    size = max(len(found), len(paper))
    order = np.argsort(found)[::-1]
    ours, theirs, bars = np.zeros(size), np.zeros(size), np.full(size, 0.1)
    ours[: len(found)] = np.array(found)[order]
    theirs[: len(paper)] = sorted(paper, reverse=True)
    if errors is not None:
        bars[:] = 3 * _LEAST_ERROR
        bars[: len(found)] = 3 * np.maximum(np.array(errors)[order], _LEAST_ERROR)
    return bool(np.any(np.abs(ours - theirs) > bars))


def _variational(cells: Cells) -> list[Row]:
    rows = []
    ten = published.STARTS * published.SECONDS_PER_START
    for family in FAMILIES:
        found = [cells[f"svi {model} {family}"] for model in MODELS]
        low, high = published.SVI_SECONDS[family]
        said = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        recipes = [cells[f"recipe {model} {NOISY} annealed"] for model in MODELS]
        ratios = [
            cell["forward_equivalents"] / cost_of_ten(recipe)
            for cell, recipe in zip(found, recipes, strict=True)
        ]
        rows += [
            Row(
                f"SVI, {family}: draws per step",
                str(published.SVI_SAMPLES),
                *(str(cell["samples"]) for cell in found),
                differs=any(cell["samples"] != published.SVI_SAMPLES for cell in found),
                why=f"{published.SVI_SAMPLES} draws and {found[1]['steps']} steps would be"
                f" {_more_work(*found):.0f} times as many evaluations, of the larger networks.",
            ),
            Row(
                f"SVI, {family}: steps to converge",
                f"about {published.SVI_STEPS} ({{}} to {{}} in the notebook)".format(
                    *published.SVI_NOTEBOOK_STEPS
                ),
                *(_converged(cell) for cell in found),
                differs=any(
                    _off(cell["converged"] or np.inf, published.SVI_STEPS) for cell in found
                ),
                why="To within 0.1 nats of the last ELBO; the learning rate decides.",
            ),
            Row(
                f"SVI, {family}: seconds",
                said,
                *(f"{cell['seconds']:.0f}" for cell in found),
                differs=any(_off(cell["seconds"], low, high) for cell in found),
                why="Another machine, and other networks, draws and steps where the rows above say"
                f" so; {_WALL}.",
            ),
            Row(
                f"SVI, {family}: cost over that of ten starts of Adam",
                f"{low / ten:.1f} (seconds)",
                *(f"{ratio:.1f}" for ratio in ratios),
                differs=any(_off(ratio, low / ten, high / ten) for ratio in ratios),
                why="Ours counts forward evaluations (of half of our batch of"
                f" {recipes[1]['starts']} starts); in the paper's seconds a step of"
                f" {published.SVI_SAMPLES} draws takes only {_batch(low, recipes[1]):.1f} times as"
                " long as one of a start.",
            ),
        ]
    return rows


def _more_work(theirs: dict[str, Any], ours: dict[str, Any]) -> float:
    """The published draws, with as many steps as `ours`, over the evaluations of `theirs`."""
    return published.SVI_SAMPLES * ours["steps"] / (theirs["samples"] * theirs["steps"])


def _batch(seconds: float, recipe: dict[str, Any]) -> float:
    """Seconds of a published step of SVI over those of a step of Adam."""
    return seconds / published.SVI_STEPS * recipe["steps"] / published.SECONDS_PER_START


def _converged(cell: dict[str, Any]) -> str:
    reached = cell["converged"]
    return f"not in {cell['steps']}" if reached is None else f"{reached} of {cell['steps']}"
