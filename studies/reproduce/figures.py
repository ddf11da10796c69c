"""The paper's figures from the cells, for the paper's networks and for our default prior."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from latentuq.data import load_digits
from latentuq.posterior.maps import decode_images
from latentuq.prior import GenerativePrior
from latentuq.problem.experiments import EXPERIMENTS
from latentuq.report.figures import data_range
from latentuq.report.palette import MODES, OTHER, grey_pixels
from studies.reproduce.diagram import draw_diagram
from studies.reproduce.fit_claims import TITLES
from studies.reproduce.gaussians import EL2O, LAPLACE
from studies.reproduce.recipe import are_minima
from studies.reproduce.run import FAMILIES, MASKED, MODELS, NOISY, OURS, THEIRS, Cells, Plan

_TEXT = 9
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


def draw_reconstructions(cells: Cells, plan: Plan) -> Any:
    """Figure 1: data, deepest modes and truths; samples of the masked 4, and what the mask left."""
    figure, axes = _sheet(len(MODELS), 3, 3.3, 2.9)
    for row, model in zip(axes, MODELS, strict=True):
        prior = plan.priors[model]
        data, found, truths = [], [], []
        for name, experiment in EXPERIMENTS.items():
            y = np.asarray(plan.problem(model, name).y)
            data.append(grey_pixels(y, *data_range(y)))
            found.append(_decoded(prior, [cells[f"posterior {model} {name}"]["map"]])[0])
            truths.append(grey_pixels(load_digits().digit(experiment.image)))
        columns = len(EXPERIMENTS)
        _show(row[0], mosaic([*data, *found, *truths], columns), f"{model}: data, mode, truth")
        row[0].set_yticks([14, 44, 74], ["data", "mode", "truth"], fontsize=_TEXT)
        row[0].set_xticks([14 + 30 * i for i in range(columns)], [*EXPERIMENTS], fontsize=_TEXT - 2)
        cell = cells[f"posterior {model} {MASKED}"]
        images = np.asarray(decode_images(prior, jnp.array(cell["samples"])), np.float64)
        seen = np.asarray(plan.problem(model, MASKED).observed)
        _show(row[1], mosaic([grey_pixels(image) for image in images], 4), "samples")
        masked = [grey_pixels(np.where(seen, image, np.nan)) for image in images]
        _show(row[2], mosaic(masked, 4), "the same, as the mask shows them")
    return figure


def draw_prior_samples(cells: Cells, plan: Plan) -> Any:
    """Figure 2: decoded draws of N(0, I), as they are and after the flow."""
    figure, axes = _sheet(1, 2 * len(MODELS), 2.5, 2.75)
    for place, model in enumerate(MODELS):
        prior = plan.priors[model]
        u = jax.random.normal(plan.key("prior samples"), (_SHEET**2, prior.dim))
        cell = cells[f"prior {model}"]
        for axis, images, when in (
            (axes[0][2 * place], jax.vmap(prior.decoder)(u), "before"),
            (axes[0][2 * place + 1], prior.decode(u), "after"),
        ):
            pixels = [grey_pixels(np.asarray(image, np.float64)) for image in images]
            accuracy = cell[f"image_c2st_{when}"]
            _show(axis, mosaic(pixels, _SHEET), f"{model}, {when} (C2ST {accuracy:.2f})")
    return figure


def draw_latent(cells: Cells, plan: Plan) -> Any:
    """Figure 3: the latent posterior of the masked 4 in two directions, coloured by digit."""
    figure, axes = _plots(1, 3, 3.0, 2.9)
    panels = [
        (THEIRS, f"recipe {THEIRS} {MASKED} annealed", "Laplace mixture of Adam's minima"),
        (THEIRS, f"posterior {THEIRS} {MASKED}", "certified"),
        (OURS, f"posterior {OURS} {MASKED}", "certified"),
    ]
    colours = _digit_colours([cells[name]["digits"] for _, name, _ in panels])
    for axis, (model, name, what) in zip(axes[0], panels, strict=True):
        posterior = cells[f"posterior {model} {MASKED}"]
        basis = parting_axes(np.array(posterior["draws"]), np.array(posterior["digits"]))
        axis.set_title(f"{model}: {what}", fontsize=_TEXT)
        first = "widest direction"
        if basis.digits:
            first = "direction that parts {}s and {}s".format(*basis.digits)
        axis.set_xlabel(first)
        axis.set_ylabel("widest direction left")
        draws, digits = np.array(cells[name]["draws"]), np.array(cells[name]["digits"])
        if not len(draws):
            continue
        points = draws @ basis.axes
        for digit, colour in colours.items():
            chosen = digits == digit if digit >= 0 else ~np.isin(digits, [*colours])
            if not chosen.any():
                continue
            label = f"{'other' if digit < 0 else digit}: {np.mean(chosen):.0%}"
            axis.scatter(*points[chosen].T, s=6, color=colour, linewidths=0, alpha=0.7, label=label)
        axis.legend(
            edgecolor="none", framealpha=0.8, fontsize=_TEXT - 1, markerscale=2, handletextpad=0.1
        )
    for row in axes:
        _same_range(row[:2])
    return figure


def _digit_colours(panels: Sequence[Sequence[int]]) -> dict[int, str]:
    """Grey for the rest (-1), then one colour in all panels for each digit that is frequent."""
    shares = sum(np.bincount(digits, minlength=10) / len(digits) for digits in panels if digits)
    top = np.argsort(-np.asarray(shares), kind="stable")[:_COLOURED]
    chosen = [int(digit) for digit in top if np.asarray(shares)[digit] > 0]
    return {-1: OTHER, **dict(zip(chosen, MODES, strict=False))}


class Basis(NamedTuple):
    """Two directions of u.

    Attributes:
        axes: As columns.
        digits: What the first direction parts; empty if it is the widest.
    """

    axes: Float[np.ndarray, "dim 2"]
    digits: tuple[int, ...]


def parting_axes(draws: Float[np.ndarray, "n dim"], digits: Int[np.ndarray, " n"]) -> Basis:
    """What best parts the two most frequent digits, if there are two, and the widest left."""
    spread = np.cov(draws.T)
    counts = np.bincount(digits, minlength=10)
    pair = np.argsort(-counts, kind="stable")[:2]
    if counts[pair].min() < _FEWEST:
        return Basis(np.linalg.eigh(spread)[1][:, ::-1][:, :2], ())
    groups = [draws[digits == digit] for digit in pair]
    within = sum(np.cov(group.T) for group in groups) + 1e-6 * np.eye(len(spread))
    axis = np.linalg.solve(within, groups[1].mean(axis=0) - groups[0].mean(axis=0))
    axis /= np.linalg.norm(axis)
    off = np.eye(len(spread)) - np.outer(axis, axis)
    axes = np.column_stack([axis, np.linalg.eigh(off @ spread @ off)[1][:, -1]])
    return Basis(axes, tuple(int(digit) for digit in pair))


def draw_starts(cells: Cells, plan: Plan) -> Any:
    """The appendix's figure: where each of 20 starts ended, sorted, by Adam and by our search."""
    figure, axes = _plots(1, len(MODELS), 4.2, 2.9)
    for axis, model in zip(axes[0], MODELS, strict=True):
        recipe, ours = (
            cells[f"recipe {model} {MASKED} annealed"],
            cells[f"posterior {model} {MASKED}"],
        )
        deepest = min(recipe["ends"] + ours["ends"])
        order = np.argsort(recipe["ends"])
        values = np.array(recipe["ends"])[order] - deepest
        minimum = np.array(are_minima(recipe))[order]
        places = np.arange(1, len(order) + 1)
        for kind, face in ((minimum, MODES[0]), (~minimum, "none")):
            label = "annealed Adam" + ("" if face != "none" else ", no minimum")
            if kind.any():
                axis.scatter(
                    places[kind], values[kind], s=26, color=MODES[0], facecolor=face, label=label
                )
        ends = np.sort(ours["ends"]) - deepest
        axis.scatter(
            np.arange(1, len(ends) + 1),
            ends,
            s=18,
            marker="^",
            color=MODES[1],
            label="our search, from the prior",
        )
        if max(values.max(), ends.max()) > _WIDE:
            axis.set_yscale("symlog", linthresh=10)
        axis.set_title(f"{model}: {MASKED}", fontsize=_TEXT)
        axis.set_xlabel("start, sorted")
        axis.set_xticks([1, 5, 10, 15, 20])
    axes[0][0].set_ylabel("$-\\ln p$ above the deepest end")
    _legend(figure, axes[0])
    return figure


def draw_fits(cells: Cells, plan: Plan) -> Any:
    """Truth, data, and the images at the mode and at SVI's means."""
    figure, axes = _sheet(len(MODELS), 5, 1.6, 1.7)
    truth = grey_pixels(load_digits().digit(EXPERIMENTS[NOISY].image))
    for place, (row, model) in enumerate(zip(axes, MODELS, strict=True)):
        y = np.asarray(plan.problem(model, NOISY).y)
        centres = [cells[f"gaussians {model}"]["fits"][LAPLACE]["mean"]]
        centres += [cells[f"svi {model} {family}"]["mean"] for family in FAMILIES]
        panels = [truth, grey_pixels(y, *data_range(y)), *_decoded(plan.priors[model], centres)]
        titles = ["truth", "data", "EL2O (mode)", *(TITLES[family] for family in FAMILIES)]
        for axis, pixels, title in zip(row, panels, titles, strict=True):
            _show(axis, pixels, title if place == 0 else "")
        row[0].set_ylabel(model, fontsize=_TEXT)
    return figure


def draw_slices(cells: Cells, plan: Plan) -> Any:
    """-ln p along three coordinates through the deepest mode, and the fits."""
    columns = len(cells[f"slices {OURS}"]["curves"])
    figure, axes = _plots(len(MODELS), columns, 2.9, 2.3)
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
            axis.set_title(f"{model}: $u_{{{curve['direction']}}}$", fontsize=_TEXT)
        row[0].set_ylabel("$-\\ln p$ above the mode")
    _legend(figure, axes[0][:1])
    return figure


FIGURES: dict[str, Callable[[Cells, Plan], Any]] = {
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
    height, width = tiles[0].shape[:2]
    rows = -(-len(tiles) // columns)
    size = (rows * (height + gap) - gap, columns * (width + gap) - gap, 3)
    sheet = np.full(size, 255, np.uint8)
    for place, tile in enumerate(tiles):
        top, left = (place // columns) * (height + gap), (place % columns) * (width + gap)
        sheet[top : top + height, left : left + width] = tile
    return sheet


def _decoded(prior: GenerativePrior, us: Sequence[Sequence[float]]) -> list[Pixels]:
    images: Float[Array, "n height width"] = decode_images(prior, jnp.array(us))
    return [grey_pixels(np.asarray(image, np.float64)) for image in images]


def _legend(figure: Any, axes: Any) -> None:
    """One legend below all panels."""
    found = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(
        found.values(),
        found.keys(),
        loc="outside lower center",
        ncols=len(found),
        frameon=False,
        fontsize=_TEXT - 1,
    )


def _same_range(axes: Any) -> None:
    """One range for panels that show the same plane."""
    for get, put in (("get_xlim", "set_xlim"), ("get_ylim", "set_ylim")):
        limits = np.array([getattr(axis, get)() for axis in axes])
        for axis in axes:
            getattr(axis, put)(limits[:, 0].min(), limits[:, 1].max())


def _sheet(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _plots(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    figure, axes = _sheet(rows, columns, width, height)
    for axis in axes.flat:
        axis.tick_params(labelsize=_TEXT - 1)
        for label in (axis.xaxis.label, axis.yaxis.label):
            label.set_size(_TEXT)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    return figure, axes


def _show(axis: Any, pixels: Pixels, title: str = "") -> None:
    axis.imshow(pixels, interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    if title:
        axis.set_title(title, fontsize=_TEXT)
