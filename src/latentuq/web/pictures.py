"""Images as small pieces of JSON: one byte per pixel, between two values."""

import base64
from typing import Annotated

import numpy as np
from jaxtyping import Float, UInt8
from pydantic import BaseModel, Field

LEVELS = 254
"""The byte of the highest value; zero is that of the lowest."""
MISSING = 255
"""The byte of a pixel without data."""


class Picture(BaseModel):
    """An image; the value of a pixel is low + (high - low) byte / 254, and byte 255 is missing."""

    height: int
    width: int
    low: float
    high: float
    pixels: Annotated[str, Field(description="The bytes row by row, in base64.")]


def picture(
    image: Float[np.ndarray, "height width"], low: float = 0.0, high: float = 1.0
) -> Picture:
    """An image as JSON; values beyond low and high are cut off, NaN is missing."""
    height, width = image.shape
    pixels = base64.b64encode(to_bytes(image, low, high).tobytes()).decode()
    return Picture(height=height, width=width, low=low, high=high, pixels=pixels)


def to_bytes(
    images: Float[np.ndarray, "*shape"], low: float, high: float
) -> UInt8[np.ndarray, "*shape"]:
    """One byte per pixel, see `Picture`."""
    missing = np.isnan(images)
    share = (np.where(missing, low, images) - low) / max(high - low, 1e-12)
    levels = np.rint(LEVELS * np.clip(share, 0, 1)).astype(np.uint8)
    levels[missing] = MISSING
    return levels


def to_values(
    levels: UInt8[np.ndarray, "*shape"], low: float, high: float
) -> Float[np.ndarray, "*shape"]:
    """What bytes that are not missing stand for."""
    return low + (high - low) * levels.astype(np.float64) / LEVELS
