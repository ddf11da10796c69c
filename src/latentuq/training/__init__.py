"""Fitting VAE, flow and model error, resumable."""

from latentuq.training.config import FitConfig, ModelErrorConfig, TrainingConfig
from latentuq.training.train import train_prior
from latentuq.training.user_prior import prior_from

__all__ = ["FitConfig", "ModelErrorConfig", "TrainingConfig", "prior_from", "train_prior"]
