"""How much did the data tell about u, beyond what the prior knew?"""

from typing import NamedTuple

import numpy as np

from latentuq.inference.importance import expectation
from latentuq.inference.result import Inference

_LOG_TWO_PI = float(np.log(2 * np.pi))


class Learned(NamedTuple):
    """What separates a posterior of u from its prior N(0, I).

    Attributes:
        information: The Kullback-Leibler divergence of the posterior from the prior, in nats.
        variance_left: The share of the prior's variance that the data leave: tr cov(u | y) / dim.
    """

    information: float
    variance_left: float


def measure_learned(inference: Inference) -> Learned | None:
    """Computes KL(posterior || prior) = E[ln p(y | u)] - ln p(y), and the variance that is left.

    Both are averages over the weighted draws of a density that contains N(0, I). There are none if
    no draw has any weight.
    """
    found = inference.draws
    points = np.asarray(found.draws, np.float64)
    if not np.any(np.asarray(found.log_weights) > -np.inf):
        return None
    log_prior = -0.5 * (np.sum(points**2, axis=1) + points.shape[1] * _LOG_TWO_PI)
    log_likelihood, _ = expectation(
        np.asarray(found.log_densities, np.float64) - log_prior, found.log_weights
    )
    mean, _ = expectation(points, found.log_weights)
    variance, _ = expectation((points - mean) ** 2, found.log_weights)
    # A divergence is never negative; an estimate of one near zero can be.
    information = max(float(log_likelihood) - float(found.log_evidence), 0.0)
    return Learned(information, float(np.mean(variance)))
