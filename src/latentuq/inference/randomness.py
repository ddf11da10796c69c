"""Random choices on the host."""

import jax
import numpy as np
from jaxtyping import Array, Key


def host_generator(key: Key[Array, ""]) -> np.random.Generator:
    """NumPy's generator, seeded by a key.

    For the small choices between compiled functions: in JAX each would be compiled, for each shape.
    """
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
