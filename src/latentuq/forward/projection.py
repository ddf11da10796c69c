"""Projection: parallel-beam tomography."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from latentuq.core.errors import UserError
from latentuq.core.reading import check_size
from latentuq.forward.operator import Operator, Shape, check_image, finite_float32


class Projection(Operator):
    """Line sums of the image along each angle: y[s, a] = sum_t x(centre + R(angle_a) (s, t)).

    The sinogram has one row per detector and one column per angle, with detectors across the
    image's diagonal, and values between pixels are interpolated linearly: the discretisation and
    layout of `skimage.transform.radon(x, angles, circle=False)`.
    """

    angles: Float[Array, " angles"]
    input_shape: Shape | None = eqx.field(static=True)

    def __init__(self, angles: object):
        """Reads the angles, in degrees."""
        self.angles = finite_float32(angles, "The list of angles")
        if self.angles.ndim != 1 or self.angles.size == 0:
            raise UserError(f"The angles must be a list of numbers, not shape {self.angles.shape}.")
        self.input_shape = None

    def check(self, shape: Shape) -> None:
        check_image(self, shape)
        # The image is turned by each angle, all of them at once.
        turned = 4 * _layout(shape)[0] ** 2 * self.angles.size
        check_size(turned, f"A projection along {self.angles.size} angles")

    def apply(self, x: Float[Array, "height width"]) -> Float[Array, "detectors angles"]:
        detectors, (top, left) = _layout(x.shape)
        centre = detectors // 2
        offsets = jnp.arange(detectors) - centre

        def project(angle):
            across, along = jnp.meshgrid(offsets, offsets)
            cos, sin = jnp.cos(angle), jnp.sin(angle)
            columns = cos * across + sin * along + (centre - left)
            rows = cos * along - sin * across + (centre - top)
            rotated = jax.scipy.ndimage.map_coordinates(x, [rows, columns], order=1)
            return jnp.sum(rotated, axis=0)

        return jax.vmap(project, out_axes=1)(jnp.deg2rad(self.angles))

    def parameters(self) -> Mapping[str, Any]:
        return {"angles": np.asarray(self.angles)}

    def __repr__(self) -> str:
        return f"Projection({self.angles.size} angles)"


def _layout(shape: Shape) -> tuple[int, tuple[int, int]]:
    """Number of detectors, and rows and columns of empty padding before the image."""
    detectors = int(np.ceil(np.sqrt(2) * max(shape)))
    top, left = (detectors // 2 - length // 2 for length in shape)
    return detectors, (top, left)
