"""Do the data look like anything that the model makes?"""

from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Float
from scipy.special import gammaincc

from latentuq.core.batches import in_chunks
from latentuq.core.compilation import bounded_jit
from latentuq.inference.causes import Cause
from latentuq.inference.importance import systematic_index
from latentuq.inference.result import Inference
from latentuq.inference.target import BATCH
from latentuq.inference.verdict import Mark, Reason
from latentuq.problem.inverse import InverseProblem, LatentDensity

WORST_FIT = 0.02
"""The p-value below which a verdict says that the data do not fit the model."""
# The p-value above which the data fit better than what the model makes.
_CLOSEST_FIT = 0.99

# The number of draws that a p-value rests on, and the smaller size of a batch.
_COUNTED = 2048
_FEW = 64


def predictive_p_value(inference: Inference, problem: InverseProblem) -> float | None:
    """Averages the chance that replicates have a larger chi^2 + u.u than data and draw.

    If N(y; A g(u), C) made the data, (u, y) is a draw of it, and the sum follows chi-squared with
    as many degrees as there are data and dimensions. A bad fit shows in the chi-squared of the
    data; data that can be fitted, but only by something that the prior calls impossible, in u.u. An
    inflated model error makes the sum smaller than that, and alarms rarer. There is no
    p-value if no draw has any weight.
    """
    degrees = np.count_nonzero(problem.observed) + problem.dim
    log_weights = np.asarray(inference.draws.log_weights, np.float64)
    if not np.any(log_weights > -np.inf):
        return None
    # Draws as often as their weights say; the same answer to the same posterior.
    chosen = systematic_index(np.random.default_rng(0), log_weights, _COUNTED)
    chosen, times = np.unique(chosen, return_counts=True)
    points = np.asarray(inference.draws.draws)[chosen]
    chi_squared = measure_chi_squared(problem, points)
    distances = chi_squared + np.sum(points.astype(np.float64) ** 2, axis=1)
    chances = gammaincc(degrees / 2, np.maximum(distances, 0) / 2)
    return float(np.average(chances, weights=times))


def measure_chi_squared(
    problem: InverseProblem, points: Float[np.ndarray, "n dim"]
) -> Float[np.ndarray, " n"]:
    """Measures (A g(u) - y)^T C^-1 (A g(u) - y) at many points."""
    # One of two sizes, so that little compiles.
    size = _FEW if len(points) <= _FEW else BATCH
    return in_chunks(partial(_chi_squared, problem.density), size, points).astype(np.float64)


@bounded_jit
def _chi_squared(density: LatentDensity, points: Float[Array, "n dim"]) -> Float[Array, " n"]:
    return jax.vmap(density.chi_squared)(points)


def judge_fit(p_value: float | None, inflated: bool) -> Mark:
    """Makes the mark `fit`: could the model have made these data?

    The prior is `inflated` if it assumes more model error than an image has on average.
    """
    if p_value is None:
        return Mark((Reason(Cause.NOT_COMPARED),))
    if p_value < WORST_FIT:
        return Mark((Reason(Cause.MISFIT, {"p_value": p_value, "limit": WORST_FIT}),))
    cause = Cause.FITS
    if p_value > _CLOSEST_FIT:
        cause = Cause.FITS_BY_DESIGN if inflated else Cause.FITS_CLOSELY
    return Mark((Reason(cause, {"p_value": p_value}),))
