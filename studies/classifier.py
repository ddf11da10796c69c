"""Trains the classifier of digits that comes with the package."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from latentuq import load_dataset, load_prior
from latentuq.calibration.classifier import save_classifier, train_classifier
from latentuq.core.cells import commit
from studies.pages import ROOT

PATH = ROOT / "src" / "latentuq" / "calibration" / "digits.safetensors"


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
