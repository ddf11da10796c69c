"""Network sizes, training speed and the embedded models' metrics: docs/results/priors.md."""

import dataclasses
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentuq import TrainingConfig, load_prior
from latentuq.cli.models import format_value, summary
from latentuq.core.cells import Cells, Job, job
from latentuq.core.options import nested, read_toml, replace
from latentuq.data.image_sets import read_images
from latentuq.prior.model_file import embedded_models, read_card
from latentuq.prior.training.flow import fit_flow
from latentuq.prior.training.loop import fit, make_fitter
from latentuq.prior.training.losses import encode_all, make_vae_loss, sample_posteriors
from latentuq.prior.training.quality import measure_vae
from latentuq.prior.training.train import split_images
from latentuq.prior.vae import init_vae
from studies.baselines.timing import best_seconds, matmul_rate
from studies.pages import ROOT, rows, table

CONFIG = read_toml(TrainingConfig(), ROOT / "configs" / "mnist.toml")
SIZES = [(128, 2), (256, 2), (256, 3), (512, 4)]
SIZE_EPOCHS = 8
# The paper's size over-fits after 30 epochs already: its train and test NLL part.
FLOWS = [(32, 80), (64, 80), (128, 80), (512, 30)]


def make_setup() -> dict[str, Any]:
    return {"data": "mnist", "epochs": SIZE_EPOCHS}


def make_jobs() -> dict[str, Job]:
    jobs = {"speed": job(measure_speed)}
    jobs |= {f"flow {width}": job(measure_flow, width, epochs) for width, epochs in FLOWS}
    return jobs | {f"decoder {size[1]} x {size[0]}": job(measure_decoder, *size) for size in SIZES}


def decoder_flops(dim: int, width: int, blocks: int, pixels: int) -> int:
    """Floating-point operations of one decoding: two per weight."""
    return 2 * (dim * width + 2 * blocks * width**2 + width * pixels)


def flow_flops(dim: int, width: int, depth: int) -> int:
    """Floating-point operations of one flow evaluation."""
    return 2 * depth * (dim * width + width**2 + 2 * dim * width)


def measure_decoder(width: int, blocks: int) -> dict[str, Any]:
    """Trains a VAE with another decoder, everything else as in the default model."""
    changes = {"vae.width": width, "vae.blocks": blocks, "vae_fit.epochs": SIZE_EPOCHS}
    config = replace(CONFIG, nested(changes))
    images = read_images("mnist")
    split = split_images(jax.random.key(0), images, config)
    init_key, fit_key, test_key = jax.random.split(jax.random.key(1), 3)
    vae = init_vae(init_key, (28, 28), config.vae, config.sigma_start)
    loss_fn = make_vae_loss(config.sigma, config.encoder_noise)
    start = time.perf_counter()
    vae = fit(fit_key, vae, loss_fn, jnp.asarray(split.fit), config.vae_fit)
    seconds = time.perf_counter() - start
    metrics = measure_vae(test_key, vae, jnp.asarray(split.test))
    flops = decoder_flops(config.vae.latent, width, blocks, 784)
    return {"width": width, "blocks": blocks, "flops": flops, "seconds": seconds, **metrics}


def measure_flow(width: int, epochs: int) -> dict[str, Any]:
    """Fits a flow of another width to the default model's encoder."""
    prior = load_prior("mnist")
    assert prior.encoder is not None
    split = split_images(jax.random.key(0), read_images("mnist"), CONFIG)
    posteriors = encode_all(prior.encoder, jnp.asarray(split.fit))
    fit_key, train_key, test_key = jax.random.split(jax.random.key(2), 3)
    start = time.perf_counter()
    size = dataclasses.replace(CONFIG.flow, width=width)
    fit_config = dataclasses.replace(CONFIG.flow_fit, epochs=epochs)
    flow = fit_flow(fit_key, posteriors, size, fit_config)
    seconds = time.perf_counter() - start
    log_prob = eqx.filter_jit(jax.vmap(flow.log_prob))
    seen = sample_posteriors(train_key, posteriors[:10_000])
    unseen = sample_posteriors(test_key, encode_all(prior.encoder, jnp.asarray(split.test)))
    return {
        "width": width,
        "depth": size.depth,
        "epochs": epochs,
        "flops": flow_flops(prior.dim, width, size.depth),
        "seconds": seconds,
        "train_nll": -float(jnp.mean(log_prob(seen))),
        "test_nll": -float(jnp.mean(log_prob(unseen))),
    }


def measure_speed() -> dict[str, Any]:
    """Where a training step's time goes, against this machine's own float32 matrix products."""
    config = CONFIG
    batch = config.vae_fit.batch
    images = jnp.asarray(np.random.default_rng(0).uniform(size=(batch, 28, 28)), jnp.float32)
    vae = init_vae(jax.random.key(0), (28, 28), config.vae, config.sigma_start)
    parameters, static = eqx.partition(vae, eqx.is_inexact_array)
    loss_fn = make_vae_loss(config.sigma, config.encoder_noise)
    fitter = make_fitter(static, loss_fn, config.vae_fit, 100)
    state = fitter.init(parameters)
    index = np.arange(batch)
    key = jax.random.key(1)
    gradients, _ = fitter.gradient(parameters, key, images, index)
    width = config.vae.encoder_width
    rate = matmul_rate(batch, width, 50)
    gradient = best_seconds(lambda: fitter.gradient(parameters, key, images, index))
    update = best_seconds(
        lambda: fitter.update(parameters, state.average, state.moments, gradients, 5)
    )

    @jax.jit
    def fused(parameters, average, moments, step):
        gradients, _ = fitter.gradient(parameters, key, images, index)
        return fitter.update(parameters, average, moments, gradients, step)

    both = best_seconds(lambda: fused(parameters, state.average, state.moments, 5))
    weights = sum(leaf.size for leaf in jax.tree.leaves(parameters) if leaf.ndim > 1)
    # Forward, backward to inputs, backward to weights: one product each per weight and image.
    flops = 3 * 2 * batch * weights
    return {
        "matmul_rate": rate,
        "gradient_seconds": gradient,
        "update_seconds": update,
        "fused_seconds": both,
        "flops": flops,
        "fraction": flops / (gradient + update) / rate,
    }


def describe_models() -> tuple[str, str]:
    """The table of the embedded models' metrics, and the commands that made them."""
    cards = [summary(path) for path in embedded_models().values()]
    lines = {
        f"`{key}`": [format_value(key, card.get(key)) for card in cards]
        for key, value in cards[0].items()
        if key != "name" and not isinstance(value, dict)
    }
    for kind in cards[0]["model_error_log_likelihood"]:
        values = [f"{card['model_error_log_likelihood'][kind]:.0f}" for card in cards]
        lines[f"residual log-likelihood, {kind}"] = values
    titles = ["metric", *(f"`{card['name']}`" for card in cards)]
    body = "\n".join(f"| {' | '.join([name, *values])} |" for name, values in lines.items())
    commands = [read_card(path)["training"]["command"] for path in embedded_models().values()]
    return table(titles, body), "\n".join(f"- `{command}`" for command in commands)


def describe_decoders(cells: Cells) -> str:
    found = [cell for name, cell in cells.items() if name.startswith("decoder")]
    found = [cell | {"mflop": cell["flops"] / 1e6} for cell in found]
    found.sort(key=lambda cell: cell["flops"])
    found[0]["gain"] = "-"
    for cell, smaller in zip(found[1:], found, strict=False):
        gain = (cell["elbo"] - smaller["elbo"]) / (cell["mflop"] - smaller["mflop"])
        cell["gain"] = f"{gain:+.1f}"
    for cell in found:
        cell["worth"] = cell["elbo"] / cell["mflop"]
    form = "{blocks} x 2 x {width} | {mflop:.2f} | {elbo:.1f} | {rms:.4f} | {gain} | {worth:.0f}"
    return rows(form, found)


def describe_flows(cells: Cells) -> str:
    found = [cells[f"flow {width}"] for width, _ in FLOWS]
    found = [
        cell | {"mflop": cell["flops"] / 1e6, "loss": cell["test_nll"] - found[-1]["test_nll"]}
        for cell in found
    ]
    form = "{depth} x [{width}, {width}] | {mflop:.2f} | {epochs} | {train_nll:.2f}"
    return rows(form + " | {test_nll:.2f} | {loss:+.2f}", found)


def make_values(cells: Cells) -> dict[str, Any]:
    speed = cells["speed"]
    models, made_by = describe_models()
    return {
        "models": models,
        "made_by": made_by,
        "epochs": SIZE_EPOCHS,
        "decoders": describe_decoders(cells),
        "flows": describe_flows(cells),
        "batch": CONFIG.vae_fit.batch,
        "gradient": 1e3 * speed["gradient_seconds"],
        "update": 1e3 * speed["update_seconds"],
        "fused": 1e3 * speed["fused_seconds"],
        "gflop": speed["flops"] / 1e9,
        "rate": speed["matmul_rate"] / 1e9,
        "percent": 100 * speed["fraction"],
    }
