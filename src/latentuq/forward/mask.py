"""Masks: an explicit one, and patterns that become one when the image shape is known."""

import abc
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from latentuq.core.errors import UserError
from latentuq.forward.operator import PixelwiseOperator, Shape, check_image, size

Interval = tuple[int, int]


class Mask(PixelwiseOperator):
    """Keeps the image's shape; pixels where `mask` is 0 are not data.

    A x is 0 there, and an inverse problem has no likelihood term for them.
    """

    mask: Bool[Array, "*shape"]
    input_shape: Shape | None = eqx.field(static=True)

    def __init__(self, mask: object):
        """Reads a mask: 1 or True where a pixel is observed, 0 or False where it is hidden."""
        given = np.asarray(mask)
        if given.ndim == 0:
            raise UserError(f"A mask is an image of 0 and 1, not the single value {given}.")
        if given.dtype != bool:
            wrong = given[~((given == 0) | (given == 1))]
            if wrong.size:
                raise UserError(f"A mask holds 0 (hidden) and 1 (observed), not {wrong.flat[0]}.")
        self.mask = jax.device_put(given != 0)
        self.input_shape = given.shape

    def apply(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return jnp.where(self.mask, x, 0.0)

    def observed(self, shown: Bool[Array, "*shape"]) -> Bool[Array, "*shape"]:
        return shown & self.mask

    def pixel_factors(self) -> Float[np.ndarray, "*shape"]:
        return np.asarray(self.mask, np.float64)

    def parameters(self) -> Mapping[str, Any]:
        return {"mask": np.asarray(self.mask)}

    def __repr__(self) -> str:
        return f"Mask({size(self.mask.shape)})"


class MaskPattern(PixelwiseOperator):
    """A rule that hides pixels of an image of any shape; binding it gives a `Mask`."""

    @abc.abstractmethod
    def mask_for(self, shape: Shape) -> Bool[np.ndarray, "*shape"]:
        """The mask, True = observed, for one image shape."""

    def bind(self, shape: Shape) -> Mask:
        return Mask(self.mask_for(shape))

    def apply(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return self.bind(x.shape).apply(x)

    def observed(self, shown: Bool[Array, "*shape"]) -> Bool[Array, "*shape"]:
        return self.bind(shown.shape).observed(shown)


class RandomMask(MaskPattern):
    """Hides floor(fraction * pixels) pixels drawn without replacement.

    The draw is `numpy.random.RandomState(seed).choice`, so that published masks are reproduced.
    """

    fraction: float = eqx.field(static=True)
    seed: int = eqx.field(static=True)
    input_shape: Shape | None = eqx.field(static=True)

    def __init__(self, fraction: float, seed: int = 0):
        if not 0 <= fraction <= 1:
            raise UserError(f"The hidden fraction lies between 0 and 1, not at {fraction}.")
        if not 0 <= seed < 2**32:
            raise UserError(f"The seed of a random mask lies in [0, 2^32), not at {seed}.")
        self.fraction, self.seed = float(fraction), int(seed)
        self.input_shape = None

    def mask_for(self, shape: Shape) -> Bool[np.ndarray, "*shape"]:
        pixels = int(np.prod(shape))
        # 0.29 * 100 is 28.999...: the product is meant exactly, so its rounding is forgiven.
        hidden = int(np.floor(self.fraction * pixels + 1e-9 * pixels))
        mask = np.ones(pixels, bool)
        mask[np.random.RandomState(self.seed).choice(pixels, hidden, replace=False)] = False
        return mask.reshape(shape)

    def parameters(self) -> Mapping[str, Any]:
        return {"fraction": self.fraction, "seed": self.seed}

    def __repr__(self) -> str:
        return f"RandomMask({self.fraction:g}, seed={self.seed})"


class RegionMask(MaskPattern):
    """Hides the rows and columns of one rectangle, both ends included; None means all of them."""

    rows: Interval | None = eqx.field(static=True)
    columns: Interval | None = eqx.field(static=True)
    input_shape: Shape | None = eqx.field(static=True)

    def __init__(self, rows: Sequence[int] | None = None, columns: Sequence[int] | None = None):
        if rows is None and columns is None:
            raise UserError("A region mask needs the rows or the columns to hide.")
        self.rows, self.columns = _interval(rows, "rows"), _interval(columns, "columns")
        self.input_shape = None

    def mask_for(self, shape: Shape) -> Bool[np.ndarray, "*shape"]:
        check_image(self, shape)
        mask = np.ones(shape, bool)
        slices = []
        for name, interval, length in zip(
            ("rows", "columns"), (self.rows, self.columns), shape, strict=True
        ):
            first, last = (0, length - 1) if interval is None else interval
            if last >= length:
                raise UserError(f"The {name} {first}-{last} leave the {size(shape)} image.")
            slices.append(slice(first, last + 1))
        mask[tuple(slices)] = False
        return mask

    def parameters(self) -> Mapping[str, Any]:
        given = {"rows": self.rows, "columns": self.columns}
        return {name: list(interval) for name, interval in given.items() if interval is not None}

    def __repr__(self) -> str:
        given = (f"{name}={tuple(interval)}" for name, interval in self.parameters().items())
        return f"RegionMask({', '.join(given)})"


def _interval(ends: Sequence[int] | None, name: str) -> Interval | None:
    if ends is None:
        return None
    first, last = map(index, ends)
    if not 0 <= first <= last:
        raise UserError(f"The {name} {first}-{last} are not an interval.")
    return first, last


def is_mask_text(text: str) -> bool:
    """Whether a text reads like a rule for `parse_mask` rather than the name of a file."""
    return text.partition(":")[0] in ("columns", "rows", "box", "random") and ":" in text


def parse_mask(text: str) -> MaskPattern:
    """Reads `columns:10-23`, `rows:0-13`, `box:TOP,LEFT,BOTTOM,RIGHT` or `random:0.95[,SEED]`.

    Each names what is hidden; intervals and boxes include both ends.
    """
    kind, _, values = text.partition(":")
    try:
        if kind == "random":
            fraction, _, seed = values.partition(",")
            return RandomMask(float(fraction), int(seed or 0))
        if kind in ("rows", "columns"):
            first, _, last = values.partition("-")
            return RegionMask(**{kind: (int(first), int(last or first))})
        if kind == "box":
            top, left, bottom, right = map(int, values.split(","))
            return RegionMask((top, bottom), (left, right))
    except UserError:
        raise
    except ValueError:
        pass
    raise UserError(
        f"{text[:80]!r} is not a mask: write columns:FIRST-LAST, rows:FIRST-LAST,"
        " box:TOP,LEFT,BOTTOM,RIGHT, random:FRACTION[,SEED] or the name of an image file."
    )
