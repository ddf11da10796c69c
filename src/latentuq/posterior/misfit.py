"""Do the data look like anything that the model makes?"""

import numpy as np
from scipy.special import gammaincc

from latentuq.inference.result import Inference
from latentuq.problem import InverseProblem

WORST_FIT = 0.02
"""The p-value below which a verdict says that the data do not fit the model."""


def predictive_p_value(inference: Inference, problem: InverseProblem) -> float | None:
    """Posterior mean of the chance that replicates have a larger r.r + u.u than data and draw.

    If the model made the data, (u, y) is a draw of it, and r.r + u.u follows chi-squared with as
    many degrees as there are data and dimensions. A bad fit shows in r.r; data that can be fitted,
    but only by something that the prior calls impossible, in u.u. An inflated model error makes
    the sum smaller than that, and alarms rarer. None if no draw has any weight.
    """
    degrees = np.count_nonzero(problem.observed) + problem.dim
    draws = inference.draws
    distances = 2 * (float(problem.log_normalisation) - np.asarray(draws.log_densities, np.float64))
    chances = gammaincc(degrees / 2, np.maximum(distances, 0) / 2)
    weights = np.exp(np.asarray(draws.log_weights, np.float64))
    if not np.any(weights > 0):
        return None
    # Rounding may leave the sum of the weights above one.
    return min(1.0, float(np.sum(np.where(weights > 0, weights * chances, 0))))


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
