"""Fitting the flow to samples of the latent."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from latentuq.prior.architecture import FlowSize
from latentuq.prior.flow import Flow, init_flow
from latentuq.prior.training.config import FitConfig
from latentuq.prior.training.loop import fit
from latentuq.prior.training.losses import flow_loss, sample_posteriors


def fit_flow(
    key: Key[Array, ""],
    posteriors: Float[Array, "n 2 dim"],
    size: FlowSize,
    config: FitConfig,
    *callbacks: Callable,
) -> Flow:
    """Fits a flow to samples of Gaussians given by mean and standard deviation.

    Fresh samples are drawn at every step; standard deviations of zero are plain samples.
    """
    init_key, scale_key, fit_key = jax.random.split(key, 3)
    z = sample_posteriors(scale_key, posteriors)
    flow = init_flow(init_key, size, jnp.mean(z, axis=0), jnp.std(z, axis=0) + 1e-6)
    return fit(fit_key, flow, flow_loss, posteriors, config, *callbacks)
