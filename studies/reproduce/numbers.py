"""The table "the paper says, we find": every number of the paper beside ours.

What the paper says and why ours may be another number is in numbers.md.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from latentuq.core.cells import Cells
from latentuq.forward.blur import Blur
from latentuq.forward.mask import RegionMask
from latentuq.problem.experiments import EXPERIMENTS, SHAPE
from studies.reproduce import published
from studies.reproduce.plan import FAMILIES, MASKED, MODELS, NOISY, OURS, SEARCHED, THEIRS
from studies.reproduce.recipe import cost_of_ten
from studies.reproduce.words import likely_digits, name_digits, name_starts

# More weights than this are not listed.
_SHOWN = 4
# The weight from which a minimum dominates.
_DOMINATES = 0.1
# Errors of a weight below this are rounding.
_LEAST_ERROR = 1e-3
_TEN_SECONDS = published.STARTS * published.SECONDS_PER_START
_ACTIVATIONS = {"leaky_relu": "LeakyReLU", "silu": "SiLU"}

Numbers = dict[str, str | tuple[str, bool]]
"""Our numbers in words by their names; with it whether one is another answer than the paper's.

Where that is not said, it is another answer if its words are not the paper's.
"""


def make_rows(cells: Cells) -> str:
    """All rows, with a reason wherever we differ."""
    ours = [_numbers(cells, model) for model in MODELS]
    values = _values(cells)
    _, _, *lines = Path(__file__).with_name("numbers.md").read_text().splitlines()
    rows = []
    for line in lines:
        what, paper, name, why = (part.strip() for part in line.strip("|").split(" | "))
        words, differs = [], False
        for numbers in ours:
            found = numbers[name]
            word, other = (found, found != paper) if isinstance(found, str) else found
            words.append(word)
            differs = differs or other
        reason = why.format_map(values) if differs else ""
        rows.append(f"| {' | '.join([what, paper, *words, reason])} |")
    return "\n".join(rows)


def _values(cells: Cells) -> dict[str, Any]:
    """The numbers that reasons refer to."""
    recipe = cells[f"recipe {OURS} {NOISY} annealed"]
    values = {"starts": recipe["starts"], "steps": recipe["steps"]}
    for family in FAMILIES:
        theirs, ours = (cells[f"svi {model} {family}"] for model in (THEIRS, OURS))
        all_draws = published.SVI_SAMPLES * ours["steps"]
        values[f"steps {family}"] = ours["steps"]
        values[f"more {family}"] = all_draws / (theirs["samples"] * theirs["steps"])
        # The seconds of a published step of SVI over those of a step of Adam.
        svi_seconds = published.SVI_SECONDS[family][0] / published.SVI_STEPS
        values[f"slower {family}"] = svi_seconds * recipe["steps"] / published.SECONDS_PER_START
    return values


def _numbers(cells: Cells, model: str) -> Numbers:
    """All of our numbers under one prior."""
    numbers = _of_prior(cells[f"prior {model}"]) | _of_corruptions() | _of_search(cells, model)
    for corruption in SEARCHED:
        numbers |= _of_weights(cells, model, corruption)
    for family in FAMILIES:
        numbers |= _of_svi(cells, model, family)
    posteriors = [cells[f"posterior {model} {name}"] for name in EXPERIMENTS]
    removed = 1 - cells[f"posterior {model} sparse95"]["data"] / np.prod(SHAPE)
    sigma, noise = published.SIGMA_MODEL, EXPERIMENTS[NOISY].noise_std
    dim = cells[f"prior {model}"]["dim"]
    return numbers | {
        "removed": f"{removed:.1%}",
        "chi_squared": " / ".join(f"{c['chi_squared'] / c['data']:.2f}" for c in posteriors),
        "precision": f"{1 / (sigma**2 + noise**2):.2f}",
        "width": "(H⁻¹)_nn",
        "terms": str(dim * (dim + 3) // 2 + 1),
    }


def _of_prior(prior: dict[str, Any]) -> Numbers:
    """The networks and how they were trained."""
    vae, flow, sigma = prior["vae"], prior["flow"], prior["sigma_model"]
    layers = f"{prior['block_layers']} layers of {vae['width']}"
    activation = _ACTIVATIONS.get(vae["activation"], vae["activation"])
    widths = ", ".join([str(flow["width"])] * prior["flow_layers"])
    return {
        "sigma_model": (f"{sigma:.3f}", abs(sigma - published.SIGMA_MODEL) > 0.02),
        "model_error": prior["model_error"],
        "dim": str(prior["dim"]),
        "decoder": f"{vae['blocks']} blocks of {layers}, {activation}",
        "flow": f"{flow['depth']} couplings, [{widths}]",
        "training": "batch {batch}, rate {learning_rate:g}".format_map(prior["vae_fit"]),
    }


def _of_corruptions() -> Numbers:
    """What is done to the images."""
    numbers: Numbers = {}
    for name, experiment in EXPERIMENTS.items():
        operator = experiment.make_operator()
        numbers[f"noise {name}"] = f"{experiment.noise_std:g}"
        if isinstance(operator, RegionMask) and operator.columns:
            numbers[f"columns {name}"] = "{} to {}".format(*operator.columns)
        if isinstance(operator, Blur) and operator.sigma is not None:
            side = operator.psf.shape[0]
            numbers["kernel"] = f"standard deviation {float(operator.sigma):g}, {side}x{side}"
    return numbers


def _of_search(cells: Cells, model: str) -> Numbers:
    """What the search costs and finds."""
    recipe, whole = cells[f"recipe {model} {NOISY} annealed"], cells[f"posterior {model} {NOISY}"]
    minima, masked = (
        cells[f"recipe {model} {MASKED} annealed"],
        cells[f"posterior {model} {MASKED}"],
    )
    seconds, deepest = recipe["seconds"] / recipe["starts"], recipe["basins"].count(0)
    return {
        "start_seconds": (f"{seconds:.2f}", _off(seconds, published.SECONDS_PER_START)),
        "deepest": (
            f"{deepest} of {recipe['starts']}",
            abs(deepest / recipe["starts"] - published.DEEPEST) > 0.25,
        ),
        "starts_needed": (
            name_starts(masked),
            (masked["starts_needed"] or np.inf) > 2 * published.STARTS,
        ),
        "seconds": (
            "{seconds:.0f} ({starts} starts)".format_map(whole),
            _off(whole["seconds"], _TEN_SECONDS),
        ),
        "dominating": str(sum(weight >= _DOMINATES for weight in minima["weights"])),
        "digits": (name_digits(masked["classes"]), set(likely_digits(masked["classes"])) != {4, 9}),
    }


def _off(found: float, low: float, high: float | None = None) -> bool:
    """Whether a number is off a published one, or range, by more than a factor of two."""
    return not low / 2 <= found <= 2 * (high or low)


def _of_weights(cells: Cells, model: str, corruption: str) -> Numbers:
    """The weights of the minima by Laplace, and the certified ones."""
    paper = published.WEIGHTS[corruption]
    weights = cells[f"recipe {model} {corruption} annealed"]["weights"]
    heaviest = sorted(weights, reverse=True)[:_SHOWN]
    shown = " / ".join(f"{weight:.3f}" for weight in heaviest) or "no minimum"
    cell = cells[f"posterior {model} {corruption}"]
    pairs = zip(cell["weights"], cell["weight_errors"], strict=True)
    heavy = [f"{weight:.3f} ± {error:.3f}" for weight, error in pairs if weight >= 0.01]
    more = f" ({cell['relevant_modes']} above 1 %)" if len(heavy) > _SHOWN else ""
    return {
        f"laplace {corruption}": (
            shown + (" / ..." if len(weights) > _SHOWN else ""),
            _other(weights, paper),
        ),
        f"certified {corruption}": (
            " / ".join(heavy[:_SHOWN]) + more,
            _other(cell["weights"], paper, cell["weight_errors"]),
        ),
    }


def _other(
    found: Sequence[float], paper: Sequence[float], errors: Sequence[float] | None = None
) -> bool:
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


def _of_svi(cells: Cells, model: str, family: str) -> Numbers:
    """What stochastic variational inference costs."""
    fit = cells[f"svi {model} {family}"]
    low, high = published.SVI_SECONDS[family]
    ratio = fit["forward_equivalents"] / cost_of_ten(cells[f"recipe {model} {NOISY} annealed"])
    reached = "not in {steps}" if fit["converged"] is None else "{converged} of {steps}"
    return {
        f"{family} draws": str(fit["samples"]),
        f"{family} steps": (
            reached.format_map(fit),
            _off(fit["converged"] or np.inf, published.SVI_STEPS),
        ),
        f"{family} seconds": (f"{fit['seconds']:.0f}", _off(fit["seconds"], low, high)),
        f"{family} cost": (f"{ratio:.1f}", _off(ratio, low / _TEN_SECONDS, high / _TEN_SECONDS)),
    }
