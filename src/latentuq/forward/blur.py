"""Blur: convolution of a 2-D image with a Gaussian or with any point-spread function."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from latentuq.core.errors import UserError
from latentuq.forward.operator import (
    Operator,
    Shape,
    check_image,
    finite_float32,
    size,
)

# What lies beyond the border: nothing, the other side, or the mirror image (edge repeated).
_PAD_MODES = {"zero": "constant", "periodic": "wrap", "reflect": "symmetric"}


# A Gaussian that is wider than any image would take gigabytes before that is noticed.
_LARGEST_SIDE = 4097


class Blur(Operator):
    """y[i] = sum_k psf[k] x[i - k], with k counted from the kernel's central pixel.

    `sigma` remembers a Gaussian kernel's width; it takes no part in the computation.
    """

    psf: Float[Array, "height width"]
    sigma: Float[Array, ""] | None
    boundary: str = eqx.field(static=True)
    input_shape: Shape | None = eqx.field(static=True)

    def __init__(
        self,
        sigma: float | None = None,
        size: int | None = None,
        boundary: str = "zero",
        *,
        psf: object = None,
    ):
        """Makes a Gaussian kernel that sums to 1, or takes a kernel as it is.

        Args:
            sigma: Standard deviation of a Gaussian kernel, in pixels.
            size: Side of the Gaussian kernel, odd; by default it ends at 4 sigma.
            boundary: What the image is beyond its border: "zero", "periodic" or "reflect".
            psf: A kernel with odd sides, in place of `sigma` and `size`; it is not normalised.
        """
        if (sigma is None) == (psf is None):
            raise UserError("Blur takes either sigma or psf, one of the two.")
        if boundary not in _PAD_MODES:
            raise UserError(f"The boundary {boundary!r} is none of {', '.join(_PAD_MODES)}.")
        if sigma is None:
            self.psf = _checked_psf(psf, size)
            self.sigma = None
        else:
            self.psf = jnp.asarray(gaussian_kernel(sigma, size), jnp.float32)
            self.sigma = jnp.asarray(sigma, jnp.float32)
        self.boundary = boundary
        self.input_shape = None

    def check(self, shape: Shape) -> None:
        check_image(self, shape)
        if self.psf.shape[0] > shape[0] or self.psf.shape[1] > shape[1]:
            largest = min(shape) - (min(shape) + 1) % 2
            raise UserError(
                f"The blur kernel of {size(self.psf.shape)} pixels is larger than the image of"
                f" {size(shape)}; give size={largest} or less."
            )

    def apply(self, x: Float[Array, "height width"]) -> Float[Array, "height width"]:
        reach = [(length // 2, length // 2) for length in self.psf.shape]
        padded = jnp.pad(x, reach, mode=_PAD_MODES[self.boundary])
        # XLA correlates; a convolution flips the kernel.
        kernel = jnp.flip(self.psf).astype(x.dtype)
        return jax.lax.conv(padded[None, None], kernel[None, None], (1, 1), "VALID")[0, 0]

    def input_shape_for(self, output_shape: Shape) -> Shape:
        return output_shape

    def parameters(self) -> Mapping[str, Any]:
        if self.sigma is None:
            return {"psf": np.asarray(self.psf), "boundary": self.boundary}
        return {"sigma": self.sigma, "size": self.psf.shape[0], "boundary": self.boundary}

    def __repr__(self) -> str:
        kernel = "psf" if self.sigma is None else f"sigma={_shown(self.sigma)}"
        return f"Blur({kernel}, {size(self.psf.shape)}, {self.boundary})"


def gaussian_kernel(sigma: float, side: int | None = None) -> Float[np.ndarray, "side side"]:
    """Samples a Gaussian on pixel centres and normalises it to sum 1."""
    if not np.isfinite(sigma) or sigma <= 0:
        raise UserError(f"The blur's sigma must be positive, not {sigma}.")
    side = 2 * int(4 * sigma + 0.5) + 1 if side is None else side
    if int(side) != side or side < 1 or side % 2 == 0:
        raise UserError(f"The blur's size must be a positive odd number of pixels, not {side}.")
    if side > _LARGEST_SIDE:
        raise UserError(
            f"The blur of sigma {sigma:g} has a kernel of {side:.6g} pixels a side; {_LARGEST_SIDE}"
            " is the most, and it must not be larger than the image: give a smaller sigma or size."
        )
    offsets = np.arange(int(side)) - int(side) // 2
    profile = np.exp(-0.5 * (offsets / sigma) ** 2)
    profile /= profile.sum()
    return np.outer(profile, profile)


def _checked_psf(psf: object, side: int | None) -> Float[Array, "height width"]:
    if side is not None:
        raise UserError("Blur(psf=...) has the size of its psf: leave size out.")
    kernel = finite_float32(psf, "The psf")
    if kernel.ndim != 2 or not all(length % 2 for length in kernel.shape):
        raise UserError(
            f"The psf of shape {kernel.shape} has no central pixel; pad it with zeros to a 2-D"
            " image with odd sides."
        )
    if not np.any(np.asarray(kernel)):
        raise UserError("The psf is zero everywhere.")
    return kernel


def _shown(value: Array) -> str:
    return "traced" if isinstance(value, Tracer) else f"{float(value):g}"
