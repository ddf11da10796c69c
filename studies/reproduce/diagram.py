"""The forward model as a drawing, with the names that our code has for its parts."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latentuq.core.cells import Cells
from latentuq.posterior.maps import decode_images
from latentuq.report.figures import data_range
from latentuq.report.palette import MODES, grey_pixels
from studies.reproduce.plan import NOISY, OURS, Plan

_TEXT = 9
_SIDE = 0.9
_SIZE = (9.6, 4.3)
# The place of each quantity and function on its line, in inches from the left.
_VAE = {"x": 0.55, "encoder": 1.6, "z": 2.65, "decoder": 3.7, "x'": 4.75}
_FLOW = {"x": 6.05, "encoder": 7.1, "z": 7.95, "flow⁻¹": 8.6, "u": 9.25}
_FORWARD = {"u": 0.45, "flow": 1.35, "z": 2.2, "decoder": 3.15, "g(u)": 4.2, "+ n_model": 5.2}
_FORWARD |= {"x": 6.2, "A": 7.05, "+ n": 8.0, "y": 8.95}
# What has a box is a function, with its name in our code.
_FUNCTIONS = {"flow": "prior.flow", "decoder": "prior.decoder", "+ n_model": "ModelError"}
_FUNCTIONS |= {"A": "Operator", "+ n": "GaussianNoise", "encoder": "", "flow⁻¹": ""}


def draw_diagram(_: Cells, plan: Plan) -> Figure:
    """Appendix B: training the VAE, fitting the flow, and the whole way from u to y.

    The images are one simulation of the noisy half-masked problem.
    """
    figure = Figure(figsize=_SIZE)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_axis_off()
    bold: dict[str, Any] = {"fontsize": _TEXT, "weight": "bold", "va": "center"}
    axis.text(0.15, 4.15, "trained once, on clean images: train_prior", **bold)
    grey: dict[str, Any] = {"ha": "center", "color": "0.35"}
    _chain(axis, 3.75, _VAE)
    axis.text(2.65, 3.37, "1. VAE: ELBO", fontsize=_TEXT - 1, **grey)
    _chain(axis, 3.75, _FLOW)
    axis.text(7.75, 3.37, "2. flow: likelihood of encoder samples", fontsize=_TEXT - 1, **grey)
    axis.text(0.15, 2.65, "the forward model of every problem: InverseProblem", **bold)
    _chain(axis, 1.9, _FORWARD)
    for name, x in _FORWARD.items():
        code = "N(0, I)" if name == "u" else _FUNCTIONS.get(name, "")
        axis.text(x, 2.22, code, fontsize=_TEXT - 2, family="monospace", **grey)
    problem = plan.problem(OURS, NOISY)
    drawn = problem.simulate(plan.key("diagram"))
    images = {"g(u)": decode_images(problem.prior, drawn.u[None])[0], "x": drawn.x, "y": drawn.y}
    for name, image in images.items():
        values, x = np.asarray(image, np.float64), _FORWARD[name]
        pixels = grey_pixels(values, *data_range(values)) if name == "y" else grey_pixels(values)
        extent = (x - _SIDE / 2, x + _SIDE / 2, 0.3, 0.3 + _SIDE)
        axis.imshow(pixels, extent=extent, zorder=2)
        axis.text(x, 0.13, name, ha="center", va="center", fontsize=_TEXT, style="italic")
        axis.plot([x, x], [0.3 + _SIDE, 1.68], color="0.7", lw=0.8, ls=":", zorder=1)
    axis.set(xlim=(0, _SIZE[0]), ylim=(0, _SIZE[1]), aspect="auto")
    return figure


def _chain(axis: Any, y: float, places: Mapping[str, float]) -> None:
    """Quantities and the functions between them, joined by arrows."""
    box = {"boxstyle": "round,pad=0.35", "facecolor": "#e8f1f8", "edgecolor": MODES[0]}
    centred = {"ha": "center", "va": "center", "fontsize": _TEXT, "zorder": 3}
    for name, x in places.items():
        look = {"bbox": box} if name in _FUNCTIONS else {"style": "italic"}
        axis.text(x, y, name, **centred, **look)
    for (a, left), (b, right) in itertools.pairwise(places.items()):
        arrow = {"arrowstyle": "->", "color": "0.3", "lw": 1}
        axis.annotate("", (right - _half(b), y), (left + _half(a), y), arrowprops=arrow)


def _half(name: str) -> float:
    """Half the width of a name, with its box."""
    return 0.038 * len(name) + (0.13 if name in _FUNCTIONS else 0.08)
