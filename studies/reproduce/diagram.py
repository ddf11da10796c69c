"""The forward model as a drawing, with the names that our code has for its parts."""

import itertools
from typing import Any

import numpy as np

from latentuq.posterior.maps import decode_images
from latentuq.report.figures import data_range
from latentuq.report.palette import MODES, grey_pixels
from studies.reproduce.run import NOISY, OURS, Cells, Plan

_TEXT = 9
_SIDE = 0.9


def draw_diagram(cells: Cells, plan: Plan) -> Any:
    """Appendix B: training the VAE, fitting the flow, and the whole way from u to y.

    The images are one simulation of the noisy half-masked problem.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 4.3))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_xlim(0, 9.6)
    axis.set_ylim(0, 4.3)
    axis.set_axis_off()
    _training(axis, 3.75)
    _forward(axis, 1.9)
    problem = plan.problem(OURS, NOISY)
    drawn = problem.simulate(plan.key("diagram"))
    decoded = np.asarray(decode_images(problem.prior, drawn.u[None])[0], np.float64)
    y = np.asarray(drawn.y, np.float64)
    for x, pixels, name in (
        (4.2, grey_pixels(decoded), "g(u)"),
        (6.2, grey_pixels(np.asarray(drawn.x, np.float64)), "x"),
        (8.95, grey_pixels(y, *data_range(y)), "y"),
    ):
        half = _SIDE / 2
        axis.imshow(pixels, extent=(x - half, x + half, 0.3, 0.3 + _SIDE), zorder=2)
        axis.text(x, 0.13, name, ha="center", va="center", fontsize=_TEXT, style="italic")
        axis.plot([x, x], [0.3 + _SIDE, 1.68], color="0.7", lw=0.8, ls=":", zorder=1)
    axis.set_xlim(0, 9.6)
    axis.set_ylim(0, 4.3)
    axis.set_aspect("auto")
    return figure


def _training(axis: Any, y: float) -> None:
    """The two stages of `latentuq train`."""
    _label(axis, 0.15, y + 0.4, "trained once, on clean images: train_prior")
    places = [(0.55, "x"), (1.6, "encoder"), (2.65, "z"), (3.7, "decoder"), (4.75, "x'")]
    _chain(axis, y, places, boxes=("encoder", "decoder"))
    axis.text(2.65, y - 0.38, "1. VAE: ELBO", ha="center", fontsize=_TEXT - 1, color="0.35")
    places = [(6.05, "x"), (7.1, "encoder"), (7.95, "z"), (8.6, "flow⁻¹"), (9.25, "u")]
    _chain(axis, y, places, boxes=("encoder", "flow⁻¹"))
    axis.text(
        7.75,
        y - 0.38,
        "2. flow: likelihood of encoder samples",
        ha="center",
        fontsize=_TEXT - 1,
        color="0.35",
    )


def _forward(axis: Any, y: float) -> None:
    """From u to y."""
    _label(axis, 0.15, y + 0.75, "the forward model of every problem: InverseProblem")
    places = [
        (0.45, "u"),
        (1.35, "flow"),
        (2.2, "z"),
        (3.15, "decoder"),
        (4.2, "g(u)"),
        (5.2, "+ n_model"),
        (6.2, "x"),
        (7.05, "A"),
        (8.0, "+ n"),
        (8.95, "y"),
    ]
    boxes = ("flow", "decoder", "+ n_model", "A", "+ n")
    _chain(axis, y, places, boxes=boxes)
    for x, name in (
        (0.45, "N(0, I)"),
        (1.35, "prior.flow"),
        (3.15, "prior.decoder"),
        (5.2, "ModelError"),
        (7.05, "Operator"),
        (8.0, "GaussianNoise"),
    ):
        axis.text(
            x, y + 0.32, name, ha="center", fontsize=_TEXT - 2, color="0.35", family="monospace"
        )


def _chain(
    axis: Any,
    y: float,
    places: list[tuple[float, str]],
    boxes: tuple[str, ...],
) -> None:
    """Quantities and the functions between them, joined by arrows."""
    for x, name in places:
        box = name in boxes
        style = {"boxstyle": "round,pad=0.35", "facecolor": "#e8f1f8", "edgecolor": MODES[0]}
        axis.text(
            x,
            y,
            name,
            ha="center",
            va="center",
            fontsize=_TEXT,
            style="normal" if box else "italic",
            bbox=style if box else None,
            zorder=3,
        )
    for (left, a), (right, b) in itertools.pairwise(places):
        start, end = left + _half(a, a in boxes), right - _half(b, b in boxes)
        arrow = {"arrowstyle": "->", "color": "0.3", "lw": 1}
        axis.annotate("", (end, y), (start, y), arrowprops=arrow)


def _half(name: str, box: bool) -> float:
    """Half the width of a name, with its box."""
    return 0.038 * len(name) + (0.13 if box else 0.08)


def _label(axis: Any, x: float, y: float, text: str) -> None:
    axis.text(x, y, text, fontsize=_TEXT, weight="bold", va="center")
