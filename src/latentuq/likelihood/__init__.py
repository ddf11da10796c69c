"""How probable data are, given the clean image that the generator shows."""

import numpy as np
from jaxtyping import Float

from latentuq.forward import Operator
from latentuq.likelihood.data import arrange_data
from latentuq.likelihood.gaussian import GaussianLikelihood
from latentuq.likelihood.likelihood import Likelihood
from latentuq.likelihood.noise import GaussianNoise
from latentuq.likelihood.signal_dependent import SignalDependentLikelihood
from latentuq.prior import ModelError

__all__ = [
    "GaussianLikelihood",
    "GaussianNoise",
    "Likelihood",
    "SignalDependentLikelihood",
    "make_likelihood",
]


def make_likelihood(
    operator: Operator,
    noise: GaussianNoise,
    model_error: ModelError,
    y: Float[np.ndarray, "*data"],
) -> Likelihood:
    """Chooses the likelihood that the noise and the model error ask for.

    Args:
        operator: A, bound.
        noise: The noise of the instrument.
        model_error: The error of the generator.
        y: The data, NaN where nothing is observed.
    """
    gaussian = GaussianLikelihood(arrange_data(operator, noise, model_error, y), model_error)
    if SignalDependentLikelihood.applies_to(gaussian):
        return SignalDependentLikelihood(gaussian)
    return gaussian
