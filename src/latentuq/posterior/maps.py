"""Images of a posterior: draws of x in chunks of bounded memory, and maps made from them."""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.core.batches import in_chunks
from latentuq.core.compilation import bounded_jit
from latentuq.core.randomness import spread_keys
from latentuq.likelihood.likelihood import Likelihood
from latentuq.prior.generative import GenerativePrior

if TYPE_CHECKING:
    from latentuq.problem.inverse import InverseProblem

# The number of images that are made at once.
_CHUNK = 64
# The number of draws behind the maps; there are fewer where so many images would be more numbers
# than this.
_DRAWS = 2048
_MOST_NUMBERS = 2**25


class ImageMaps(NamedTuple):
    """The mean and the standard deviation of every pixel of x, and its draws, ascending."""

    mean: Float[np.ndarray, "*shape"]
    std: Float[np.ndarray, "*shape"]
    ordered: Float[np.ndarray, "n *shape"]


class SavedImages(NamedTuple):
    """The images of a posterior that need neither prior nor problem."""

    mean: Float[Array, "*shape"]
    std: Float[Array, "*shape"]
    levels: Float[np.ndarray, " levels"]
    quantiles: Float[Array, "levels *shape"]
    mode_images: Float[Array, "modes *shape"]


@bounded_jit
def _decode(prior: GenerativePrior, us: Float[Array, "n dim"]) -> Float[Array, "n *shape"]:
    return jax.vmap(prior.generate)(us)


@bounded_jit
def _draw(
    prior: GenerativePrior,
    likelihood: Likelihood,
    keys: Key[Array, " n"],
    us: Float[Array, "n dim"],
) -> Float[Array, "n *shape"]:
    return jax.vmap(lambda key, u: likelihood.sample_image(key, prior.generate(u)))(keys, us)


def decode_images(prior: GenerativePrior, us: Float[Array, "n dim"]) -> Float[Array, "n *shape"]:
    """Decodes g(u) at each u, without the code for draws, which takes long to compile."""
    return jax.device_put(in_chunks(partial(_decode, prior), _CHUNK, us))


def draw_images(
    keys: Key[Array, " n"], problem: "InverseProblem", us: Float[Array, "n dim"]
) -> Float[Array, "n *shape"]:
    """Draws one image of p(x | u, y) at each u, with a key for each."""
    draw = partial(_draw, problem.prior, problem.likelihood)
    return jax.device_put(in_chunks(draw, _CHUNK, keys, us))


def map_draws(shape: tuple[int, ...]) -> int:
    """Tells how many draws of images of one shape the maps are made from."""
    return min(_DRAWS, max(_CHUNK, _MOST_NUMBERS // int(np.prod(shape))))


def make_maps(
    key: Key[Array, ""], problem: "InverseProblem", us: Float[Array, "n dim"]
) -> ImageMaps:
    """Makes maps of x from equally weighted draws of u."""
    n = len(us)
    ordered = np.array(draw_images(spread_keys(key, n), problem, us))
    ordered.sort(axis=0)
    # Sums in float64 without a copy in float64, and without loss: draws are float32.
    mean = np.einsum("n...->...", ordered, dtype=np.float64) / n
    square = np.einsum("n...,n...->...", ordered, ordered, dtype=np.float64) / n
    std = np.sqrt(np.maximum(square - mean**2, 0))
    return ImageMaps(mean.astype(np.float32), std.astype(np.float32), ordered)


def missing_maps(shape: tuple[int, ...]) -> ImageMaps:
    """Makes the maps of a posterior without draws, which are NaN everywhere."""
    nothing = np.full(shape, np.nan, np.float32)
    return ImageMaps(nothing, nothing, nothing[None])


def quantiles(maps: ImageMaps, levels: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Interpolates quantiles of every pixel between neighbouring draws, as NumPy does."""
    position = levels * (len(maps.ordered) - 1)
    low = np.floor(position).astype(int)
    high = np.minimum(low + 1, len(maps.ordered) - 1)
    share = (position - low).reshape(*levels.shape, *[1] * (maps.ordered.ndim - 1))
    values = maps.ordered[low] * (1 - share) + maps.ordered[high] * share
    return values.astype(np.float32)
