"""Keys and counts as users give them, resampling, and batches of bounded memory."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from latentuq.errors import UserError


def read_key(key: object) -> Key[Array, ""]:
    """A key as `jax.random.key` or the older `jax.random.PRNGKey` makes it."""
    if isinstance(key, jax.Array):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0:
            return key
        if key.dtype == jnp.uint32 and key.shape == jax.random.PRNGKey(0).shape:
            return jax.random.wrap_key_data(key)
    raise UserError(f"The key must be one key, such as jax.random.key(0), not {key!r}.")


def read_count(n: object) -> int:
    """A number of draws."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise UserError(f"The number of draws must be a positive integer, not {n!r}.")
    return int(n)


def resample(
    key: Key[Array, ""], log_weights: Float[Array, " draws"], n: int
) -> Int[np.ndarray, " n"]:
    """Indices of n draws, each n W_s times rounded up or down, in random order."""
    offset_key, order_key = jax.random.split(key)
    weights = np.exp(np.asarray(log_weights, np.float64))
    edges = np.cumsum(weights) / np.sum(weights)
    points = (np.arange(n) + float(jax.random.uniform(offset_key))) / n
    # Rounding may put the last point on the last edge, behind which there is no draw.
    chosen = np.minimum(np.searchsorted(edges, points, side="right"), np.flatnonzero(weights)[-1])
    return chosen[np.asarray(jax.random.permutation(order_key, n))]


def in_chunks(fn: Callable[..., Any], size: int, *arrays: Array) -> Any:
    """fn(*arrays) for a batched fn that returns a pytree, `size` rows at a time.

    The last chunk repeats its last row, so that fn only ever sees one shape.
    """
    n = arrays[0].shape[0]
    chunks = []
    for start in range(0, n, size):
        rows = np.minimum(np.arange(start, start + size), n - 1)
        chunks.append(fn(*(array[rows] for array in arrays)))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts)[:n], *chunks)
