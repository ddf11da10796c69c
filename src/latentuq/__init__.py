"""Bayesian inverse problems with generative priors."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentuq.data import load_dataset as load_dataset
    from latentuq.data import load_digits as load_digits
    from latentuq.errors import UserError as UserError
    from latentuq.noise import GaussianNoise as GaussianNoise
    from latentuq.operators import Blur as Blur
    from latentuq.operators import Downsample as Downsample
    from latentuq.operators import Gain as Gain
    from latentuq.operators import LinearOperator as LinearOperator
    from latentuq.operators import Mask as Mask
    from latentuq.operators import Matrix as Matrix
    from latentuq.operators import Projection as Projection
    from latentuq.operators import RandomMask as RandomMask
    from latentuq.operators import stack as stack
    from latentuq.posterior import Posterior as Posterior
    from latentuq.posterior import estimate_noise as estimate_noise
    from latentuq.posterior import load_posterior as load_posterior
    from latentuq.posterior import solve as solve
    from latentuq.posterior import solve_density as solve_density
    from latentuq.prior import FlowSize as FlowSize
    from latentuq.prior import GenerativePrior as GenerativePrior
    from latentuq.prior import VAESize as VAESize
    from latentuq.problem import InverseProblem as InverseProblem
    from latentuq.problem_file import load_problem as load_problem
    from latentuq.problem_file import save_problem as save_problem
    from latentuq.store import load_prior as load_prior
    from latentuq.training import FitConfig as FitConfig
    from latentuq.training import ModelErrorConfig as ModelErrorConfig
    from latentuq.training import TrainingConfig as TrainingConfig
    from latentuq.training.train import train_prior as train_prior
    from latentuq.training.user_prior import prior_from as prior_from

__version__ = "0.1.0"

# Public name -> module that defines it; imported on first use, so that `import latentuq` is light.
_PUBLIC = {
    "GaussianNoise": "latentuq.noise",
    "Blur": "latentuq.operators",
    "Downsample": "latentuq.operators",
    "Gain": "latentuq.operators",
    "LinearOperator": "latentuq.operators",
    "Mask": "latentuq.operators",
    "Matrix": "latentuq.operators",
    "Projection": "latentuq.operators",
    "RandomMask": "latentuq.operators",
    "stack": "latentuq.operators",
    "InverseProblem": "latentuq.problem",
    "Posterior": "latentuq.posterior",
    "estimate_noise": "latentuq.posterior",
    "load_posterior": "latentuq.posterior",
    "solve": "latentuq.posterior",
    "solve_density": "latentuq.posterior",
    "load_problem": "latentuq.problem_file",
    "save_problem": "latentuq.problem_file",
    "prior_from": "latentuq.training.user_prior",
    "FitConfig": "latentuq.training",
    "FlowSize": "latentuq.prior",
    "GenerativePrior": "latentuq.prior",
    "ModelErrorConfig": "latentuq.training",
    "TrainingConfig": "latentuq.training",
    "UserError": "latentuq.errors",
    "VAESize": "latentuq.prior",
    "load_dataset": "latentuq.data",
    "load_digits": "latentuq.data",
    "load_prior": "latentuq.store",
    "train_prior": "latentuq.training.train",
}

__all__ = ["__version__", *_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'latentuq' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
