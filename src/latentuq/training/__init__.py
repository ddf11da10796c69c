"""Fitting VAE, flow and model error, resumable."""

from latentuq.training.user_prior import prior_from

__all__ = ["prior_from"]
