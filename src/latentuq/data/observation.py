"""An observation as people have it: any image file, any range of values, holes."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from latentuq.core.errors import UserError
from latentuq.core.text import printable
from latentuq.data.images import read_array, read_fits_header, real_values, reduce_colour
from latentuq.data.scaling import BYTES, UNIT, Scaling

# What white may be among whole numbers whose kind does not say it.
_WHITES = (1.0, 255.0, 65535.0)
# Images whose largest value is below this are rather in other units than that dark.
_FAINT = 0.05


class Observation(NamedTuple):
    """Data, NaN where they are missing.

    Attributes:
        name: What messages call it: its file.
        values: The data on the scale of the prior's images.
        scaling: The map from the units of the file to that scale.
        header: The header of a FITS file; None for others.
    """

    name: str
    values: Float[np.ndarray, "*data"]
    scaling: Scaling = UNIT
    header: Any | None = None

    def check(self) -> None:
        """Refuses data that are all missing, and warns of values that clean images do not have."""
        if np.isnan(self.values).all():
            raise UserError(f"{self.name} holds nothing but missing pixels (NaN).")
        low, high = float(np.nanmin(self.values)), float(np.nanmax(self.values))
        if self.values.ndim == 2 and (low < 0 or high > 1 or 0 < high < _FAINT):
            warnings.warn(
                f"{self.name} has values from {low:.3g} to {high:.3g} where the prior's images"
                " have 0 to 1: unless noise or a gain explains that, scale it so that black is 0"
                " and white is 1.",
                stacklevel=2,
            )


def read_observation(
    source: str | Path | np.ndarray, trained: Scaling = UNIT, axes: int = 2
) -> Observation:
    """Reads data: whole numbers are scaled to [0, 1], other numbers are taken as they are.

    Whole numbers are divided by 255 or 65535 if they have 8 or 16 unsigned bits, and else by the
    smallest of 1, 255 and 65535 that is large enough; unless the prior was trained on files of
    another range: then they are taken to be in the units of those. Booleans are 0 and 1.

    Args:
        source: An image, or an array as a file would hold it; `file.fits[1]` or `file.fits[SCI]`
            chooses an extension. A `.npy` or `.npz` file may hold a vector.
        trained: Scaling of the prior's training files.
        axes: The number of axes of the prior's images; unless it is three, colour is reduced to
            grey.
    """
    is_array = isinstance(source, np.ndarray)
    name = "The image" if is_array else printable(str(source))
    raw = real_values(source, name) if is_array else read_array(source)
    if not raw.size:
        raise UserError(f"{name} holds no pixels: its shape is {raw.shape}.")
    if raw.ndim > max(axes, 2):
        raw = reduce_colour(raw, name)
    scaling = UNIT
    if raw.dtype.kind in "ui":
        # Common scalings say nothing about units: the range of the kind of number does.
        scaling = Scaling(0.0, _white(raw, name)) if trained in (UNIT, BYTES) else trained
    values = scaling.to_unit(raw).astype(np.float64)
    if np.isinf(values).any():
        raise UserError(f"{name} holds infinite values; mark missing pixels by NaN.")
    return Observation(name, values, scaling, None if is_array else read_fits_header(source))


def full_scale(raw: np.ndarray) -> float:
    """The largest number that 8 or 16 unsigned bits hold; 1 for any other kind."""
    return {"uint8": 255.0, "uint16": 65535.0}.get(str(raw.dtype), 1.0)


def _white(raw: np.ndarray, path: str) -> float:
    """What whole numbers are to be divided by; said where their kind does not tell it."""
    if raw.dtype in (np.uint8, np.uint16):
        return full_scale(raw)
    low, high = int(raw.min()), int(raw.max())
    if low < 0 or high > _WHITES[-1]:
        raise UserError(
            f"{path} holds whole numbers from {low} to {high}, whose black and white are unknown:"
            " scale them so that black is 0 and white is 1, and save them as float."
        )
    white = next(each for each in _WHITES if high <= each)
    warnings.warn(
        f"{path} holds {raw.dtype} numbers up to {high}, divided by {white:.0f}: if white is"
        " another number, divide by that and save as float.",
        stacklevel=3,
    )
    return white


def resize(values: Float[np.ndarray, "height width"], shape: tuple[int, ...]) -> np.ndarray:
    """Another number of pixels, by averaging or interpolating; holes spread to what they touch."""
    from PIL import Image

    image = Image.fromarray(np.nan_to_num(values).astype(np.float32))
    holes = Image.fromarray(np.isnan(values).astype(np.float32))
    size, kind = (shape[1], shape[0]), Image.Resampling.BOX
    if shape[0] > values.shape[0] or shape[1] > values.shape[1]:
        kind = Image.Resampling.BILINEAR
    resized = np.array(image.resize(size, kind), np.float64)
    resized[np.asarray(holes.resize(size, kind)) > 1e-6] = np.nan
    return resized
