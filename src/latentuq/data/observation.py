"""An observation as people have it: any image file, any range of values, holes."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from latentuq.data.images import read_fits_header, read_image
from latentuq.data.scaling import Scaling
from latentuq.errors import UserError


class Observation(NamedTuple):
    """Data, NaN where they are missing.

    Attributes:
        values: On the scale of the prior's images.
        scaling: From the file's units to that scale.
        header: Of a FITS file; None for others.
    """

    values: Float[np.ndarray, "height width"]
    scaling: Scaling
    header: Any | None


def read_observation(path: str) -> Observation:
    """Reads an image; 8 and 16 bits are scaled to [0, 1], other numbers are taken as they are.

    Args:
        path: The file; `file.fits[1]` or `file.fits[SCI]` chooses an extension.
    """
    raw = read_image(path)
    scaling = Scaling(0.0, {"uint8": 255.0, "uint16": 65535.0}.get(str(raw.dtype), 1.0))
    values = scaling.to_unit(raw).astype(np.float64)
    if np.isnan(values).all():
        raise UserError(f"{path} holds nothing but missing pixels (NaN).")
    if np.isinf(values).any():
        raise UserError(f"{path} holds infinite values; mark missing pixels by NaN.")
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if low < 0 or high > 1:
        warnings.warn(
            f"{path} has values from {low:.3g} to {high:.3g}; the prior's images lie in [0, 1]."
            " Noise may exceed that, another scale would not make sense.",
            stacklevel=2,
        )
    return Observation(values, scaling, read_fits_header(path))


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
