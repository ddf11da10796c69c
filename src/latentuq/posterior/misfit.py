"""Do the data look like anything that the model makes?"""

import numpy as np
from scipy.special import gammaincc

from latentuq.inference.result import Inference
from latentuq.problem import InverseProblem

WORST_FIT = 0.02
"""The p-value below which a verdict says that the data do not fit the model."""


def predictive_p_value(inference: Inference, problem: InverseProblem) -> float:
    """Posterior mean of the chance that replicates have a larger r.r + u.u than data and draw.

    If the model made the data, (u, y) is a draw of it, and r.r + u.u follows chi-squared with as
    many degrees as there are data and dimensions. A bad fit shows in r.r; data that can be fitted,
    but only by something that the prior calls impossible, in u.u. An inflated model error makes
    the sum smaller than that, and alarms rarer.
    """
    degrees = np.count_nonzero(problem.observed) + problem.dim
    draws = inference.draws
    distances = 2 * (float(problem.log_normalisation) - np.asarray(draws.log_densities, np.float64))
    chances = gammaincc(degrees / 2, np.maximum(distances, 0) / 2)
    weights = np.exp(np.asarray(draws.log_weights, np.float64))
    # Rounding may leave the sum of the weights above one.
    return min(1.0, float(np.sum(np.where(weights > 0, weights * chances, 0))))


def check_fit(verdict: str, p_value: float | None) -> str:
    """The verdict, unless the data do not fit the model: then no posterior under it is reliable."""
    if p_value is None or p_value >= WORST_FIT or verdict.startswith("unreliable"):
        return verdict
    shown = f"{p_value:.2g}" if p_value > 1e-6 else "below 1e-6"
    return (
        "unreliable: the data do not look like what the model makes (posterior predictive p-value"
        f" {shown}); the inference under the model is {verdict}"
    )
