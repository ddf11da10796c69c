"""train_prior: VAE, then flow, then model error, then the numbers that say how good it all is."""

import dataclasses
import platform
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.core.compilation import keep_compiled
from latentuq.core.errors import UserError
from latentuq.data.image_sets import ImageSet, make_image_set
from latentuq.prior.flow import Flow
from latentuq.prior.generative import Card, GenerativePrior
from latentuq.prior.model_file import round_to_half, save_prior
from latentuq.prior.training.checkpoint import Checkpoints
from latentuq.prior.training.config import TrainingConfig
from latentuq.prior.training.flow import fit_flow
from latentuq.prior.training.loop import fit
from latentuq.prior.training.losses import decode_all, encode_all, make_vae_loss, sample_posteriors
from latentuq.prior.training.progress import OnProgress, Progress
from latentuq.prior.training.quality import flow_needed, measure_latents, measure_vae
from latentuq.prior.training.residuals import (
    estimate_model_errors,
    with_signal_dependence,
)
from latentuq.prior.vae import VAE, init_vae

FEWEST_IMAGES = 40
"""Fewer training images than this are taken for a mistake."""
_RESIDUALS_PER_IMAGE = 4
# Test images that the model file keeps: so many, unless they would be more numbers than that.
_MOST_KEPT = 40
_MOST_NUMBERS_KEPT = 2**19
_FEWEST_KEPT = 10
# Nats per image that float16 may cost before the model is stored in float32.
_HALF_TOLERANCE = 0.05


class Split(NamedTuple):
    """The training images by what they are used for."""

    fit: np.ndarray
    held_out: np.ndarray
    choice: np.ndarray
    test: np.ndarray


def train_prior(
    key: Key[Array, ""],
    images: "Float[Array, 'n *shape'] | ImageSet",
    config: TrainingConfig | None = None,
    path: str | Path | None = None,
    on_progress: OnProgress = lambda stage, progress: None,
) -> GenerativePrior:
    """Trains VAE, flow and model error on clean images.

    Args:
        key: The randomness of the whole run; `config.seed` is for the command line.
        images: Clean images in any units; an `ImageSet` brings its own test images.
        config: The sizes of the networks, learning rates, and so on.
        path: The model file to write; without it nothing is written.
        on_progress: A function that is called with the stage ("vae", "flow" or "measure") and its
            progress.
    """
    image_set = images if isinstance(images, ImageSet) else make_image_set(np.asarray(images))
    prior = run_training(key, image_set, config or TrainingConfig(), on_progress=on_progress)
    if path is not None:
        save_prior(path, prior)
    return prior


def run_training(
    key: Key[Array, ""],
    images: ImageSet,
    config: TrainingConfig,
    checkpoints: Checkpoints | None = None,
    on_progress: OnProgress = lambda stage, progress: None,
    name: str = "unnamed",
    command: str = "",
) -> GenerativePrior:
    """Runs or continues a training; see `train_prior`."""
    keep_compiled()
    checkpoints = checkpoints or Checkpoints(None, {})
    split_key, vae_key, flow_key, error_key, quality_key = jax.random.split(key, 5)
    split = split_images(split_key, images, config)
    vae = _train_vae(vae_key, split.fit, config, checkpoints, on_progress)
    flow = _train_flow(flow_key, vae, split.fit, config, checkpoints, on_progress)
    on_progress("measure", Progress(0, 3, {}, "the generator's error on images kept from training"))
    prior, error_metrics = _assemble(error_key, vae, flow, split, images, config)
    train_seconds = checkpoints.seconds
    on_progress("measure", Progress(1, 3, {}, "the ELBO of test images, in half precision too"))
    rounded = round_to_half(prior)
    vae_as_stored = _vae_of(rounded, vae.log_sigma)
    test = jnp.asarray(split.test)
    exact = measure_vae(quality_key, vae, test)["elbo"]
    cost_of_half = exact - measure_vae(quality_key, vae_as_stored, test)["elbo"]
    stored = rounded if abs(cost_of_half) <= _HALF_TOLERANCE else prior
    message = "how well classifiers tell draws of the prior from images (several are trained)"
    on_progress("measure", Progress(2, 3, {}, message))
    metrics = _measure(quality_key, _vae_of(stored, vae.log_sigma), stored.flow, split)
    metrics["flow_needed"] = flow_needed(metrics)
    metrics |= error_metrics
    metrics["float16_elbo_cost"] = cost_of_half
    metrics["train_seconds"] = train_seconds
    metrics["parameters"] = _count_parameters(stored)
    on_progress("measure", Progress(3, 3, {}, "done"))
    training = {
        "command": command,
        "config": dataclasses.asdict(config),
        "data": images.source,
        "data_checksum": images.checksum,
        "images": {field: len(part) for field, part in split._asdict().items()},
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
    card = Card(name=name, metrics=metrics, training=training, held_out=_kept(split.test))
    return dataclasses.replace(stored, card=card)


def split_images(key: Key[Array, ""], images: ImageSet, config: TrainingConfig) -> Split:
    """Sets images apart at random; a tenth is for testing if no test images came along."""
    n = len(images.train)
    if n < FEWEST_IMAGES:
        raise UserError(
            f"{images.source} holds {n} images; training needs at least {FEWEST_IMAGES}."
        )
    order = np.asarray(jax.random.permutation(key, n))
    sizes = [
        max(5, round(n * config.model_error.held_out)),
        max(5, round(n * config.model_error.choice)),
    ]
    if images.test is None:
        sizes.append(max(10, n // 10))
    if sum(sizes) > n // 2:
        raise UserError(
            f"model_error.held_out = {config.model_error.held_out:g} and choice = "
            f"{config.model_error.choice:g} leave {max(0, n - sum(sizes))} of {n} images to train "
            "on; take less."
        )
    held_out, choice, *rest, fit_part = np.split(order, np.cumsum(sizes))
    test = images.test if images.test is not None else images.train[rest[0]]
    train = images.train
    return Split(
        fit=train[np.sort(fit_part)],
        held_out=train[np.sort(held_out)],
        choice=train[np.sort(choice)],
        test=test,
    )


def _train_vae(key, images, config, checkpoints, on_progress) -> VAE:
    init_key, fit_key = jax.random.split(key)
    vae = init_vae(init_key, images.shape[1:], config.vae, config.sigma_start)
    done = checkpoints.finished("vae", vae)
    if done is not None:
        return done
    return fit(
        fit_key,
        vae,
        make_vae_loss(config.sigma, config.encoder_noise),
        jnp.asarray(images),
        config.vae_fit,
        checkpoints.resume("vae"),
        checkpoints.saver("vae", {}),
        lambda progress: on_progress("vae", progress),
    )


def _train_flow(key, vae, images, config, checkpoints, on_progress) -> Flow | None:
    if config.flow.depth == 0:
        return None
    posteriors = encode_all(vae.encoder, jnp.asarray(images))
    return fit_flow(
        key,
        posteriors,
        config.flow,
        config.flow_fit,
        checkpoints.resume("flow"),
        checkpoints.saver("flow", {"vae": vae}),
        lambda progress: on_progress("flow", progress),
    )


def _assemble(key, vae: VAE, flow: Flow | None, split: Split, images: ImageSet, config):
    held_key, choice_key = jax.random.split(key)
    residuals, decoded = held_out_residuals(held_key, vae, split.held_out)
    further, _ = held_out_residuals(choice_key, vae, split.choice)
    errors = estimate_model_errors(
        residuals, further, config.model_error.floor, config.model_error.rank
    )
    errors = with_signal_dependence(errors, residuals, decoded, config.model_error.most_data)
    prior = GenerativePrior(
        decoder=vae.decoder,
        flow=flow,
        model_error=errors.estimates[errors.default],
        model_errors=errors.estimates,
        encoder=vae.encoder,
        dim=config.vae.latent,
        shape=split.fit.shape[1:],
        scaling=images.scaling,
    )
    measured = float(errors.estimates["scalar"].std.mean())
    metrics = {
        "sigma_model": float(vae.sigma) if config.sigma == "trainable" else measured,
        "sigma_measured": measured,
        "model_error": errors.default,
        "model_error_log_likelihood": errors.log_likelihoods,
    }
    return prior, metrics


def held_out_residuals(
    key: Key[Array, ""], vae: VAE, images: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Encodes and decodes images that were kept from training.

    Returns:
        The residuals x - decode(z), with z sampled from the encoder because its means would lose
        the variance along the generator's tangent, and decode(z).
    """
    repeated = jnp.repeat(jnp.asarray(images), _RESIDUALS_PER_IMAGE, axis=0)
    z = sample_posteriors(key, encode_all(vae.encoder, repeated))
    decoded = decode_all(vae, z)
    return np.asarray(repeated - decoded), np.asarray(decoded)


def _measure(key, vae: VAE, flow: Flow | None, split: Split) -> dict[str, Any]:
    test_key, train_key, latent_key = jax.random.split(key, 3)
    test = jnp.asarray(split.test)
    metrics: dict[str, Any] = {
        f"test_{name}": value for name, value in measure_vae(test_key, vae, test).items()
    }
    order = np.random.default_rng(0).permutation(len(split.fit))
    seen = jnp.asarray(split.fit[order[: len(test)]])
    kept = jnp.concatenate([jnp.asarray(split.held_out), jnp.asarray(split.choice)])
    metrics["train_elbo"] = measure_vae(train_key, vae, seen)["elbo"]
    return metrics | measure_latents(latent_key, vae, flow, test, seen, kept)


def _vae_of(prior: GenerativePrior, log_sigma: Array) -> VAE:
    return VAE(prior.encoder, prior.decoder, log_sigma)  # pyright: ignore[reportArgumentType]


def _kept(test: np.ndarray) -> np.ndarray:
    """A few test images for the model file, so that the prior can be checked without its data."""
    count = min(_MOST_KEPT, max(_FEWEST_KEPT, _MOST_NUMBERS_KEPT // test[0].size))
    return np.random.default_rng(0).permutation(test)[:count]


def _count_parameters(prior: GenerativePrior) -> int:
    networks = (prior.encoder, prior.decoder, prior.flow)
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(networks, eqx.is_inexact_array)))
