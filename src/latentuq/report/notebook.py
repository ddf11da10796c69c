"""What posteriors and priors show of themselves, in notebooks and as a report."""

import html
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from latentuq.core.arrays import read_count, read_real
from latentuq.core.errors import UserError
from latentuq.core.files import read_path, staged_folder
from latentuq.core.randomness import read_key
from latentuq.posterior.posterior import Posterior
from latentuq.prior.generative import GenerativePrior
from latentuq.report.collect import collect, collect_overview
from latentuq.report.figures import draw_overview, draw_sheet
from latentuq.report.html import encode_png, inline_image
from latentuq.report.palette import grey_pixels
from latentuq.report.write import FILES, Background, write_report, write_summary

# Modes in a notebook, and the width of their images there.
_MOST_MODES = 6
_MODE_WIDTH = 64


def report_posterior(
    post: Posterior, folder: str | Path, force: bool, title: str | None, truth: ArrayLike | None
) -> Path:
    """Writes a report on a posterior and returns its page; see `Posterior.report`."""
    known = _read_truth(post, truth)
    with staged_folder(read_path(folder), force, FILES) as staged:
        content = collect(jax.random.fold_in(post.key, 4), post, known)
        assert post.problem is not None  # Without one `collect` has raised an error.
        background = Background(title or f"An image under {post.problem.prior.card.name}")
        write_summary(staged, write_report(staged, post, content, background))
    return Path(folder) / "report.html"


def plot_posterior(post: Posterior, truth: ArrayLike | None = None) -> Any:
    """Draws the overview of a posterior; see `Posterior.plot`."""
    overview = collect_overview(post, _read_truth(post, truth))
    return draw_overview(overview, _largest(overview.std))


def plot_prior(prior: GenerativePrior, n: int, key: Key[Array, ""] | None) -> Any:
    """Draws a sheet of images of a prior; see `GenerativePrior.plot`."""
    if len(prior.shape) != 2:
        raise UserError(f"Only images of two dimensions can be drawn, not of shape {prior.shape}.")
    key = jax.random.key(0) if key is None else read_key(key)
    return draw_sheet(np.asarray(prior.sample(key, read_count(n))))


def show_posterior(post: Posterior) -> str:
    """The overview, modes and marks of a posterior as HTML; tables alone if it has no images."""
    images: list[str] = []
    overview = ""
    try:
        overview = inline_image(plot_posterior(post)._repr_png_(), "overview", "max-width: 100%")
        style = f"width: {_MODE_WIDTH}px; image-rendering: pixelated"
        for each in np.asarray(post.mode_images)[:_MOST_MODES]:
            images.append(inline_image(encode_png(grey_pixels(each)), "mode", style) + "<br>")
    except UserError:  # It has no images, or none of two dimensions.
        images = [""] * _MOST_MODES
    weights, errors = np.asarray(post.weights), np.asarray(post.weight_errors)
    shown = zip(images, weights, errors, strict=False)
    modes = "".join(f"<td>{image}{w:.1%} ± {error:.1%}</td>" for image, w, error in shown)
    more = len(weights) - _MOST_MODES
    marks = "".join(
        f"<tr><th>{name}</th><td>{mark.standing}</td>"
        f'<td style="text-align: left">{html.escape(mark.sentence)}</td></tr>'
        for name, mark in post.verdict.marks.items()
    )
    return (
        f"<div>{overview}<table><tr><th>modes</th>{modes}"
        f"{f'<td>and {more} more</td>' if more > 0 else ''}</tr></table>"
        f"<p><strong>{post.verdict.word}</strong>, ln evidence {post.log_evidence:.2f}"
        f" ± {post.log_evidence_error:.2f}</p><table>{marks}</table></div>"
    )


def _read_truth(
    post: Posterior, truth: ArrayLike | None
) -> Float[np.ndarray, "height width"] | None:
    if truth is None:
        return None
    values, shape = read_real(truth, "The truth"), np.shape(post.mode_images)[1:]
    if values.shape != shape:
        raise UserError(f"The truth has shape {values.shape}, but the images have shape {shape}.")
    return values


def _largest(std: Float[np.ndarray, "height width"]) -> float:
    finite = std[np.isfinite(std)]
    return float(finite.max()) if finite.size else 0.0
