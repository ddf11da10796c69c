"""RealNVP: an invertible map from the standard normal `u` to the VAE latent `z`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from latentuq.prior.architecture import FlowSize
from latentuq.prior.networks import ACTIVATIONS, Linear, init_linear

# exp(2) per coupling: enough for any latent we have met, too little to overflow float32.
LOG_SCALE_LIMIT = 2.0


class Coupling(eqx.Module):
    """z_i = u_i for kept i, else u_i exp(s_i) + t_i, with (s, t) a perceptron of the kept part.

    The log-scale is clamped smoothly, s = limit * tanh(raw / limit).
    """

    layers: tuple[Linear, Linear, Linear]

    def scale_and_shift(
        self, kept: Bool[Array, " dim"], v: Float[Array, " dim"], activation: str
    ) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        activate = ACTIVATIONS[activation]
        first, second, last = self.layers
        raw, shift = jnp.split(last(activate(second(activate(first(jnp.where(kept, v, 0.0)))))), 2)
        log_scale = LOG_SCALE_LIMIT * jnp.tanh(raw / LOG_SCALE_LIMIT)
        return jnp.where(kept, 0.0, log_scale), jnp.where(kept, 0.0, shift)


class Flow(eqx.Module):
    """Stacked affine couplings followed by a fixed affine map to each coordinate's scale."""

    couplings: Coupling
    kept: Bool[Array, "depth dim"]
    location: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    activation: str = eqx.field(static=True)

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Maps the base variable to the latent, z = flow(u)."""
        return self.forward(u)[0]

    def forward(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """Returns z = flow(u) and ln |det dz/du|."""

        def apply(v, layer):
            coupling, kept = layer
            log_scale, shift = coupling.scale_and_shift(kept, v, self.activation)
            return v * jnp.exp(log_scale) + shift, jnp.sum(log_scale)

        v, log_scales = jax.lax.scan(apply, u, (self.couplings, self.kept))
        return self.location + self.scale * v, jnp.sum(log_scales) + jnp.sum(jnp.log(self.scale))

    def inverse(self, z: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """Returns u with flow(u) = z and ln |det du/dz|."""

        def undo(v, layer):
            coupling, kept = layer
            log_scale, shift = coupling.scale_and_shift(kept, v, self.activation)
            return (v - shift) * jnp.exp(-log_scale), -jnp.sum(log_scale)

        v = (z - self.location) / self.scale
        u, log_scales = jax.lax.scan(undo, v, (self.couplings, self.kept), reverse=True)
        return u, jnp.sum(log_scales) - jnp.sum(jnp.log(self.scale))

    def log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """Ln of the normalised density of z = flow(u), u ~ N(0, I)."""
        u, log_det = self.inverse(z)
        return standard_normal_log_prob(u) + log_det


def standard_normal_log_prob(u: Float[Array, " dim"]) -> Float[Array, ""]:
    """Ln N(u; 0, I)."""
    return -0.5 * (jnp.sum(u**2) + u.shape[-1] * jnp.log(2 * jnp.pi))


def init_flow(
    key: Key[Array, ""],
    size: FlowSize,
    location: Float[Array, " dim"],
    scale: Float[Array, " dim"],
) -> Flow:
    """Draws a flow whose couplings all start as the identity, so that z = location + scale * u."""
    dim, width = location.shape[0], size.width

    def init_coupling(key):
        first_key, second_key = jax.random.split(key)
        last = Linear(jnp.zeros((width, 2 * dim)), jnp.zeros(2 * dim))
        return Coupling(
            (init_linear(first_key, dim, width), init_linear(second_key, width, width), last)
        )

    return Flow(
        couplings=jax.vmap(init_coupling)(jax.random.split(key, size.depth)),
        kept=jnp.asarray(_kept_coordinates(dim, size.depth)),
        location=location,
        scale=scale,
        activation=size.activation,
    )


def _kept_coordinates(dim: int, depth: int) -> np.ndarray:
    """Cycles through lower half, upper half, odd, even: every coordinate conditions every other."""
    index = np.arange(dim)
    half = index < dim // 2
    odd = index % 2 == 1
    return np.stack([(half, ~half, odd, ~odd)[layer % 4] for layer in range(depth)])
