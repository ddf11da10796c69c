"""The paper's figures from the cells, for the paper's networks and for our default prior."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8
from matplotlib.figure import Figure

from latentuq.core.cells import Cells
from latentuq.posterior.maps import decode_images
from latentuq.problem.experiments import EXPERIMENTS
from latentuq.report.figures import data_range
from latentuq.report.palette import MODES, OTHER, grey_pixels
from studies.reproduce.diagram import draw_diagram
from studies.reproduce.gaussians import EL2O, LAPLACE, TITLES
from studies.reproduce.plan import FAMILIES, MASKED, MODELS, NOISY, OURS, THEIRS, Plan, true_image
from studies.reproduce.recipe import are_minima

STYLE: dict[Any, Any] = {
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
"""How all figures look."""

_SHEET = 6
# A digit with fewer draws than this gives no direction that parts it from another.
_FEWEST = 20
# Ends that spread over more nats than this need a logarithmic axis.
_WIDE = 50.0
_COLOURED = 4
_LINES = {
    LAPLACE: (MODES[0], "--"),
    EL2O: (MODES[2], "-."),
    "mean-field": (MODES[4], ":"),
    "full-rank": (MODES[3], "-"),
}

Pixels = UInt8[np.ndarray, "height width 3"]


def draw_reconstructions(cells: Cells, plan: Plan) -> Figure:
    """Figure 1: data, deepest modes and truths; samples of the masked 4, and what the mask left."""
    figure, axes = _panels(len(MODELS), 3, 3.3, 2.9)
    truths = [grey_pixels(true_image(name)) for name in EXPERIMENTS]
    columns = len(EXPERIMENTS)
    for row, model in zip(axes, MODELS, strict=True):
        prior = plan.priors[model]
        data = [_data(plan, model, name) for name in EXPERIMENTS]
        deepest = jnp.array([cells[f"posterior {model} {name}"]["map"] for name in EXPERIMENTS])
        found = _grey(decode_images(prior, deepest))
        _show(row[0], mosaic([*data, *found, *truths], columns), f"{model}: data, mode, truth")
        row[0].set_yticks([14, 44, 74], ["data", "mode", "truth"], fontsize=9)
        row[0].set_xticks([14 + 30 * i for i in range(columns)], [*EXPERIMENTS], fontsize=7)
        samples = jnp.array(cells[f"posterior {model} {MASKED}"]["samples"])
        images = np.asarray(decode_images(prior, samples), np.float64)
        seen = np.asarray(plan.problem(model, MASKED).observed)
        _show(row[1], mosaic(_grey(images), 4), "samples")
        masked = np.where(seen, images, np.nan)
        _show(row[2], mosaic(_grey(masked), 4), "the same, as the mask shows them")
    return figure


def draw_prior_samples(cells: Cells, plan: Plan) -> Figure:
    """Figure 2: decoded draws of N(0, I), as they are and after the flow."""
    figure, axes = _panels(1, 2 * len(MODELS), 2.5, 2.75)
    panels = iter(axes[0])
    for model, prior in plan.priors.items():
        u = jax.random.normal(plan.key("prior samples"), (_SHEET**2, prior.dim))
        drawn = {"before": jax.vmap(prior.decoder)(u), "after": prior.decode(u)}
        for when, images in drawn.items():
            accuracy = cells[f"prior {model}"][f"image_c2st_{when}"]
            title = f"{model}, {when} (C2ST {accuracy:.2f})"
            _show(next(panels), mosaic(_grey(images), _SHEET), title)
    return figure


def draw_latent(cells: Cells, plan: Plan) -> Figure:
    """Figure 3: the latent posterior of the masked 4 in two directions, coloured by digit."""
    figure, axes = _panels(1, 3, 3.0, 2.9)
    panels = [
        (THEIRS, f"recipe {THEIRS} {MASKED} annealed", "Laplace mixture of Adam's minima"),
        (THEIRS, f"posterior {THEIRS} {MASKED}", "certified"),
        (OURS, f"posterior {OURS} {MASKED}", "certified"),
    ]
    colours = _digit_colours([cells[name]["digits"] for _, name, _ in panels])
    for axis, (model, name, what) in zip(axes[0], panels, strict=True):
        posterior = cells[f"posterior {model} {MASKED}"]
        plane, pair = parting_axes(np.array(posterior["draws"]), np.array(posterior["digits"]))
        axis.set_title(f"{model}: {what}")
        parts = "direction that parts {}s and {}s" if pair else "widest direction"
        axis.set_xlabel(parts.format(*pair))
        axis.set_ylabel("widest direction left")
        draws, digits = np.array(cells[name]["draws"]), np.array(cells[name]["digits"])
        if not len(draws):
            continue
        points = draws @ plane
        for digit, colour in colours.items():
            chosen = digits == digit if digit >= 0 else ~np.isin(digits, [*colours])
            if not chosen.any():
                continue
            label = f"{'other' if digit < 0 else digit}: {np.mean(chosen):.0%}"
            axis.scatter(*points[chosen].T, s=6, color=colour, linewidths=0, alpha=0.7, label=label)
        axis.legend(frameon=True, edgecolor="none", markerscale=2, handletextpad=0.1)
    # The first two panels show the same plane.
    limits = np.array([[axis.get_xlim(), axis.get_ylim()] for axis in axes[0][:2]])
    low, high = limits[..., 0].min(axis=0), limits[..., 1].max(axis=0)
    for axis in axes[0][:2]:
        axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    return figure


def _digit_colours(panels: Sequence[Sequence[int]]) -> dict[int, str]:
    """Grey for the rest (-1), then one colour in all panels for each digit that is frequent."""
    shares = sum(np.bincount(digits, minlength=10) / len(digits) for digits in panels if digits)
    top = np.argsort(-np.asarray(shares), kind="stable")[:_COLOURED]
    chosen = [int(digit) for digit in top if np.asarray(shares)[digit] > 0]
    return {-1: OTHER, **dict(zip(chosen, MODES, strict=False))}


def parting_axes(
    draws: Float[np.ndarray, "n dim"], digits: Int[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "dim 2"], list[int]]:
    """What best parts the two most frequent digits, if there are two, and the widest left.

    Returns:
        The two directions as columns, and the digits that the first parts; without two frequent
        digits, the two widest directions and no digits.
    """
    spread = np.cov(draws.T)
    counts = np.bincount(digits, minlength=10)
    pair = np.argsort(-counts, kind="stable")[:2]
    if counts[pair].min() < _FEWEST:
        return np.linalg.eigh(spread)[1][:, ::-1][:, :2], []
    groups = [draws[digits == digit] for digit in pair]
    within = sum(np.cov(group.T) for group in groups) + 1e-6 * np.eye(len(spread))
    axis = np.linalg.solve(within, groups[1].mean(axis=0) - groups[0].mean(axis=0))
    axis /= np.linalg.norm(axis)
    off = np.eye(len(spread)) - np.outer(axis, axis)
    return np.column_stack([axis, np.linalg.eigh(off @ spread @ off)[1][:, -1]]), pair.tolist()


def draw_starts(cells: Cells, _: Plan) -> Figure:
    """The appendix's figure: where each of 20 starts ended, sorted, by Adam and by our search."""
    figure, axes = _panels(1, len(MODELS), 4.2, 2.9)
    for axis, model in zip(axes[0], MODELS, strict=True):
        recipe = cells[f"recipe {model} {MASKED} annealed"]
        ends = np.sort(cells[f"posterior {model} {MASKED}"]["ends"])
        order = np.argsort(recipe["ends"])
        values = np.array(recipe["ends"])[order]
        deepest = min(values[0], ends[0])
        values, ends = values - deepest, ends - deepest
        minimum = np.array(are_minima(recipe))[order]
        kinds = {"annealed Adam": (minimum, MODES[0])}
        kinds["annealed Adam, no minimum"] = (~minimum, "none")
        for label, (kind, face) in kinds.items():
            if kind.any():
                look = {"s": 26, "color": MODES[0], "facecolor": face, "label": label}
                axis.scatter(np.flatnonzero(kind) + 1, values[kind], **look)
        look = {"s": 18, "marker": "^", "color": MODES[1], "label": "our search, from the prior"}
        axis.scatter(np.arange(1, len(ends) + 1), ends, **look)
        if max(values.max(), ends.max()) > _WIDE:
            axis.set_yscale("symlog", linthresh=10)
        axis.set_title(f"{model}: {MASKED}")
        axis.set_xlabel("start, sorted")
        axis.set_xticks([1, 5, 10, 15, 20])
    axes[0][0].set_ylabel("$-\\ln p$ above the deepest end")
    _legend(figure, axes[0])
    return figure


def draw_fits(cells: Cells, plan: Plan) -> Figure:
    """Truth, data, and the images at the mode and at SVI's means."""
    figure, axes = _panels(len(MODELS), 5, 1.6, 1.7)
    titles = ["truth", "data", "EL2O (mode)", *(TITLES[family] for family in FAMILIES)]
    for row, model in zip(axes, MODELS, strict=True):
        fits = [cells[f"svi {model} {family}"] for family in FAMILIES]
        fits.insert(0, cells[f"gaussians {model}"]["fits"][LAPLACE])
        images = decode_images(plan.priors[model], jnp.array([fit["mean"] for fit in fits]))
        panels = [grey_pixels(true_image(NOISY)), _data(plan, model, NOISY), *_grey(images)]
        for axis, pixels, title in zip(row, panels, titles, strict=True):
            _show(axis, pixels, title if axis in axes[0] else "")
        row[0].set_ylabel(model)
    return figure


def draw_slices(cells: Cells, _: Plan) -> Figure:
    """-ln p along three coordinates through the deepest mode, and the fits."""
    figure, axes = _panels(len(MODELS), len(cells[f"slices {OURS}"]["curves"]), 2.9, 2.3)
    for row, model in zip(axes, MODELS, strict=True):
        curves = cells[f"slices {model}"]["curves"]
        # High enough to show the bottom of every fit.
        highest = max(min(curve["fits"][name]) for curve in curves for name in _LINES)
        for axis, curve in zip(row, curves, strict=True):
            axis.plot(curve["steps"], curve["exact"], color="black", lw=1.8, label="exact")
            for name, (colour, style) in _LINES.items():
                fit = np.array(curve["fits"][name])
                axis.plot(curve["steps"], fit, style, color=colour, lw=1.3, label=TITLES[name])
            axis.set_ylim(-0.5, max(9, highest + 4))
            axis.set_title(f"{model}: $u_{{{curve['direction']}}}$")
        row[0].set_ylabel("$-\\ln p$ above the mode")
    _legend(figure, axes[0][:1])
    return figure


FIGURES: dict[str, Callable[[Cells, Plan], Figure]] = {
    "figure1": draw_reconstructions,
    "figure2": draw_prior_samples,
    "figure3": draw_latent,
    "starts": draw_starts,
    "svi": draw_fits,
    "slices": draw_slices,
    "forward": draw_diagram,
}
"""Every figure by the name of its file, paper-<name>.png."""


def mosaic(tiles: Sequence[Pixels], columns: int, gap: int = 2) -> Pixels:
    """Lays images of one size out row by row on white."""
    edges = ((0, -len(tiles) % columns), (0, gap), (0, gap), (0, 0))
    padded = np.pad(np.stack(tiles), edges, constant_values=255)
    rows = [
        np.hstack([*padded[first : first + columns]]) for first in range(0, len(padded), columns)
    ]
    return np.vstack(rows)[:-gap, :-gap]


def _grey(images: Iterable[Float[Array | np.ndarray, "height width"]]) -> list[Pixels]:
    return [grey_pixels(np.asarray(image, np.float64)) for image in images]


def _data(plan: Plan, model: str, corruption: str) -> Pixels:
    y = np.asarray(plan.problem(model, corruption).y)
    return grey_pixels(y, *data_range(y))


def _legend(figure: Figure, axes: Any) -> None:
    """One legend below all panels."""
    pairs = [zip(*axis.get_legend_handles_labels(), strict=True) for axis in axes]
    found = {label: handle for each in pairs for handle, label in each}
    figure.legend(found.values(), found.keys(), ncols=len(found), loc="outside lower center")


def _panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, Any]:
    """A figure of panels of this size, in inches."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _show(axis: Any, pixels: Pixels, title: str = "") -> None:
    axis.imshow(pixels, interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if title:
        axis.set_title(title)
