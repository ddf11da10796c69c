"""Learning rates that fall from stage to stage."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from latentuq.core.errors import UserError


def staged_rates(
    learning_rates: Sequence[float], steps: Sequence[int]
) -> Float[np.ndarray, " steps"]:
    """The learning rate of every step: each stage's own, for as many steps as it has."""
    if (
        not len(learning_rates) == len(steps) > 0
        or not all(rate > 0 for rate in learning_rates)
        or not all(number >= 1 for number in steps)
    ):
        raise UserError(
            "Each stage needs a positive learning rate and a positive number of steps, not rates"
            f" {tuple(learning_rates)} and steps {tuple(steps)}."
        )
    return np.repeat(np.asarray(learning_rates, np.float32), steps)
