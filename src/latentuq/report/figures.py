"""The figures of a report, for papers and slides: every one can be saved as PNG, SVG or PDF."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from latentuq.report.content import Content, Overview, Slice
from latentuq.report.palette import grey_pixels, heat_pixels, mode_colour

TEXT = 9
"""The size of text in figures, in points."""
_DPI = 130
# Samples in a row.
_COLUMNS = 12
# Where the scale of the search turns from linear to logarithmic, in nats.
_LINEAR = 10


class Panel(NamedTuple):
    """One image of the overview; `note` tells the range of its scale where that is not [0, 1]."""

    name: str
    pixels: UInt8[np.ndarray, "height width 3"]
    note: str = ""


class NotebookFigure(Figure):
    """A figure that notebooks show, whether or not they have imported pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def overview_panels(overview: Overview | Content, brightest: float) -> list[Panel]:
    """Data (if they are an image), the most probable image, mean, deviation, truth if known.

    Args:
        overview: The images.
        brightest: The standard deviation that is shown brightest.
    """
    data, panels = overview.data, []
    if data is not None and data.ndim == 2:
        low, high = data_range(data)
        note = "" if (low, high) == (0, 1) else true_minus(f"shown from {low:.2g} to {high:.2g}")
        panels.append(Panel("data", grey_pixels(data, low, high), note))
    panels += [
        Panel("most probable", grey_pixels(overview.map_image)),
        Panel("posterior mean", grey_pixels(overview.mean)),
        Panel("standard deviation", heat_pixels(overview.std, brightest), f"0 to {brightest:.2f}"),
    ]
    if overview.truth is not None:
        panels.append(Panel("truth", grey_pixels(overview.truth)))
    return panels


def draw_overview(overview: Overview | Content, brightest: float) -> Any:
    """All panels of the overview in a row."""
    panels = overview_panels(overview, brightest)
    figure, axes = _sheet(1, len(panels), 1.9)
    for axis, panel in zip(axes[0], panels, strict=True):
        _show(axis, panel.pixels, panel.name)
    return figure


def draw_modes(content: Content) -> Any:
    """A row for each mode: its image, its uncertainty, images that belong to it."""
    count = max(len(card.samples) for card in content.cards)
    side = content.map_image.shape[1]
    strips = [
        _strip([grey_pixels(each) for each in card.samples], count, gap=side // 7)
        for card in content.cards
    ]
    widths = [side, side, strips[0].shape[1]]
    figure, axes = _sheet(len(strips), 3, 1.15, width=1.15 * (2 + count), widths=widths)
    for place, (row, card, strip) in enumerate(zip(axes, content.cards, strips, strict=True)):
        _show(row[0], grey_pixels(card.image), f"{card.weight:.1%}", mode_colour(place))
        _show(row[1], heat_pixels(card.std, heat_range(content)), "std" if not place else "")
        _show(row[2], strip)
        row[2].set_axis_off()
    return figure


def draw_sheet(images: Float[np.ndarray, "n height width"]) -> Any:
    """Images side by side, in as many rows as they need."""
    columns = min(len(images), _COLUMNS)
    rows = [
        _strip([grey_pixels(each) for each in images[first : first + columns]], columns)
        for first in range(0, len(images), columns)
    ]
    return _stack_rows(rows, columns)


def draw_samples(content: Content) -> Any:
    """Clean images, and under each what the instrument would have made of it."""
    kinds = [[grey_pixels(each) for each in content.samples]]
    if content.data.ndim == 2:
        limits = data_range(content.data)
        kinds.append([grey_pixels(each, *limits) for each in content.replicates])
    rows = [
        _strip(images[first : first + _COLUMNS])
        for first in range(0, len(content.samples), _COLUMNS)
        for images in kinds
    ]
    return _stack_rows(rows, _COLUMNS)


def _stack_rows(rows: Sequence[np.ndarray], columns: int) -> Any:
    figure, axes = _sheet(len(rows), 1, 0.8, width=0.8 * columns)
    for axis, row in zip(axes[:, 0], rows, strict=True):
        _show(axis, row)
        axis.set_axis_off()
    return figure


def _strip(images: Sequence[np.ndarray], columns: int = _COLUMNS, gap: int = 2) -> np.ndarray:
    """Images side by side, with white gaps: axes of their own would take long to draw."""
    between = np.full((images[0].shape[0], gap, 3), 255, np.uint8)
    blank = np.full_like(images[0], 255)
    filled = [*images, *[blank] * (columns - len(images))]
    return np.concatenate([part for each in filled for part in (each, between)][:-1], axis=1)


def draw_components(content: Content) -> Any:
    """The mean minus and plus two standard deviations along the leading components."""
    figure, axes = _sheet(2, len(content.components), 1.3)
    for column, component in enumerate(content.components):
        _show(axes[0][column], grey_pixels(component.low), f"{component.share:.0%} of variance")
        _show(axes[1][column], grey_pixels(component.high))
    axes[0][0].set_ylabel("−2 sd", fontsize=TEXT)
    axes[1][0].set_ylabel("+2 sd", fontsize=TEXT)
    return figure


def draw_latent(content: Content) -> Any:
    """Posterior draws of u in two directions, coloured by mode."""
    view = content.latent
    figure, axis = make_plot()
    # Markers of one colour make a much smaller SVG than points of many; grey ones lie below.
    for place in np.unique(view.mode):
        points, colour = view.points[view.mode == place], mode_colour(int(place))
        axis.plot(*points.T, "o", markersize=2, markeredgewidth=0, color=colour, alpha=0.6)
    # Lines lie above markers unless told otherwise.
    style = {"s": 60, "marker": "X", "edgecolor": "black", "linewidth": 0.8, "zorder": 3}
    for place, centre in enumerate(view.centres):
        axis.scatter(*centre, color=mode_colour(place), **style)
    _explain_points(figure, others=bool(np.any(view.mode < 0)))
    parted = "direction that parts the two heaviest modes" if view.parted else "widest direction"
    axis.set_xlabel(parted, fontsize=TEXT)
    axis.set_ylabel("widest direction left" if view.parted else "second widest", fontsize=TEXT)
    return figure


def true_minus(text: str) -> str:
    """The sign of negative numbers as figures have it, longer than a hyphen."""
    return re.sub(r"(?<![\w.])-(?=\d)", "−", text)


def _explain_points(figure: Any, others: bool) -> None:
    shown = {"draws": ("o", mode_colour(0), 3), "modes": ("X", mode_colour(0), 7)}
    if others:
        shown["draws of no mode shown"] = ("o", mode_colour(-1), 3)
    handles = [
        Line2D([], [], linestyle="", marker=marker, color=colour, markersize=size, label=name)
        for name, (marker, colour, size) in shown.items()
    ]
    handles[1].set_markeredgecolor("black")
    figure.legend(
        handles=handles,
        loc="outside upper right",
        ncols=3,
        frameon=False,
        fontsize=TEXT - 1,
        handletextpad=0.1,
        columnspacing=1,
    )


def draw_search(content: Content) -> Any:
    """Where every start ended, sorted by -ln p."""
    finite = np.isfinite(content.search_values)
    values, modes = content.search_values[finite], content.search_modes[finite]
    order = np.argsort(values)
    figure, axis = make_plot()
    colours = [mode_colour(int(mode)) for mode in modes[order]]
    axis.scatter(np.arange(1, len(order) + 1), values[order], s=10, color=colours)
    axis.set_xlabel("start, sorted", fontsize=TEXT)
    axis.set_ylabel("−ln p(u | y) where it ended", fontsize=TEXT)
    if len(order) and values.max() - values.min() > 50:
        _set_wide_scale(axis, float(values.min()), float(values.max()))
    return figure


def _set_wide_scale(axis: Any, low: float, high: float) -> None:
    """Linear near zero and logarithmic beyond, with ticks on both sides of it."""
    axis.set_yscale("symlog", linthresh=_LINEAR)
    powers = [_LINEAR * 10**power for power in range(9)]
    ticks = [*(-each for each in reversed(powers)), -_LINEAR / 2, 0, _LINEAR / 2, *powers]
    first = max(each for each in ticks if each <= max(low, ticks[0]))
    axis.set_yticks([each for each in ticks if first <= each <= high])
    axis.minorticks_off()
    axis.yaxis.set_major_formatter(lambda value, _: true_minus(f"{value:g}"))


def draw_slices(slices: Sequence[Slice]) -> Any:
    """-ln p through the heaviest mode against its Gaussian, side by side."""
    figure, axes = make_plot(len(slices))
    for axis, one in zip(np.atleast_1d(axes), slices, strict=True):
        axis.plot(one.steps, one.exact, color="#0072b2", label="exact")
        axis.plot(one.steps, one.steps**2 / 2, color="#d55e00", linestyle="--", label="Gaussian")
        # All of the exact curve but the steep ends of a bad fit.
        finite = [0.0, *one.exact[np.isfinite(one.exact)]]
        axis.set_ylim(min(finite) - 0.5, float(np.clip(max(finite), 5, 12)) + 0.5)
        axis.set_title(f"{one.name}, sd {one.width:.2g}", fontsize=TEXT)
        axis.set_xlabel("standard deviations", fontsize=TEXT)
    first = figure.axes[0]
    first.set_ylabel("−ln p above the centre", fontsize=TEXT)
    first.legend(frameon=False, fontsize=TEXT - 1)
    return figure


def draw_data(content: Content) -> Any:
    """Data that are no image, and the range of what samples would have made."""
    figure, axis = make_plot()
    places = np.arange(content.data.size)
    low, high = np.quantile(content.replicates.reshape(len(content.replicates), -1), (0, 1), axis=0)
    axis.fill_between(places, low, high, color="#56b4e9", alpha=0.5, label="samples")
    axis.plot(places, content.data.ravel(), ".", markersize=3, color="black", label="data")
    axis.set_xlabel("datum", fontsize=TEXT)
    axis.legend(frameon=False, fontsize=TEXT - 1)
    return figure


def draw_gallery(contents: Mapping[str, Content]) -> Any:
    """The overviews of several reports, one below the other."""
    rows = [overview_panels(each, heat_range(each)) for each in contents.values()]
    figure, axes = _sheet(len(rows), max(map(len, rows)), 1.5)
    for place, (name, panels) in enumerate(zip(contents, rows, strict=True)):
        for axis, panel in zip(axes[place], panels, strict=False):
            _show(axis, panel.pixels, "" if place else panel.name)
        axes[place][0].set_ylabel(name, fontsize=TEXT)
    return figure


FIGURES: dict[str, Callable[[Content], Any]] = {
    "overview": lambda content: draw_overview(content, heat_range(content)),
    "modes": draw_modes,
    "samples": draw_samples,
    "components": draw_components,
    "latent": draw_latent,
    "search": draw_search,
    "slices": lambda content: draw_slices(content.slices),
}
"""Every figure by the name of its file."""


def save_figure(figure: Any, path: Path) -> str:
    """Writes a figure as PNG and as SVG beside it, and returns the text of the latter."""
    # `savefig` would draw twice, at first only for the layout.
    FigureCanvasAgg(figure).print_png(path)
    # Both share one layout, which takes as long to find as a figure to draw.
    figure.set_layout_engine("none")
    text = render_svg(figure)
    path.with_suffix(".svg").write_text(text, encoding="utf-8")
    return text


def render_svg(figure: Any) -> str:
    """A figure as SVG; the same figure always gives the same text."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "latentuq"}):
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
    return buffer.getvalue()


def data_range(data: Float[np.ndarray, "*data"]) -> tuple[float, float]:
    """From black to white: [0, 1], widened to the bulk of noisy data."""
    seen = data[np.isfinite(data)]
    if not seen.size:
        return 0.0, 1.0
    low, high = np.quantile(seen, [0.005, 0.995])
    return min(0.0, float(low)), max(1.0, float(high))


def heat_range(content: Content) -> float:
    """The largest standard deviation: one scale for all maps of a report."""
    return max(float(np.nanmax(each.std)) for each in (content, *content.cards))


def _sheet(
    rows: int,
    columns: int,
    side: float,
    width: float | None = None,
    widths: Sequence[float] | None = None,
) -> tuple[Any, Any]:
    size = (width or side * columns, (side + 0.12) * rows)
    figure = NotebookFigure(figsize=size, dpi=_DPI, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, width_ratios=widths)


def make_plot(panels: int = 1) -> tuple[Any, Any]:
    """A figure with axes side by side, without frames."""
    size = (3.8 if panels == 1 else 2.6 * panels, 2.7)
    figure = NotebookFigure(figsize=size, dpi=_DPI, layout="constrained")
    axes = figure.subplots(1, panels)
    for axis in np.atleast_1d(axes):
        axis.tick_params(labelsize=TEXT - 1)
        axis.locator_params(nbins=6)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    return figure, axes


def _show(axis: Any, pixels: Any, title: str = "", colour: str = "black") -> None:
    axis.imshow(pixels, interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])
    if title:
        axis.set_title(title, fontsize=TEXT, color=colour)
