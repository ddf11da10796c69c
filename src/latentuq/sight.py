"""Sight: the data that exist, predicted without the rest of the image."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from latentuq.arrays import to_device
from latentuq.covariance import Factored
from latentuq.operators import Operator
from latentuq.prior import GenerativePrior

# Numbers of data that programs are compiled for: these parts of all of them, rounded up.
_SIZES = 16


class Sight(eqx.Module):
    """u -> A g(u) at the data that exist, where each shows one pixel.

    The decoder's last layer, over a third of `mnist`'s products, makes no other pixel. Their number
    is rounded up, so that few programs serve all masks.

    Attributes:
        prior: Of the pixels that they show.
        factors: What each pixel is multiplied by.
        data: Index of each into the flattened data; padding repeats them.
    """

    prior: GenerativePrior
    factors: Float[Array, " seen"]
    data: Int[Array, " seen"]

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, " seen"]:
        return self.factors * self.prior.generate(u)


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
