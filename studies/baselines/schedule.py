"""Learning rates that fall from stage to stage."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def staged_rates(learning_rates: Sequence[float], steps: Sequence[int]) -> Float[Array, " steps"]:
    """The learning rate of every step: each stage's own, for as many steps as it has."""
    return jnp.asarray(np.repeat(np.asarray(learning_rates, np.float32), steps))
