"""Trains the classifier of digits that comes with the package."""

from pathlib import Path
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key

from latentuq import GenerativePrior, UserError, load_dataset, load_prior
from latentuq.calibration.classifier import KIND, Classifier, init_classifier
from latentuq.core.tensors import flatten, write_tensors
from studies.commits import commit
from studies.pages import ROOT

PATH = ROOT / "src" / "latentuq" / "calibration" / "digits.safetensors"
_BATCH = 256


def train() -> Path:
    """Trains and writes the classifier; the header of its file holds its test accuracies."""
    prior, data = load_prior("mnist"), load_dataset("mnist")
    images = jnp.asarray(data.train_images, jnp.float32)
    labels = jnp.asarray(data.train_labels, jnp.int32)
    classifier = train_classifier(jax.random.key(0), prior, images, labels)
    test = jnp.asarray(data.test_images, jnp.float32)
    truth = np.asarray(data.test_labels)
    means, _ = prior.encode(test)
    remade = jax.vmap(prior.decoder)(means)

    def accuracy(x: jax.Array) -> float:
        return float(np.mean(np.argmax(classifier.probabilities(x), axis=1) == truth))

    metrics = {"accuracy": accuracy(test), "accuracy_remade": accuracy(remade)}
    command = "python -m studies classifier"
    save_classifier(PATH, classifier, {"metrics": metrics, "command": command, "commit": commit()})
    return PATH


def save_classifier(path: Path, classifier: Classifier, header: dict[str, object]) -> None:
    """Writes a classifier in half precision."""
    arrays = {name: array.astype("float16") for name, array in flatten(classifier).items()}
    pixels, classes = classifier.layers[0].weight.shape[0], classifier.layers[2].bias.shape[0]
    write_tensors(path, {"kind": KIND, "pixels": pixels, "classes": classes} | header, arrays)


def train_classifier(
    key: Key[Array, ""],
    prior: GenerativePrior,
    images: Float[Array, "n *shape"],
    labels: Int[Array, " n"],
    epochs: int = 12,
    noise: float = 0.15,
) -> Classifier:
    """Fits a classifier to images and to what the prior makes of them.

    Every second image of a batch is replaced by the decoder's image of its encoded self, and noise
    is added to all: posterior draws look like either.

    Args:
        key: Randomness.
        prior: A trained prior, with an encoder.
        images: Clean training images.
        labels: The classes of the images.
        epochs: The number of passes over the images.
        noise: The standard deviation of the noise that is added.
    """
    init_key, order_key, noise_key, encode_key = jax.random.split(key, 4)
    classifier = init_classifier(init_key, images[0].size, int(jnp.max(labels)) + 1)
    steps = epochs * (len(images) // _BATCH)
    optimizer = optax.adamw(optax.cosine_decay_schedule(2e-3, steps), weight_decay=1e-2)
    encoder = prior.encoder
    if encoder is None:
        raise UserError(f"The prior {prior.card.name!r} has no encoder.")
    remade = jax.lax.map(
        lambda pair: prior.decoder(encoder.sample(*pair)),
        (jax.random.split(encode_key, len(images)), images),
        batch_size=4096,
    )

    def loss(classifier, x, y):
        return -jnp.mean(jax.vmap(classifier)(x)[jnp.arange(len(y)), y])

    @eqx.filter_jit
    def step(classifier, moments, index, key):
        choice_key, noise_key = jax.random.split(key)
        original = jax.random.bernoulli(choice_key, 0.5, (_BATCH,) + (1,) * (images.ndim - 1))
        x = jnp.where(original, images[index], remade[index])
        x = x + noise * jax.random.normal(noise_key, (x.size,)).reshape(x.shape)
        gradient = eqx.filter_grad(loss)(classifier, x, labels[index])
        changes, moments = optimizer.update(gradient, moments, cast(Any, classifier))
        return eqx.apply_updates(classifier, changes), moments

    moments = optimizer.init(cast(Any, classifier))
    for epoch in range(epochs):
        order = jax.random.permutation(jax.random.fold_in(order_key, epoch), len(images))
        for place in range(len(images) // _BATCH):
            number = epoch * (len(images) // _BATCH) + place
            index = order[place * _BATCH : (place + 1) * _BATCH]
            classifier, moments = step(
                classifier, moments, index, jax.random.fold_in(noise_key, number)
            )
    return classifier
