"""A small classifier of digits: which digit does a posterior draw show?"""

from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from latentuq.core.errors import UserError
from latentuq.core.tensors import flatten, read_tensors, unflatten, write_tensors
from latentuq.prior.networks import Linear, init_linear

if TYPE_CHECKING:
    from latentuq.prior.generative import GenerativePrior

_KIND = "classifier"
_WIDTH = 128
_BATCH = 256
_CHUNK = 4096


class Classifier(eqx.Module):
    """Class probabilities of one image: a perceptron with two hidden layers."""

    layers: tuple[Linear, Linear, Linear]

    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, " classes"]:
        """Log probabilities of the classes."""
        first, second, last = self.layers
        hidden = jax.nn.silu(second(jax.nn.silu(first(jnp.ravel(x)))))
        return jax.nn.log_softmax(last(hidden))

    def probabilities(self, images: Float[Array, "n *shape"]) -> Float[Array, "n classes"]:
        """Class probabilities of many images."""
        return _probabilities(self, jnp.asarray(images))


@eqx.filter_jit
def _probabilities(classifier: Classifier, images: Array) -> Array:
    return jnp.exp(jax.lax.map(classifier, images, batch_size=min(_CHUNK, len(images))))


@cache
def load_classifier() -> Classifier:
    """The classifier of MNIST digits that comes with the package."""
    path = Path(str(resources.files("latentuq"))) / "calibration" / "digits.safetensors"
    header, arrays = read_tensors(path, _KIND)
    like = init_classifier(jax.random.key(0), header["pixels"], header["classes"])
    return unflatten(like, arrays)


def save_classifier(path: Path, classifier: Classifier, header: dict[str, object]) -> None:
    """Writes a classifier in half precision."""
    arrays = {name: array.astype("float16") for name, array in flatten(classifier).items()}
    pixels, classes = classifier.layers[0].weight.shape[0], classifier.layers[2].bias.shape[0]
    write_tensors(path, {"kind": _KIND, "pixels": pixels, "classes": classes} | header, arrays)


def init_classifier(key: Key[Array, ""], pixels: int, classes: int) -> Classifier:
    """Draws the weights of an untrained classifier."""
    keys = jax.random.split(key, 3)
    sizes = [pixels, _WIDTH, _WIDTH, classes]
    first, second, last = (
        init_linear(k, i, o) for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True)
    )
    return Classifier((first, second, last))


def train_classifier(
    key: Key[Array, ""],
    prior: "GenerativePrior",
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
    import optax

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
        batch_size=_CHUNK,
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
