"""The answer to an inverse problem: Posterior, how it is found, and how it is kept."""

from latentuq.posterior.file import load_posterior
from latentuq.posterior.noise_level import NoiseLevel, estimate_noise
from latentuq.posterior.posterior import Posterior
from latentuq.posterior.solve import make_posterior, solve, solve_density

__all__ = [
    "NoiseLevel",
    "Posterior",
    "estimate_noise",
    "load_posterior",
    "make_posterior",
    "solve",
    "solve_density",
]
