"""An inverse problem in one sentence."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from latentuq.core.text import show_size
from latentuq.forward.gain import Gain
from latentuq.forward.operator import Operator
from latentuq.likelihood.noise import GaussianNoise

if TYPE_CHECKING:
    from latentuq.problem.inverse import InverseProblem


def explain(problem: "InverseProblem") -> str:
    """Says what is observed, at what noise, and how much of the variance is model error."""
    total, counted = problem.y.size, np.asarray(problem.observed).ravel()
    count = int(counted.sum())
    if not count:
        return f"None of the {total} data is observed, so the posterior is the prior."
    noise_variance = problem.noise.variance(problem.y.shape)[counted]
    units = np.asarray(problem.likelihood.data.units, np.float64)
    model_variance = (units**2 * np.asarray(problem.likelihood.model_variance))[counted]
    share = model_variance.sum() / (model_variance.sum() + noise_variance.sum())
    values = np.asarray(problem.y).ravel()[counted]
    return (
        f"An image of {show_size(problem.prior.shape)} pixels is"
        f" {_how_seen(problem.operator, count == total)}: {count} of {total} data are"
        f" observed, with values from {values.min():.3g} to {values.max():.3g} and"
        f" {_noise_in_words(problem.noise, noise_variance)}. Given u, the"
        f" generator's error adds a standard deviation of"
        f" {np.sqrt(model_variance.mean()):.3g}, {share:.0%} of the variance. The unknown u"
        f" has {problem.dim} dimensions."
    )


def _how_seen(operator: Operator, whole: bool) -> str:
    if isinstance(operator, Gain) and np.all(np.asarray(operator.gain) == 1):
        return "observed as a whole" if whole else "observed directly"
    return f"seen through {operator!r}"


def _noise_in_words(noise: GaussianNoise, variance: Float[np.ndarray, " observed"]) -> str:
    low, high = np.sqrt([variance.min(), variance.max()])
    if high == 0:
        return "no noise"
    kind = "independent" if noise.factor is None else "correlated"
    level = f"{low:.3g} to {high:.3g}" if high > 1.0001 * low else f"{low:.3g}"
    return f"{kind} noise of standard deviation {level}"
