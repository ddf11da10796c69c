"""Keys and counts as users give them, resampling, and batches of bounded memory."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Key

from latentuq.core.errors import UserError
from latentuq.inference.randomness import host_generator


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


def spread_keys(key: Key[Array, ""], n: int) -> Key[Array, " n"]:
    """Splits a key into n, on the host: `jax.random.split` is compiled for each n."""
    shape = (n, *jax.random.key_data(key).shape)
    data = host_generator(key).integers(2**32, size=shape, dtype=np.uint32)
    return jax.random.wrap_key_data(jax.device_put(data), impl=jax.random.key_impl(key))


def resample(
    key: Key[Array, ""], log_weights: Float[Array, " draws"], n: int
) -> Int[np.ndarray, " n"]:
    """Indices of n draws, each n W_s times rounded up or down, in random order."""
    rng = host_generator(key)
    weights = np.exp(np.asarray(log_weights, np.float64))
    edges = np.cumsum(weights) / np.sum(weights)
    points = (np.arange(n) + rng.uniform()) / n
    # Rounding may put the last point on the last edge, behind which there is no draw.
    chosen = np.minimum(np.searchsorted(edges, points, side="right"), np.flatnonzero(weights)[-1])
    return rng.permutation(chosen)


def in_chunks(fn: Callable[..., Any], size: int, *arrays: Array) -> Any:
    """fn(*arrays) for a batched fn that returns a pytree, `size` rows at a time.

    The last chunk repeats its last row, so that fn only ever sees one shape. Rows are chosen and
    joined on the host, where no n is compiled for; traced arrays are not there, and stay whole.
    """
    if any(isinstance(array, Tracer) for array in arrays):
        return fn(*arrays)
    n = arrays[0].shape[0]
    takers = [_row_taker(array) for array in arrays]
    chunks = []
    for start in range(0, n, size):
        rows = np.minimum(np.arange(start, start + size), n - 1)
        chunks.append(fn(*(take(rows) for take in takers)))
    return jax.tree.map(lambda *parts: jax.device_put(np.concatenate(parts)[:n]), *chunks)


def _row_taker(array: Array) -> Callable[[Int[np.ndarray, " rows"]], Any]:
    """What chooses rows of an array, or of keys, which NumPy only knows as numbers."""
    if not jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return np.asarray(array).__getitem__
    data, kind = np.asarray(jax.random.key_data(array)), jax.random.key_impl(array)
    return lambda rows: jax.random.wrap_key_data(jax.device_put(data[rows]), impl=kind)
