"""Any JAX generator as a prior, with a flow fitted to its latents if they are not normal."""

from collections.abc import Callable, Sequence
from typing import Any

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

# What the inference does with a generator, besides evaluating it, and what to do if that fails.
_NEEDED: dict[str, tuple[Callable[[Callable[..., Any]], Callable[..., Any]], str]] = {
    "be evaluated for many latent vectors at once (jax.vmap)": (
        lambda fn: lambda u: jax.vmap(fn)(u[None]),
        "write it with jax.numpy",
    ),
    "be differentiated in forward mode (jax.jvp)": (
        lambda fn: lambda u: jax.jvp(fn, (u,), (u,)),
        "a derivative of your own must be a jax.custom_jvp, not a jax.custom_vjp",
    ),
    "be differentiated in reverse mode (jax.grad)": (
        lambda fn: jax.grad(lambda u: jnp.sum(fn(u))),
        "loops must have a fixed number of steps, as jax.lax.scan has",
    ),
    "be differentiated twice (jax.hessian)": (
        lambda fn: jax.hessian(lambda u: jnp.sum(fn(u))),
        "derivatives of your own must be differentiable too",
    ),
}


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
        decode_fn: Any callable that maps one latent vector to one image, and that JAX can
            differentiate twice, in forward and in reverse mode.
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
    _check_derivatives(decode_fn, out, dim)
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


def _check_derivatives(decode_fn: Callable[..., Any], out: jax.ShapeDtypeStruct, dim: int) -> None:
    """Refuses a generator that the inference could not differentiate, without evaluating it."""
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise UserError(f"decode_fn must return real numbers, not {out.dtype}.")
    for what, (transform, way_out) in _NEEDED.items():
        try:
            # Lowered, since a missing forward derivative does not show when it is only traced.
            jax.jit(transform(decode_fn)).lower(jax.ShapeDtypeStruct((dim,), jnp.float32))
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise UserError(
                f"decode_fn cannot {what}, which the inference needs: {way_out}. JAX says: {reason}"
            ) from error


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
