"""A small classifier of digits: which digit does a posterior draw show?"""

from functools import cache
from importlib import resources
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from latentuq.core.tensors import read_tensors, unflatten
from latentuq.prior.networks import Linear, init_linear

KIND = "classifier"
"""What the header of a classifier's file calls it."""
_WIDTH = 128
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
    header, arrays = read_tensors(path, KIND)
    like = init_classifier(jax.random.key(0), header["pixels"], header["classes"])
    return unflatten(like, arrays)


def init_classifier(key: Key[Array, ""], pixels: int, classes: int) -> Classifier:
    """Draws the weights of an untrained classifier."""
    keys = jax.random.split(key, 3)
    sizes = [pixels, _WIDTH, _WIDTH, classes]
    first, second, last = (
        init_linear(k, i, o) for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True)
    )
    return Classifier((first, second, last))
