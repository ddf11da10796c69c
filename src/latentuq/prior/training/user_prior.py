"""Any JAX generator as a prior, with a flow fitted to its latents if they are not normal."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.core.errors import UserError
from latentuq.core.options import check
from latentuq.prior.architecture import FlowSize
from latentuq.prior.flow import Flow
from latentuq.prior.generative import Card, GenerativePrior
from latentuq.prior.model_error import make_model_error
from latentuq.prior.training.config import FitConfig, TrainingConfig
from latentuq.prior.training.flow import fit_flow


def prior_from(
    decode_fn: Callable[[Float[Array, " dim"]], Float[Array, "*shape"]],
    dim: int,
    shape: Sequence[int],
    model_error: object,
    latents: Float[Array, "n dim"] | None = None,
    key: Key[Array, ""] | None = None,
    flow: FlowSize | None = None,
    flow_fit: FitConfig | None = None,
) -> GenerativePrior:
    """Wraps a generator whose latent is N(0, I), or whose latent is described by samples.

    Args:
        decode_fn: Any JAX-differentiable callable that maps one latent vector to one image.
        dim: The size of the latent vector.
        shape: The shape of the image.
        model_error: The generator's error: a standard deviation (scalar or image) or a covariance
            (pixels x pixels).
        latents: Samples of a latent that is not N(0, I); a flow is fitted to them, so that
            u ~ N(0, I) -> flow -> decode_fn is the prior.
        key: The randomness of that fit.
        flow: The size of that flow.
        flow_fit: How that flow is fitted.
    """
    shape = tuple(int(n) for n in shape)
    if dim < 1:
        raise UserError(f"A latent vector has at least one number, not dim={dim}.")
    flow, flow_fit = flow or FlowSize(), flow_fit or TrainingConfig().flow_fit
    check(flow, "flow.")
    check(flow_fit, "flow_fit.")
    try:
        out = jax.eval_shape(decode_fn, jax.ShapeDtypeStruct((dim,), jnp.float32))
    except Exception as error:
        raise UserError(f"decode_fn fails on a vector of length {dim}: {error}") from error
    if not isinstance(out, jax.ShapeDtypeStruct) or out.shape != shape:
        raise UserError(
            f"decode_fn returns {getattr(out, 'shape', out)} for one latent vector of length {dim},"
            f" but shape={shape} was announced."
        )
    error = make_model_error(model_error, shape)
    fitted = None if latents is None else _fit_to(key, latents, dim, flow, flow_fit)
    return GenerativePrior(
        decoder=decode_fn,
        flow=fitted,
        model_error=error,
        model_errors={"given": error},
        encoder=None,
        dim=dim,
        shape=shape,
        card=Card(name=getattr(decode_fn, "__name__", type(decode_fn).__name__)),
    )


def _fit_to(
    key: Key[Array, ""] | None,
    latents: Float[Array, "n dim"],
    dim: int,
    size: FlowSize,
    config: FitConfig,
) -> Flow:
    samples = np.asarray(latents, np.float32)
    if samples.ndim != 2 or samples.shape[1] != dim:
        raise UserError(f"latents have shape {samples.shape}, but (n, {dim}) is expected.")
    if len(samples) < 2 or not np.all(np.isfinite(samples)):
        raise UserError("latents must be at least two finite samples.")
    if size.depth == 0:
        raise UserError("A flow of depth 0 cannot be fitted: give it couplings, or no latents.")
    if key is None:
        raise UserError("Fitting a flow to latents is random: give key=jax.random.key(0).")
    # Samples are Gaussians of no width.
    posteriors = jnp.stack([jnp.asarray(samples), jnp.zeros_like(samples)], axis=1)
    return fit_flow(key, posteriors, size, config)
