"""Which likelihood a problem has."""

import numpy as np
from jaxtyping import Float

from latentuq.forward.gain import Gain
from latentuq.forward.operator import Operator
from latentuq.likelihood.data import arrange_data
from latentuq.likelihood.gaussian import GaussianLikelihood
from latentuq.likelihood.likelihood import Likelihood
from latentuq.likelihood.noise import GaussianNoise
from latentuq.likelihood.signal_dependent import SignalDependentLikelihood
from latentuq.prior.model_error import ModelError


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
    data = arrange_data(operator, noise, model_error, y)
    shows_pixels = isinstance(data.forward, Gain) and bool(np.any(data.counted))
    if model_error.gain is not None and shows_pixels:
        return SignalDependentLikelihood(data, model_error)
    return GaussianLikelihood(data, model_error)
