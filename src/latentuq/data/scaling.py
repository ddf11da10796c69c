"""The affine map between the units of the user's files and the unit interval of the prior."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentuq.core.errors import UserError


@dataclass(frozen=True)
class Scaling:
    """The map `x = (raw - offset) / scale` from file values to prior values.

    Black is `offset` and white is `offset + scale`, which is the smaller one in a negative.
    """

    offset: float
    scale: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.offset) and math.isfinite(self.scale) and self.scale):
            raise UserError(
                f"A scaling needs a finite offset and a finite scale other than 0, "
                f"not offset {self.offset} and scale {self.scale}."
            )

    def to_unit(self, raw: Any) -> np.ndarray:
        """Return `(raw - offset) / scale` as float32; values outside the range are not clipped."""
        values = np.asarray(raw)
        # float32 holds 8- and 16-bit integers exactly; wider types are computed in float64.
        unit = values.astype(np.result_type(values.dtype, np.float32))
        if self.offset != 0:
            unit -= self.offset
        if self.scale != 1:
            unit /= self.scale
        return unit.astype(np.float32, copy=False)

    def from_unit(self, x: Any) -> Any:
        """Return `x * scale + offset`, for NumPy and JAX arrays alike."""
        return x * self.scale + self.offset

    @property
    def step(self) -> float:
        """What one unit of the prior's scale is in the units of the file: a standard deviation."""
        return abs(self.scale)

    @property
    def white(self) -> float:
        """The value of the file that the prior calls 1."""
        return self.offset + self.scale

    def __str__(self) -> str:
        return f"black is {self.offset:.6g} and white is {self.white:.6g}"

    def inverted(self) -> "Scaling":
        """The map for a negative: black and white change places."""
        return Scaling(self.white, -self.scale)


UNIT, BYTES = Scaling(0.0, 1.0), Scaling(0.0, 255.0)
"""The scalings of images that are in [0, 1] already, and of 8-bit images."""


def fit_scaling(raw: np.ndarray, name: str) -> Scaling:
    """Return the scaling for training images: 8-bit over 255, [0, 1] as is, else min to max.

    Args:
        raw: Finite training images in the units of their file.
        name: What errors call them.
    """
    low, high = float(raw.min()), float(raw.max())
    if low == high:
        raise UserError(f"All pixels of {name} are equal to {low:g}: there is nothing to learn.")
    if raw.dtype == np.uint8:
        return BYTES
    if raw.dtype.kind in "fb" and low >= 0 and high <= 1:
        return UNIT
    return Scaling(low, high - low)
