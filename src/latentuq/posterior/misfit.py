"""Do the data look like anything that the model makes?"""

import jax
import numpy as np
from jaxtyping import Array, Float
from scipy.special import gammaincc, softmax

from latentuq.arrays import to_device
from latentuq.inference.result import Inference
from latentuq.inference.target import BATCH
from latentuq.problem import InverseProblem
from latentuq.programs import program

WORST_FIT = 0.02
"""The p-value below which a verdict says that the data do not fit the model."""

# Draws that a p-value rests on, the heaviest: they hold nearly all of the weight.
_COUNTED = 8192
_FEW = 64


def predictive_p_value(inference: Inference, problem: InverseProblem) -> float | None:
    """Posterior mean of the chance that replicates have a larger r.r + u.u than data and draw.

    If the model made the data, (u, y) is a draw of it, and r.r + u.u follows chi-squared with as
    many degrees as there are data and dimensions. A bad fit shows in r.r; data that can be fitted,
    but only by something that the prior calls impossible, in u.u. An inflated model error makes
    the sum smaller than that, and alarms rarer. None if no draw has any weight.
    """
    degrees = np.count_nonzero(problem.observed) + problem.dim
    log_weights = np.asarray(inference.draws.log_weights, np.float64)
    if not np.any(log_weights > -np.inf):
        return None
    heaviest = np.argsort(-log_weights)[:_COUNTED]
    points = np.asarray(inference.draws.draws)[heaviest]
    log_densities = np.asarray(inference.draws.log_densities, np.float64)[heaviest]
    chi_squared = measure_chi_squared(problem, points, log_densities)
    distances = chi_squared + np.sum(points.astype(np.float64) ** 2, axis=1)
    weights = softmax(log_weights[heaviest])
    return float(weights @ gammaincc(degrees / 2, np.maximum(distances, 0) / 2))


def measure_chi_squared(
    problem: InverseProblem,
    points: Float[np.ndarray, "n dim"],
    log_densities: Float[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """(A g(u) - y)^T C^-1 (A g(u) - y) at points of known log density."""
    if problem.likelihood is not None:
        # Repeated to few sizes, so that few compile.
        size = _FEW if len(points) <= _FEW else -(-len(points) // BATCH) * BATCH
        padded = to_device(np.resize(points, (size, problem.dim)))
        return np.asarray(_chi_squared(problem, padded), np.float64)[: len(points)]
    # log_density = log_normalisation - r.r/2 - u.u/2, solved for r.r.
    distances = 2 * (float(problem.log_normalisation) - np.asarray(log_densities, np.float64))
    return distances - np.sum(points.astype(np.float64) ** 2, axis=1)


@program
def _chi_squared(problem: InverseProblem, points: Float[Array, "n dim"]) -> Float[Array, " n"]:
    return jax.lax.map(problem.chi_squared, points, batch_size=min(BATCH, points.shape[0]))


def show_p_value(p_value: float) -> str:
    """A p-value as far as draws can tell it: a bound near 0 and 1."""
    if p_value < 0.001:
        return "< 0.001"
    return "> 0.99" if p_value > 0.99 else f"{p_value:.2g}"


def check_fit(verdict: str, p_value: float | None) -> str:
    """The verdict, unless the data do not fit the model: then no posterior under it is reliable."""
    if p_value is None or p_value >= WORST_FIT:
        return verdict
    word, _, reason = verdict.partition(": ")
    rest = (
        f"besides, {reason}"
        if word == "unreliable"
        else f"the inference under the model is {verdict}"
    )
    return (
        "unreliable: the data do not look like what the model makes (posterior predictive p-value"
        f" {show_p_value(p_value)}); {rest}"
    )
