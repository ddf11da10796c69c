"""Sight: the data that exist, predicted without the rest of the image."""

from typing import Protocol, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from latentuq.arrays import to_device
from latentuq.covariance import Factored
from latentuq.operators import Operator
from latentuq.prior import GenerativePrior
from latentuq.prior.flow import Flow

# Numbers of data that programs are compiled for: these parts of all of them, rounded up.
_SIZES = 16


@runtime_checkable
class _Narrow(Protocol):
    """A decoder that can make some pixels alone."""

    def narrowed(self, pixels: Int[np.ndarray, " n"]) -> "_Narrow": ...

    def __call__(self, z: Float[Array, " dim"]) -> Float[Array, " n"]: ...


class Sight(eqx.Module):
    """u -> A g(u) at the data that exist, where each shows one pixel.

    The decoder's last layer makes no other pixel, which is most of the cost of a sparse mask's
    likelihood. Their number is rounded up, so that few programs serve all masks.

    Attributes:
        decoder: Makes the pixels that they show.
        flow: The prior's.
        factors: What each pixel is multiplied by.
        data: Index of each into the flattened data; padding repeats them.
    """

    decoder: _Narrow
    flow: Flow | None
    factors: Float[Array, " seen"]
    data: Int[Array, " seen"]

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, " seen"]:
        return self.factors * self.decoder(u if self.flow is None else self.flow(u))


def narrow(
    prior: GenerativePrior,
    operator: Operator,
    observed: Bool[np.ndarray, " data"],
    factored: Factored,
) -> tuple[Sight | None, Factored]:
    """Sight of the data that exist, and C with rows for those alone.

    None, and C as it is, where data mix pixels, the decoder cannot be narrowed, or nothing is
    saved.
    """
    step, seen = -(-observed.size // _SIZES), np.flatnonzero(observed)
    size = -(-len(seen) // step) * step
    if not 0 < size < observed.size or not isinstance(prior.decoder, _Narrow):
        return None, factored
    data = np.resize(seen, size)
    shown, narrowed = operator.pixels_of(data), factored.at(data, np.arange(size) >= len(seen))
    if shown is None or narrowed is None:
        return None, factored
    pixels, factors = shown
    decoder = prior.decoder.narrowed(pixels)
    sight = Sight(decoder, prior.flow, to_device(factors, np.dtype(np.float32)), to_device(data))
    return sight, narrowed
