"""Sight: the data that exist, predicted without the rest of the image."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from latentuq.core.arrays import to_device
from latentuq.forward import Operator
from latentuq.likelihood.covariance import Factored
from latentuq.prior import GenerativePrior

# Numbers of data that programs are compiled for: these parts of all of them, rounded up.
_SIZES = 16


class Sight(eqx.Module):
    """u -> A g(u) at some of the data, where each shows one pixel.

    Narrowed to the data that exist, the decoder's last layer, over a third of `mnist`'s products,
    makes no other pixel. Their number is rounded up, so that few programs serve all masks.

    Attributes:
        prior: Of the pixels that they show.
        factors: What each pixel is multiplied by.
        data: Index of each into the flattened data; padding repeats them.
        pixels: The pixel that each shows, of a prior that makes whole images; None: as they come.
    """

    prior: GenerativePrior
    factors: Float[Array, " seen"]
    data: Int[Array, " seen"]
    pixels: Int[Array, " seen"] | None = None

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, " seen"]:
        return self.factors * self.shown(u)

    def shown(self, u: Float[Array, " dim"]) -> Float[Array, " seen"]:
        """The pixel of each datum."""
        image = self.prior.generate(u)
        return image if self.pixels is None else jnp.ravel(image)[self.pixels]


def narrow(
    prior: GenerativePrior,
    operator: Operator,
    observed: Bool[np.ndarray, " data"],
    factored: Factored,
) -> tuple[Sight | None, Factored]:
    """Sight of the data that exist, and C with rows for those and for padding alone.

    None, and C as it is, where data mix pixels, C is dense, the decoder makes whole images only, or
    nothing is saved.
    """
    step, seen = -(-observed.size // _SIZES), np.flatnonzero(observed)
    size = -(-len(seen) // step) * step
    if not 0 < size < observed.size:
        return None, factored
    data = np.resize(seen, size)
    shown, rows = operator.pixels_of(data), factored.at(data, np.arange(size) >= len(seen))
    if shown is None or rows is None or (narrowed := prior.narrowed(shown[0])) is None:
        return None, factored
    return Sight(narrowed, to_device(shown[1], np.dtype(np.float32)), to_device(data)), rows


def see_all(prior: GenerativePrior, operator: Operator, size: int) -> Sight | None:
    """Sight of all data, by way of the whole image; None where data mix pixels."""
    data = np.arange(size)
    if (shown := operator.pixels_of(data)) is None:
        return None
    pixels, factors = shown
    return Sight(
        prior, to_device(factors, np.dtype(np.float32)), to_device(data), to_device(pixels)
    )
