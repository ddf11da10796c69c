"""Images of a posterior: draws of x in chunks of bounded memory, and maps made from them."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.posterior.sampling import in_chunks
from latentuq.prior import GenerativePrior
from latentuq.problem import InverseProblem

# Images made at once. Shorter chunks are filled up, so that one compilation serves them all.
_CHUNK = 64
# Draws behind the maps, fewer where so many images would be more numbers than this.
_DRAWS = 4096
_MOST_NUMBERS = 2**26


class Images(NamedTuple):
    """Images at some points u: E[x | u, y], and one draw of p(x | u, y) each."""

    means: Float[Array, "n *shape"]
    draws: Float[Array, "n *shape"]


class ImageMaps(NamedTuple):
    """Mean and standard deviation of every pixel of x, and its draws in ascending order."""

    mean: Float[np.ndarray, "*shape"]
    std: Float[np.ndarray, "*shape"]
    ordered: Float[np.ndarray, "n *shape"]


@eqx.filter_jit
def _decode(prior: GenerativePrior, us: Float[Array, "n dim"]) -> Float[Array, "n *shape"]:
    return jax.vmap(prior.generate)(us)


@eqx.filter_jit
def _draw(problem: InverseProblem, keys: Key[Array, " n"], us: Float[Array, "n dim"]) -> Images:
    def at_one_point(key, u):
        mean = problem.conditional_mean(problem.prior.generate(u))
        return Images(mean, problem.conditional_images(key, u))

    return jax.vmap(at_one_point)(keys, us)


def decode_images(prior: GenerativePrior, us: Float[Array, "n dim"]) -> Float[Array, "n *shape"]:
    """g(u) at each u, without the code for draws, whose random numbers take long to compile."""
    return in_chunks(partial(_decode, prior), _CHUNK, us)


def draw_images(
    keys: Key[Array, " n"], problem: InverseProblem, us: Float[Array, "n dim"]
) -> Images:
    """Conditional mean and one draw at each u, with a key for each."""
    return in_chunks(partial(_draw, problem), _CHUNK, keys, us)


def map_draws(shape: tuple[int, ...]) -> int:
    """How many draws of images of one shape the maps are made from."""
    return min(_DRAWS, max(_CHUNK, _MOST_NUMBERS // int(np.prod(shape))))


def make_maps(key: Key[Array, ""], problem: InverseProblem, us: Float[Array, "n dim"]) -> ImageMaps:
    """Maps of x from equally weighted draws of u.

    Mean and variance use that p(x | u, y) has a mean in closed form, m(u): E[x] = <m>, and
    var[x] = var(m) + <(x - m)^2> by the law of total variance.
    """
    n, shape = us.shape[0], problem.prior.shape
    keys = jax.random.split(key, n)
    ordered = np.empty((n, *shape), np.float32)
    total, squares, within = np.zeros((3, *shape))
    # Sums are centred on one of the images, for a variance that does not cancel.
    reference = np.asarray(draw_images(keys[:1], problem, us[:1]).means[0], np.float64)
    for start in range(0, n, _CHUNK):
        rows = slice(start, start + _CHUNK)
        images = draw_images(keys[rows], problem, us[rows])
        means, draws = np.asarray(images.means, np.float64), np.asarray(images.draws, np.float64)
        total += np.sum(means - reference, axis=0)
        squares += np.sum((means - reference) ** 2, axis=0)
        within += np.sum((draws - means) ** 2, axis=0)
        ordered[rows] = draws
    ordered.sort(axis=0)
    gap = total / n
    variance = np.maximum(squares / n - gap**2, 0) + within / n
    mean, std = reference + gap, np.sqrt(variance)
    return ImageMaps(mean.astype(np.float32), std.astype(np.float32), ordered)


def missing_maps(shape: tuple[int, ...]) -> ImageMaps:
    """The maps of a posterior without draws: NaN everywhere."""
    nothing = np.full(shape, np.nan, np.float32)
    return ImageMaps(nothing, nothing, nothing[None])


def quantiles(maps: ImageMaps, levels: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Quantiles of every pixel, interpolated between neighbouring draws as NumPy does."""
    position = levels * (len(maps.ordered) - 1)
    low = np.floor(position).astype(int)
    high = np.minimum(low + 1, len(maps.ordered) - 1)
    share = (position - low).reshape(*levels.shape, *[1] * (maps.ordered.ndim - 1))
    values = maps.ordered[low] * (1 - share) + maps.ordered[high] * share
    return values.astype(np.float32)
