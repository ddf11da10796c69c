"""How good a prior is, as numbers."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from latentuq.prior.flow import Flow, standard_normal_log_prob
from latentuq.prior.training.losses import decode_all, encode_all, sample_posteriors
from latentuq.prior.training.two_sample import FEWEST_DRAWS, two_sample_accuracy
from latentuq.prior.vae import VAE

# Nats per pixel that a training image may have in advance of a test image.
_SMALL_GAP = 0.25


def measure_vae(
    key: Key[Array, ""], vae: VAE, images: Float[Array, "n *shape"]
) -> dict[str, float]:
    """ELBO in nats per image, its KL part, and the rms of the reconstruction per pixel.

    `rms` decodes a sample of the approximate posterior, `rms_of_mean` its mean.
    """
    elbo, kl, squared_error, squared_error_of_mean = _vae_parts(vae, key, images)
    return {
        "elbo": float(elbo),
        "kl": float(kl),
        "rms": float(jnp.sqrt(squared_error)),
        "rms_of_mean": float(jnp.sqrt(squared_error_of_mean)),
    }


@eqx.filter_jit
def _vae_parts(vae, key, images):
    def parts(pair):
        key, x = pair
        elbo = vae.elbo(key, x)
        error = x - vae.decoder(vae.encoder(x)[0])
        return elbo.elbo, elbo.kl, elbo.squared_error / x.size, jnp.mean(error**2)

    values = jax.lax.map(parts, (jax.random.split(key, len(images)), images), batch_size=1024)
    return [jnp.mean(value) for value in values]


def measure_latents(
    key: Key[Array, ""],
    vae: VAE,
    flow: Flow | None,
    images: Float[Array, "n *shape"],
    seen: Float[Array, "m *shape"],
    held_out: Float[Array, "k *shape"],
) -> dict[str, float | None]:
    """Does the latent prior fit the encoded images? Negative log-likelihoods and two-sample tests.

    "before" compares encoder samples of the images with z ~ N(0, I), "after" with z = flow(u); in
    image space both sides are decoded. `image_c2st_real` compares the images themselves with draws
    of the whole prior, scalar model error included. `latent_c2st_floor` compares with encoded
    training images (`seen`): what a perfect fit to the training set would score.
    `latent_c2st_held_out` compares draws after the flow with encoded images that were kept from
    training but come from the same set, where a perfect fit scores one half.
    """
    z_key, u_key, *test_keys, noise_key = jax.random.split(key, 9)
    encoded = sample_posteriors(z_key, encode_all(vae.encoder, images))
    u = jax.random.normal(u_key, encoded.shape)
    metrics: dict[str, float | None] = {
        "gaussian_nll": -float(jnp.mean(jax.vmap(standard_normal_log_prob)(encoded))),
        "flow_nll": None,
    }
    draws = {"before": u}
    if flow is not None:
        draws["after"] = _apply_flow(flow, u)
        metrics["flow_nll"] = -float(jnp.mean(_flow_log_prob(flow, encoded)))
    floor_key, seen_key = jax.random.split(test_keys.pop())
    encoded_seen = sample_posteriors(seen_key, encode_all(vae.encoder, seen))
    metrics["latent_c2st_floor"] = _accuracy(floor_key, encoded, encoded_seen)
    decoded = decode_all(vae, encoded)
    for stage in ("before", "after"):
        z = draws.get(stage)
        if z is None:
            metrics[f"latent_c2st_{stage}"] = metrics[f"image_c2st_{stage}"] = None
            continue
        latent_key, image_key = jax.random.split(test_keys.pop())
        metrics[f"latent_c2st_{stage}"] = _accuracy(latent_key, encoded, z)
        generated = decode_all(vae, z)
        metrics[f"image_c2st_{stage}"] = _accuracy(image_key, decoded, generated)
    prior_draws = draws.get("after", u)
    held_key, kept_key = jax.random.split(test_keys.pop())
    encoded_held_out = sample_posteriors(kept_key, encode_all(vae.encoder, held_out))
    metrics["latent_c2st_held_out"] = _accuracy(held_key, encoded_held_out, prior_draws)
    generated = decode_all(vae, prior_draws)
    noise = vae.sigma * jax.random.normal(noise_key, generated.shape)
    metrics["image_c2st_real"] = _accuracy(test_keys.pop(), images, generated + noise)
    return metrics


def _accuracy(key: Key[Array, ""], a: Array, b: Array) -> float | None:
    """The two-sample test, or None where there are too few images for one."""
    if min(len(a), len(b)) < FEWEST_DRAWS:
        return None
    return two_sample_accuracy(key, a, b)


@eqx.filter_jit
def _apply_flow(flow: Flow, u: Array) -> Array:
    return jax.vmap(flow)(u)


@eqx.filter_jit
def _flow_log_prob(flow: Flow, z: Array) -> Array:
    return jax.vmap(flow.log_prob)(z)


def flow_needed(metrics: dict[str, Any]) -> bool | None:
    """Whether a classifier tells encoded latents from N(0, I) by more than chance and noise."""
    accuracy = metrics["latent_c2st_before"]
    return None if accuracy is None else accuracy > 0.55


def compare_elbos(metrics: Mapping[str, Any], pixels: int) -> str:
    """Train against test ELBO in words, where a model tells them."""
    if not {"train_elbo", "test_elbo"} <= metrics.keys():
        return "The model does not tell."
    train, test = metrics["train_elbo"], metrics["test_elbo"]
    said = f"ELBO {train:.0f} nats per training image, {test:.0f} per test image"
    if train - test <= _SMALL_GAP * pixels:
        return f"{said}: the prior has not learnt its images by heart."
    return (
        f"{said}: the prior has learnt its images by heart. Train it on more images, for fewer"
        " epochs, or with a smaller network."
    )
