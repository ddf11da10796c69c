"""What VAE and flow minimise."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from latentuq.prior.flow import Flow
from latentuq.prior.training.loop import LossFn
from latentuq.prior.vae import VAE, Encoder


def make_vae_loss(sigma: str, encoder_noise: float) -> LossFn:
    """Minus the mean ELBO per pixel; with `sigma="measured"` the likelihood's sigma stays put."""

    def loss_fn(vae: VAE, key, images):
        if sigma == "measured":
            vae = eqx.tree_at(lambda v: v.log_sigma, vae, replace_fn=jax.lax.stop_gradient)
        keys = jax.random.split(key, images.shape[0])
        elbo = jnp.mean(jax.vmap(lambda key, x: vae.elbo(key, x, encoder_noise).elbo)(keys, images))
        loss = -elbo / images[0].size
        return loss, {"loss": loss, "elbo": elbo, "sigma": vae.sigma}

    return loss_fn


def flow_loss(
    flow: Flow, key: Key[Array, ""], posteriors: Float[Array, "batch 2 dim"]
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Mean negative log-likelihood per dimension of fresh samples from Gaussians (mean, std).

    Location and scale are data statistics, not parameters: gradients stop there.
    """
    flow = eqx.tree_at(lambda f: (f.location, f.scale), flow, replace_fn=jax.lax.stop_gradient)
    z = sample_posteriors(key, posteriors)
    nll = -jnp.mean(jax.vmap(flow.log_prob)(z))
    return nll / z.shape[1], {"loss": nll / z.shape[1], "nll": nll}


@eqx.filter_jit
def encode_all(encoder: Encoder, images: Float[Array, "n *shape"]) -> Float[Array, "n 2 dim"]:
    """Mean and standard deviation of the approximate posterior of every image."""

    def encode(x):
        return jnp.stack(encoder(x))

    return jax.lax.map(encode, images, batch_size=1024)


@eqx.filter_jit
def decode_all(vae: VAE, z: Float[Array, "n dim"]) -> Float[Array, "n *shape"]:
    """The decoded mean of every latent."""
    return jax.lax.map(vae.decoder, z, batch_size=1024)


def sample_posteriors(
    key: Key[Array, ""], posteriors: Float[Array, "n 2 dim"]
) -> Float[Array, "n dim"]:
    """One sample from each encoded Gaussian."""
    mean, std = posteriors[:, 0], posteriors[:, 1]
    return mean + std * jax.random.normal(key, mean.shape)
