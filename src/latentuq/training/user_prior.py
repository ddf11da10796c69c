"""Any JAX generator as a prior, with a flow fitted to its latents if they are not normal."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.errors import UserError
from latentuq.prior import Card, GenerativePrior, make_model_error


def prior_from(
    decode_fn: Callable[[Float[Array, " dim"]], Float[Array, "*shape"]],
    dim: int,
    shape: Sequence[int],
    model_error: object,
    latents: Float[Array, "n dim"] | None = None,
    key: Key[Array, ""] | None = None,
    flow: "FlowConfig | None" = None,
) -> GenerativePrior:
    """Wraps a generator whose latent is N(0, I), or whose latent is described by samples.

    Args:
        decode_fn: maps one latent vector to one image; any JAX-differentiable callable.
        dim: size of the latent vector.
        shape: shape of the image.
        model_error: the generator's error: a standard deviation (scalar or image) or a covariance
            (pixels x pixels).
        latents: samples of a latent that is not N(0, I); a flow is fitted to them, so that
            u ~ N(0, I) -> flow -> decode_fn is the prior.
        key: randomness of that fit.
        flow: size and training of that flow.
    """
    shape = tuple(int(n) for n in shape)
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
    fitted = None
    if latents is not None:
        fitted = _fit_flow_to(key, latents, dim, flow)
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
