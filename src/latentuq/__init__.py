"""Bayesian inverse problems with generative priors."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentuq.core.errors import UserError as UserError
    from latentuq.data import load_dataset as load_dataset
    from latentuq.data import load_digits as load_digits
    from latentuq.forward import Blur as Blur
    from latentuq.forward import Downsample as Downsample
    from latentuq.forward import Gain as Gain
    from latentuq.forward import LinearOperator as LinearOperator
    from latentuq.forward import Mask as Mask
    from latentuq.forward import Matrix as Matrix
    from latentuq.forward import Projection as Projection
    from latentuq.forward import RandomMask as RandomMask
    from latentuq.forward import stack as stack
    from latentuq.likelihood.noise import GaussianNoise as GaussianNoise
    from latentuq.posterior import Posterior as Posterior
    from latentuq.posterior import estimate_noise as estimate_noise
    from latentuq.posterior import load_posterior as load_posterior
    from latentuq.posterior import solve as solve
    from latentuq.posterior import solve_density as solve_density
    from latentuq.prior import FlowSize as FlowSize
    from latentuq.prior import GenerativePrior as GenerativePrior
    from latentuq.prior import VAESize as VAESize
    from latentuq.prior.model_file import load_prior as load_prior
    from latentuq.prior.training import FitConfig as FitConfig
    from latentuq.prior.training import ModelErrorConfig as ModelErrorConfig
    from latentuq.prior.training import TrainingConfig as TrainingConfig
    from latentuq.prior.training.train import train_prior as train_prior
    from latentuq.prior.training.user_prior import prior_from as prior_from
    from latentuq.problem import InverseProblem as InverseProblem
    from latentuq.problem.files import load_problem as load_problem
    from latentuq.problem.files import save_problem as save_problem

__version__ = "0.2.0"

# Public name -> module that defines it; imported on first use, so that `import latentuq` is light.
_PUBLIC = {
    "GaussianNoise": "latentuq.likelihood.noise",
    "Blur": "latentuq.forward",
    "Downsample": "latentuq.forward",
    "Gain": "latentuq.forward",
    "LinearOperator": "latentuq.forward",
    "Mask": "latentuq.forward",
    "Matrix": "latentuq.forward",
    "Projection": "latentuq.forward",
    "RandomMask": "latentuq.forward",
    "stack": "latentuq.forward",
    "InverseProblem": "latentuq.problem",
    "Posterior": "latentuq.posterior",
    "estimate_noise": "latentuq.posterior",
    "load_posterior": "latentuq.posterior",
    "solve": "latentuq.posterior",
    "solve_density": "latentuq.posterior",
    "load_problem": "latentuq.problem.files",
    "save_problem": "latentuq.problem.files",
    "prior_from": "latentuq.prior.training.user_prior",
    "FitConfig": "latentuq.prior.training",
    "FlowSize": "latentuq.prior",
    "GenerativePrior": "latentuq.prior",
    "ModelErrorConfig": "latentuq.prior.training",
    "TrainingConfig": "latentuq.prior.training",
    "UserError": "latentuq.core.errors",
    "VAESize": "latentuq.prior",
    "load_dataset": "latentuq.data",
    "load_digits": "latentuq.data",
    "load_prior": "latentuq.prior.model_file",
    "train_prior": "latentuq.prior.training.train",
}

__all__ = ["__version__", *_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'latentuq' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
