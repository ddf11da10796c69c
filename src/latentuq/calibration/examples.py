"""Some images of a check beside their reconstructions, and all of them on one sheet."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure
from PIL import Image

from latentuq.core.files import atomic_path, make_folder
from latentuq.problem.inverse import InverseProblem
from latentuq.report.figures import data_range
from latentuq.report.palette import grey_pixels, heat_pixels

EXAMPLES = 6
"""The number of images that are shown."""
_PANELS = ("data", "posterior mean", "a sample", "standard deviation", "truth")
# Samples of the prior in a row of the sheet.
_SAMPLES = 10
_TEXT = 8

Pixels = UInt8[np.ndarray, "height width 3"]


def save_example(
    folder: Path,
    number: int,
    problem: InverseProblem,
    truth: Float[np.ndarray, "height width"],
    drawn: Float[np.ndarray, "n height width"],
    spread: float,
) -> None:
    """Writes the panels of one image side by side.

    Args:
        folder: The folder of the check.
        number: The number of the image.
        problem: The problem that was solved.
        truth: The clean image.
        drawn: Images of its posterior.
        spread: The standard deviation that is shown in the lightest colour.
    """
    data = np.asarray(problem.y)
    panels = [
        grey_pixels(np.mean(drawn, axis=0)),
        grey_pixels(drawn[0]),
        heat_pixels(np.std(drawn, axis=0), spread),
        grey_pixels(truth),
    ]
    if data.ndim == 2:
        seen = Image.fromarray(grey_pixels(data, *data_range(data)))
        size = (truth.shape[1], truth.shape[0])
        panels.insert(0, np.asarray(seen.resize(size, Image.Resampling.NEAREST)))
    path = _place(folder, number)
    make_folder(path.parent)
    with atomic_path(path) as temporary:
        Image.fromarray(np.concatenate(panels, axis=1)).save(temporary, "PNG")


def read_examples(folder: Path, width: int) -> list[dict[str, Pixels]]:
    """The panels of the images that are shown, by name.

    Args:
        folder: The folder of the check.
        width: The width of the prior's images.
    """
    found = []
    for path in filter(Path.is_file, (_place(folder, number) for number in range(EXAMPLES))):
        pixels = np.asarray(Image.open(path))
        panels = np.split(pixels, pixels.shape[1] // width, axis=1)
        found.append(dict(zip(_PANELS[-len(panels) :], panels, strict=True)))
    return found


def draw_sheet(
    samples: Float[np.ndarray, "n height width"], examples: list[dict[str, Pixels]]
) -> Any:
    """A figure with samples of the prior above, and reconstructions beside the truth below."""
    rows = [[grey_pixels(each) for each in samples[:_SAMPLES]]]
    rows += [[*example.values()] for example in examples]
    aspect = samples.shape[1] / samples.shape[2]
    sizes = [min(8 / len(rows[0]), 1.2), *[1.3] * len(examples)]
    figure: Any = Figure(
        figsize=(8, aspect * sum(sizes) + 0.3 * len(rows) + 0.3), layout="constrained"
    )
    parts = figure.subfigures(2, 1, height_ratios=[sizes[0] + 0.3, sum(sizes[1:]) + 0.3])
    for part, lines, title, names in (
        (parts[0], rows[:1], "Samples of the prior", ()),
        (parts[1], rows[1:], "Held-out images and their reconstructions", tuple(examples[0])),
    ):
        part.suptitle(title, fontsize=_TEXT + 2)
        axes = part.subplots(len(lines), len(lines[0]), squeeze=False)
        for place, (line, row) in enumerate(zip(lines, axes, strict=True)):
            for column, (pixels, axis) in enumerate(zip(line, row, strict=True)):
                axis.imshow(pixels, interpolation="nearest")
                axis.set_axis_off()
                if names and not place:
                    axis.set_title(names[column], fontsize=_TEXT)
    return figure


def _place(folder: Path, number: int) -> Path:
    return folder / "examples" / f"{number}.png"
