"""Bayesian inverse problems with generative priors."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentuq.core.errors import UserError as UserError
    from latentuq.data.datasets import load_dataset as load_dataset
    from latentuq.data.digits import load_digits as load_digits
    from latentuq.forward.blur import Blur as Blur
    from latentuq.forward.downsample import Downsample as Downsample
    from latentuq.forward.gain import Gain as Gain
    from latentuq.forward.linear import LinearOperator as LinearOperator
    from latentuq.forward.mask import Mask as Mask
    from latentuq.forward.mask import RandomMask as RandomMask
    from latentuq.forward.matrix import Matrix as Matrix
    from latentuq.forward.projection import Projection as Projection
    from latentuq.forward.stacked import stack as stack
    from latentuq.likelihood.noise import GaussianNoise as GaussianNoise
    from latentuq.posterior.file import load_posterior as load_posterior
    from latentuq.posterior.noise_level import estimate_noise as estimate_noise
    from latentuq.posterior.posterior import Posterior as Posterior
    from latentuq.posterior.solve import solve as solve
    from latentuq.posterior.solve import solve_density as solve_density
    from latentuq.prior.architecture import FlowSize as FlowSize
    from latentuq.prior.architecture import VAESize as VAESize
    from latentuq.prior.generative import GenerativePrior as GenerativePrior
    from latentuq.prior.model_file import load_prior as load_prior
    from latentuq.prior.training.config import FitConfig as FitConfig
    from latentuq.prior.training.config import ModelErrorConfig as ModelErrorConfig
    from latentuq.prior.training.config import TrainingConfig as TrainingConfig
    from latentuq.prior.training.train import train_prior as train_prior
    from latentuq.prior.training.user_prior import prior_from as prior_from
    from latentuq.problem.files import load_problem as load_problem
    from latentuq.problem.files import save_problem as save_problem
    from latentuq.problem.inverse import InverseProblem as InverseProblem
    from latentuq.survey.many import batch as batch
    from latentuq.survey.many import solve_many as solve_many

__version__ = "0.2.0"

# Public name -> module that defines it; imported on first use, so that `import latentuq` is light.
_PUBLIC = {
    "GaussianNoise": "latentuq.likelihood.noise",
    "Blur": "latentuq.forward.blur",
    "Downsample": "latentuq.forward.downsample",
    "Gain": "latentuq.forward.gain",
    "LinearOperator": "latentuq.forward.linear",
    "Mask": "latentuq.forward.mask",
    "Matrix": "latentuq.forward.matrix",
    "Projection": "latentuq.forward.projection",
    "RandomMask": "latentuq.forward.mask",
    "stack": "latentuq.forward.stacked",
    "InverseProblem": "latentuq.problem.inverse",
    "batch": "latentuq.survey.many",
    "solve_many": "latentuq.survey.many",
    "Posterior": "latentuq.posterior.posterior",
    "estimate_noise": "latentuq.posterior.noise_level",
    "load_posterior": "latentuq.posterior.file",
    "solve": "latentuq.posterior.solve",
    "solve_density": "latentuq.posterior.solve",
    "load_problem": "latentuq.problem.files",
    "save_problem": "latentuq.problem.files",
    "prior_from": "latentuq.prior.training.user_prior",
    "FitConfig": "latentuq.prior.training.config",
    "FlowSize": "latentuq.prior.architecture",
    "GenerativePrior": "latentuq.prior.generative",
    "ModelErrorConfig": "latentuq.prior.training.config",
    "TrainingConfig": "latentuq.prior.training.config",
    "UserError": "latentuq.core.errors",
    "VAESize": "latentuq.prior.architecture",
    "load_dataset": "latentuq.data.datasets",
    "load_digits": "latentuq.data.digits",
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
