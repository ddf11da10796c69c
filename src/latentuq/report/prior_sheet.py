"""Prior samples before and after the flow, side by side."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.errors import UserError
from latentuq.files import atomic_path
from latentuq.prior import GenerativePrior


def tile(images: Float[Array, "n height width"], columns: int, gap: int = 2) -> np.ndarray:
    """Lays images out row by row on a white sheet."""
    n, height, width = images.shape
    rows = -(-n // columns)
    sheet = np.ones((rows * (height + gap) - gap, columns * (width + gap) - gap))
    for i, image in enumerate(np.asarray(images)):
        top, left = (i // columns) * (height + gap), (i % columns) * (width + gap)
        sheet[top : top + height, left : left + width] = image
    return sheet


def draw_prior_sheet(key: Key[Array, ""], prior: GenerativePrior, columns: int = 8) -> Any:
    """Draws decoder means of z ~ N(0, I) (left) and of z = flow(u) with the same u (right)."""
    from matplotlib.figure import Figure

    if len(prior.shape) != 2:
        raise UserError(f"A sheet needs two-dimensional images, not {prior.shape}.")
    u = jax.random.normal(key, (columns * columns, prior.dim))
    panels = {"before the flow: $z \\sim N(0, I)$": jax.vmap(prior.decoder)(u)}
    if prior.flow is not None:
        panels["after the flow: $z = \\mathrm{flow}(u)$"] = prior.decode(u)
    figure = Figure(figsize=(4.2 * len(panels) + 0.3, 4.5), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, gridspec_kw={"wspace": 0.05})[0]
    for axis, (title, images) in zip(axes, panels.items(), strict=True):
        axis.imshow(tile(jnp.clip(images, 0, 1), columns), cmap="gray", vmin=0, vmax=1)
        axis.set_title(title, fontsize=11)
        axis.set_axis_off()
    return figure


def save_figure(figure: Any, path: Path, dpi: int = 130) -> None:
    """Writes a figure as the kind of file that its suffix names."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=dpi)
