"""Batches of one shape: rows are padded, divided into chunks, and joined again.

Every new shape would be compiled anew. So where the number of rows varies they are repeated until
they fill whole chunks, and what comes of the repeated ones is dropped.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Shaped

from latentuq.core.cores import on_cores


def padded(rows: Shaped[np.ndarray, "n ..."], size: int) -> Shaped[np.ndarray, "whole ..."]:
    """Repeats rows, from the first on, until their number is a multiple of `size`."""
    return np.resize(rows, (-(-len(rows) // size) * size, *rows.shape[1:]))


def joined(parts: Sequence[Any], n: int) -> Any:
    """Joins the results of chunks, which are arrays or trees of them, and keeps the first n rows.

    Joining is the host's work: a device would compile it for every number of rows.
    """
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:n], *parts)


def in_chunks(
    fn: Callable[..., Any],
    size: int,
    *arrays: Shaped[Array | np.ndarray, "n ..."],
    cores: bool = False,
) -> Any:
    """Returns fn(*arrays) as arrays of the host, for a function of whole batches.

    Args:
        fn: It maps arrays (or keys) with equally many rows to one array, or a tree of arrays, with
            as many rows. Rows do not depend on each other.
        size: The number of rows that `fn` sees at once.
        *arrays: The rows; if they are traced there is nothing to divide, and `fn` sees them whole.
        cores: Whether chunks may run at the same time, see `latentuq.core.cores` on what must not.
    """
    if any(isinstance(array, Tracer) for array in arrays):
        return fn(*arrays)
    chunks = list(zip(*(_divided(array, size) for array in arrays), strict=True))

    def run(chunk: tuple[Array, ...]) -> Any:
        return jax.device_get(fn(*chunk))

    return joined(on_cores(run, chunks) if cores else list(map(run, chunks)), len(arrays[0]))


def _divided(rows: Shaped[Array | np.ndarray, "n ..."], size: int) -> list[Array]:
    """The rows in chunks of one size."""
    if jnp.issubdtype(rows.dtype, jax.dtypes.prng_key):  # NumPy knows keys only as numbers.
        kind = jax.random.key_impl(rows)
        parts = _divided(jax.random.key_data(rows), size)
        return [jax.random.wrap_key_data(part, impl=kind) for part in parts]
    whole = padded(np.asarray(rows), size)
    return [jax.device_put(part) for part in np.split(whole, len(whole) // size)]
