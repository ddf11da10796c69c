"""What the methods that reuse the VAE's encoder share: q(z | x), and the way from z to u."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from latentuq import GenerativePrior


def to_base(
    prior: GenerativePrior, z: Float[Array, " dim"]
) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
    """Returns u with flow(u) = z and ln |det du/dz|, which turns densities of u into those of z."""
    return (z, jnp.zeros(())) if prior.flow is None else prior.flow.inverse(z)


def to_latent(
    prior: GenerativePrior, u: Float[Array, " dim"]
) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
    """Returns z = flow(u) and ln |det du/dz|."""
    if prior.flow is None:
        return u, jnp.zeros(())
    z, log_det = prior.flow.forward(u)
    return z, -log_det


def gaussian_log_prob(
    z: Float[Array, " dim"], mean: Float[Array, " dim"], std: Float[Array, " dim"]
) -> Float[Array, ""]:
    """Ln N(z; mean, diag(std^2))."""
    return jnp.sum(jax.scipy.stats.norm.logpdf(z, mean, std))
