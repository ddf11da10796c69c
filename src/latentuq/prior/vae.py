"""The variational autoencoder: mean-field Gaussian encoder, Gaussian likelihood, ELBO."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.prior.architecture import VAESize
from latentuq.prior.networks import ResidualNetwork, init_residual_network

_LOG_TWO_PI = 1.8378770664093453


class Elbo(NamedTuple):
    """Evidence lower bound of one image and its parts, in nats."""

    elbo: Float[Array, ""]
    kl: Float[Array, ""]
    squared_error: Float[Array, ""]


class Decoder(eqx.Module):
    """z -> image mean; a sigmoid keeps the output in [0, 1], "linear" leaves it free."""

    network: ResidualNetwork
    shape: tuple[int, ...] = eqx.field(static=True)
    output: str = eqx.field(static=True)

    def __call__(self, z: Float[Array, " dim"]) -> Float[Array, "*shape"]:
        x = self.network(z)
        return jnp.reshape(jax.nn.sigmoid(x) if self.output == "sigmoid" else x, self.shape)


class Encoder(eqx.Module):
    """Image -> mean and standard deviation of a diagonal Gaussian over z."""

    network: ResidualNetwork

    def __call__(
        self, x: Float[Array, "*shape"]
    ) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        # Centred inputs train faster; the entry layer's bias could learn this, slowly.
        mean, raw = jnp.split(self.network(2.0 * jnp.ravel(x) - 0.5), 2)
        return mean, jnp.exp(0.5 * jnp.clip(raw, -12.0, 6.0))

    def sample(self, key: Key[Array, ""], x: Float[Array, "*shape"]) -> Float[Array, " dim"]:
        mean, std = self(x)
        return mean + std * jax.random.normal(key, mean.shape)


class VAE(eqx.Module):
    """Encoder, decoder, and the scalar sigma of the likelihood N(x; decode(z), sigma^2 I)."""

    encoder: Encoder
    decoder: Decoder
    log_sigma: Float[Array, ""]

    @property
    def sigma(self) -> Float[Array, ""]:
        return jnp.exp(self.log_sigma)

    def elbo(
        self, key: Key[Array, ""], x: Float[Array, "*shape"], encoder_noise: float = 0.0
    ) -> Elbo:
        """One-sample estimate of E_q[ln N(x; decode(z), sigma^2 I)] - KL(q(z|x) || N(0, I)).

        With `encoder_noise` the encoder sees x plus white noise: a looser bound, and a regulariser.
        """
        z_key, noise_key = jax.random.split(key)
        seen = x + encoder_noise * jax.random.normal(noise_key, x.shape) if encoder_noise else x
        mean, std = self.encoder(seen)
        z = mean + std * jax.random.normal(z_key, mean.shape)
        squared_error = jnp.sum((x - self.decoder(z)) ** 2)
        log_likelihood = -0.5 * squared_error * jnp.exp(-2 * self.log_sigma) - x.size * (
            self.log_sigma + 0.5 * _LOG_TWO_PI
        )
        kl = 0.5 * jnp.sum(mean**2 + std**2 - 1.0) - jnp.sum(jnp.log(std))
        return Elbo(log_likelihood - kl, kl, squared_error)


def init_vae(key: Key[Array, ""], shape: tuple[int, ...], size: VAESize, sigma: float) -> VAE:
    """Draws an untrained VAE for images of the given shape."""
    encoder_key, decoder_key = jax.random.split(key)
    pixels = int(np.prod(shape))
    encoder = init_residual_network(
        encoder_key,
        pixels,
        2 * size.latent,
        size.encoder_width,
        size.encoder_blocks,
        size.activation,
    )
    decoder = init_residual_network(
        decoder_key, size.latent, pixels, size.width, size.blocks, size.activation
    )
    return VAE(
        Encoder(encoder), Decoder(decoder, tuple(shape), size.output), jnp.log(jnp.float32(sigma))
    )
