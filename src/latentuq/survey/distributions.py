"""How the numbers of a survey are distributed, as figures of its page."""

import math

import numpy as np

from latentuq.report.figures import TEXT, make_plot, render_svg
from latentuq.report.html import inline_plot
from latentuq.survey.findings import COLOURS, Findings
from latentuq.survey.layout import RELIABLE, UNRELIABLE

# Numbers, their names, what they mean, and the range of those that are probabilities.
_PLOTS: tuple[tuple[str, str, str, tuple[float, float] | None], ...] = (
    (
        "log_evidence",
        "ln evidence",
        "How probable the data are under prior and noise. It compares only images of which the same"
        " pixels were seen, at the same noise.",
        None,
    ),
    (
        "reduced_chi_squared",
        "χ² per datum, deepest mode",
        "About 1 for a fit as good as it should be; below it where more error is assumed than there"
        " is.",
        None,
    ),
    (
        "predictive_p_value",
        "p-value",
        "If the model were exactly right, the bars would about reach the line everywhere. A pile at"
        " 0: data unlike what the model makes. A pile at 1: noise or model error are assumed larger"
        " than they are, the latter often on purpose.",
        (0, 1),
    ),
    ("seconds", "seconds", "How long an image took on its worker.", None),
    (
        "heaviest",
        "weight of the heaviest mode",
        "The probability of the weightiest explanation of each image: 1 if there is but one.",
        (0, 1),
    ),
)


def draw_distributions(found: Findings) -> str:
    """The histograms of all numbers that are known; nothing if none is."""
    plots = "".join(_distribution(found, *each) for each in _PLOTS)
    if not plots:
        return ""
    return f'<p>Reliable images in blue, others in orange.</p><div class="plots">{plots}</div>'


def _distribution(
    found: Findings, name: str, title: str, text: str, limits: tuple[float, float] | None
) -> str:
    """A histogram of what is known; nothing if nothing is."""
    values = found.numbers[name]
    known = values[np.isfinite(values)]
    if not known.size:
        return ""
    tail = 0.005 if known.size > 400 else 0.0
    low, high = limits or map(float, np.quantile(known, (tail, 1 - tail)))
    if high - low <= 1e-6 * max(abs(low), abs(high)):
        low, high = low - 0.1 * (abs(low) or 1), high + 0.1 * (abs(high) or 1)
    edges = np.linspace(low, high, int(np.clip(2 * math.sqrt(known.size), 6, 30)) + 1)
    bottom = np.zeros(len(edges) - 1)
    figure, axis = make_plot()
    for word in (RELIABLE, UNRELIABLE):
        heights, _ = np.histogram(values[found.are(word)], edges)
        axis.bar(edges[:-1], heights, np.diff(edges), bottom, align="edge", color=COLOURS[word])
        bottom += heights
    if name == "predictive_p_value":
        axis.axhline(known.size / len(bottom), color="black", linewidth=1)
    axis.yaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel(title, fontsize=TEXT)
    axis.set_ylabel("images", fontsize=TEXT)
    outside = int(known.size - bottom.sum())
    beyond = f" Beyond the ends of the picture: {count_images(outside)}." if outside else ""
    return inline_plot(render_svg(figure), text + beyond)


def count_images(images: int) -> str:
    """Writes a number of images."""
    return "1 image" if images == 1 else f"{images:,} images"
