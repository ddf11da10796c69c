"""Colours that a colour-blind reader can tell apart, and images as pixels."""

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, UInt8

MODES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's palette: one colour for each mode, the heaviest first."""
OTHER = "#8a8a8a"
"""The colour of what belongs to no mode that is shown."""
MISSING = (150, 175, 205)
"""Where there are no data: neither black nor white nor a shade between."""


def mode_colour(mode: int) -> str:
    """The colour of a mode by its place among those shown; grey for others."""
    return MODES[mode] if 0 <= mode < len(MODES) else OTHER


def grey_pixels(
    image: Float[np.ndarray, "height width"], low: float = 0.0, high: float = 1.0
) -> UInt8[np.ndarray, "height width 3"]:
    """Grey values from low (black) to high (white); NaN in the colour of missing data."""
    missing = np.isnan(image)
    span = max(high - low, 1e-12)
    level = np.clip((np.where(missing, low, image) - low) / span, 0, 1)
    pixels = np.repeat(np.rint(255 * level).astype(np.uint8)[..., None], 3, axis=2)
    pixels[missing] = MISSING
    return pixels


def heat_pixels(
    image: Float[np.ndarray, "height width"], high: float
) -> UInt8[np.ndarray, "height width 3"]:
    """A map of uncertainty, from zero (black) to high (light yellow)."""
    level = np.clip(np.nan_to_num(image) / max(high, 1e-12), 0, 1)
    return mpl.colormaps["inferno"](level, bytes=True)[..., :3]
