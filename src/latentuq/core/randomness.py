"""Keys as users give them, and random numbers of the host that a key decides."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from latentuq.core.errors import UserError


def read_key(key: object) -> Key[Array, ""]:
    """Reads a key as `jax.random.key` or the older `jax.random.PRNGKey` makes it."""
    if isinstance(key, jax.Array):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0:
            return key
        if key.dtype == jnp.uint32 and key.shape == jax.random.PRNGKey(0).shape:
            return jax.random.wrap_key_data(key)
    raise UserError(f"The key must be one key, such as jax.random.key(0), not {key!r}.")


def host_generator(key: Key[Array, ""]) -> np.random.Generator:
    """Returns NumPy's generator, seeded by a key.

    It serves the small choices between compiled functions: JAX would compile each for each shape.
    """
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())


def spread_keys(key: Key[Array, ""], n: int) -> Key[Array, " n"]:
    """Splits a key into n, on the host: `jax.random.split` is compiled for each n."""
    shape = (n, *jax.random.key_data(key).shape)
    data = host_generator(key).integers(2**32, size=shape, dtype=np.uint32)
    return jax.random.wrap_key_data(jax.device_put(data), impl=jax.random.key_impl(key))
