"""An observation as people have it: any image file, any range of values, holes."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from latentuq.core.errors import UserError
from latentuq.data.images import read_array, read_fits_header, reduce_colour
from latentuq.data.scaling import Scaling

# What says nothing about the units of an image: the range of its kind of number does.
_UNIT = Scaling(0.0, 1.0)
_COMMON = (_UNIT, Scaling(0.0, 255.0))
# What white may be among whole numbers whose kind does not say it.
_WHITES = (1.0, 255.0, 65535.0)
# Images whose largest value is below this are rather in other units than that dark.
_FAINT = 0.05


class Observation(NamedTuple):
    """Data, NaN where they are missing.

    Attributes:
        values: On the scale of the prior's images.
        scaling: From the file's units to that scale.
        header: Of a FITS file; None for others.
    """

    values: Float[np.ndarray, "*data"]
    scaling: Scaling
    header: Any | None


def read_observation(path: str, trained: Scaling = _UNIT) -> Observation:
    """Reads data: whole numbers are scaled to [0, 1], other numbers are taken as they are.

    Whole numbers are divided by 255 or 65535 if they have 8 or 16 unsigned bits, and else by the
    smallest of 1, 255 and 65535 that is large enough; unless the prior was trained on files of
    another range: then they are taken to be in the units of those. Colour is reduced to grey.

    Args:
        path: An image; `file.fits[1]` or `file.fits[SCI]` chooses an extension. A `.npy` file may
            hold a vector.
        trained: Scaling of the prior's training files.
    """
    raw = read_array(path)
    if not raw.size:
        raise UserError(f"{path} holds no pixels: its shape is {raw.shape}.")
    if raw.ndim > 2:
        raw = reduce_colour(raw, path)
    scaling = _UNIT
    if raw.dtype.kind in "ui":
        scaling = trained if trained not in _COMMON else Scaling(0.0, _white(raw, path))
    values = scaling.to_unit(raw).astype(np.float64)
    if np.isnan(values).all():
        raise UserError(f"{path} holds nothing but missing pixels (NaN).")
    if np.isinf(values).any():
        raise UserError(f"{path} holds infinite values; mark missing pixels by NaN.")
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if values.ndim == 2 and (low < 0 or high > 1 or 0 < high < _FAINT):
        warnings.warn(
            f"{path} has values from {low:.3g} to {high:.3g} where the prior's images have 0 to 1:"
            " unless noise or a gain explains that, scale it so that black is 0 and white is 1.",
            stacklevel=2,
        )
    return Observation(values, scaling, read_fits_header(path))


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
