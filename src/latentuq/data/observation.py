"""An observation as people have it: any image file, any units, holes."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from latentuq.core.errors import UserError
from latentuq.core.text import printable
from latentuq.data.images import read_array, read_fits_header, real_values, reduce_colour
from latentuq.data.scaling import BYTES, UNIT, Scaling

_WHITES = {"bool": 1.0, "uint8": 255.0, "uint16": 65535.0}
"""White, for kinds of numbers that tell it."""


RESIZING = {"crop": "what was too long was cut off", "pad": "missing pixels were added"}
"""The ways to keep proportions when an image is resized, and what each does."""


@dataclasses.dataclass(frozen=True)
class Units:
    """What the user says about the units of an image; None where nothing is said.

    Attributes:
        scale: White minus black.
        offset: Black.
        invert: Whether black and white change places.
        certain: Whether the scale was said of this very image, so that it is not doubted.
    """

    scale: float | None = None
    offset: float | None = None
    invert: bool = False
    certain: bool = True


@dataclasses.dataclass(frozen=True, eq=False)
class Observation:
    """Data in the units of their file, and what these units are.

    Attributes:
        name: What messages call it: its file.
        raw: The data as the file holds them, NaN where they are missing.
        scaling: The map from the units of the clean image to the prior's scale of [0, 1]. Data have
            the same units where the operator keeps them.
        basis: Why it is that one, as a clause.
        kind: The kind of numbers in the file, such as uint8.
        unit: The name of the unit, such as adu; empty if the file does not tell.
        header: The header of a FITS file; None for others.
        scale_is_given: Whether the user has said what the scale of this image is.
    """

    name: str
    raw: Float[np.ndarray, "*data"]
    scaling: Scaling = UNIT
    basis: str = "taken as they are"
    kind: str = "float64"
    unit: str = ""
    header: Any | None = None
    scale_is_given: bool = False

    def show(self, *values: float) -> str:
        """Numbers in the units of the file, such as `98 to 3010 adu`."""
        return f"{' to '.join(f'{value:.6g}' for value in values)} {self.unit}".rstrip()

    @property
    def assumed(self) -> str:
        """What is taken for granted about the units, in a sentence."""
        seen = self.raw[~np.isnan(self.raw)]
        return (
            f"{Path(self.name).name} holds {self.kind} numbers from"
            f" {self.show(seen.min(), seen.max())}, {self.basis}: {self.scaling}."
        )

    def resized(self, shape: tuple[int, ...], how: str) -> "Observation":
        """Another number of pixels, by averaging or interpolating; proportions are kept.

        Args:
            shape: The height and the width that are wanted.
            how: "crop" cuts off what is too long, "pad" adds missing pixels to what is too short.
        """
        old, new = ("x".join(map(str, each)) for each in (self.raw.shape, shape))
        same = self.raw.shape[0] * shape[1] == self.raw.shape[1] * shape[0]
        change = "" if same else f", and {RESIZING[how]}"
        warnings.warn(
            f"{self.name} was resized from {old} to {new} pixels{change}; the noise is taken to be"
            " that of the new pixels.",
            stacklevel=2,
        )
        return dataclasses.replace(self, raw=_resize(self.raw, shape, how))


def read_observation(
    source: str | Path | np.ndarray,
    trained: Scaling = UNIT,
    axes: int = 2,
    units: Units | None = None,
) -> Observation:
    """Reads data, and finds out what black and white are.

    What the user says goes first. Then, if the prior was trained on files with a range of their
    own, such as counts, data are in the units of those. Otherwise the kind of number tells it:
    numbers of 8 or 16 unsigned bits are black at 0 and white at 255 or 65535, booleans and floats
    at 0 and 1. Other whole numbers do not tell it, and the user is asked.

    Args:
        source: An image, or an array as a file would hold it; `file.fits[1]` or `file.fits[SCI]`
            chooses an extension. A `.npy` or `.npz` file may hold a vector.
        trained: The scaling of the prior's training files.
        axes: The number of axes of the prior's images; unless it is three, colour is reduced to
            grey.
        units: What the user says about black and white.
    """
    is_array = isinstance(source, np.ndarray)
    name = "The image" if is_array else printable(str(source))
    raw = real_values(source, name) if is_array else read_array(source)
    if not raw.size:
        raise UserError(f"{name} holds no pixels: its shape is {raw.shape}.")
    if raw.ndim > max(axes, 2):
        raw = reduce_colour(raw, name)
    values = raw.astype(np.float64)
    if np.isnan(values).all():
        raise UserError(f"{name} holds nothing but missing pixels (NaN).")
    if np.isinf(values).any():
        raise UserError(f"{name} holds infinite values; mark missing pixels by NaN.")
    scaling, basis = _choose_scaling(raw, name, trained, units or Units())
    header = None if is_array else read_fits_header(source)
    unit = "" if header is None else str(header.get("BUNIT", "")).strip()
    given = units is not None and units.scale is not None and units.certain
    return Observation(name, values, scaling, basis, str(raw.dtype), unit, header, given)


def _choose_scaling(
    raw: np.ndarray, name: str, trained: Scaling, units: Units
) -> tuple[Scaling, str]:
    """The scaling of an observation, and why it is that one."""
    if units.scale is not None:
        scaling, basis = Scaling(units.offset or 0.0, units.scale), "scaled as you said"
    else:
        scaling, basis = _known_scaling(raw, name, trained)
        if units.offset is not None:
            scaling, basis = Scaling(units.offset, scaling.scale), "with the offset that you gave"
    return (scaling.inverted(), f"{basis} and inverted") if units.invert else (scaling, basis)


def _known_scaling(raw: np.ndarray, name: str, trained: Scaling) -> tuple[Scaling, str]:
    """The scaling that prior and kind of number tell."""
    kind = str(raw.dtype)
    # Common scalings say nothing about units: the kind of number does.
    if trained not in (UNIT, BYTES) and kind != "bool":
        if trained.white > (largest := _WHITES.get(kind, np.inf)):
            raise UserError(
                f"{name} holds {kind} numbers, which end at {largest:.6g}, but the images that the"
                f" prior was trained on are white at {trained.white:.6g}: say what white is here"
                f" with --scale, for instance --scale {largest:.6g}."
            )
        return trained, "in the units of the images that the prior was trained on"
    if raw.dtype.kind == "f":
        return UNIT, "taken as they are"
    if kind in _WHITES:
        return Scaling(0.0, _WHITES[kind]), "scaled by the range of such numbers"
    low, high = int(raw.min()), int(raw.max())
    if low >= 0 and high <= 1:
        return UNIT, "taken as they are"
    guess = next((int(white) for white in _WHITES.values() if low >= 0 and high <= white), high)
    raise UserError(
        f"{name} holds {kind} numbers from {low} to {high}, which do not tell what white is: say it"
        f" with --scale, for instance --scale {guess}."
    )


def _resize(
    values: Float[np.ndarray, "height width"], shape: tuple[int, ...], how: str
) -> Float[np.ndarray, "height width"]:
    from PIL import Image

    factors = [new / old for new, old in zip(shape, values.shape, strict=True)]
    factor = max(factors) if how == "crop" else min(factors)
    # The part of the image that is kept, and the part of the new one that it fills.
    kept = [min(old, round(new / factor)) for new, old in zip(shape, values.shape, strict=True)]
    filled = [min(new, round(old * factor)) for new, old in zip(shape, kept, strict=True)]
    values = values[_middle(values.shape, kept)]
    image = Image.fromarray(np.nan_to_num(values).astype(np.float32))
    holes = Image.fromarray(np.isnan(values).astype(np.float32))
    size, kind = (max(filled[1], 1), max(filled[0], 1)), Image.Resampling.BOX
    if factor > 1:
        kind = Image.Resampling.BILINEAR
    small = np.array(image.resize(size, kind), np.float64)
    # A pixel that a hole touches is a hole.
    small[np.asarray(holes.resize(size, kind)) > 1e-6] = np.nan
    resized = np.full(shape, np.nan)
    resized[_middle(shape, small.shape)] = small
    return resized


def _middle(shape: tuple[int, ...], part: tuple[int, ...] | list[int]) -> tuple[slice, ...]:
    """The middle of an image, of a smaller size."""
    starts = [(whole - size) // 2 for whole, size in zip(shape, part, strict=True)]
    return tuple(slice(start, start + size) for start, size in zip(starts, part, strict=True))
