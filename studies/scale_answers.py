"""How good the answers of a survey of digits are, and whether what is foreign stands out."""

from collections import Counter
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentuq import GenerativePrior
from latentuq.calibration.classifier import Classifier
from latentuq.survey.layout import FAILED
from latentuq.survey.store import Store

EDGES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
"""Where the bins of the stated probability of a digit begin and end."""
# Images that are decoded at once.
_IMAGES = 50


def measure_answers(
    store: Store,
    prior: GenerativePrior,
    classifier: Classifier,
    labels: Int[np.ndarray, " images"],
) -> dict[str, Any]:
    """The most probable digit of each image beside the true one, and the most surprising images.

    Args:
        store: A survey that is finished.
        prior: Its prior.
        classifier: Reads digits from posterior draws.
        labels: The true digits, -1 for what is none.
    """
    status = store.column("status").astype(object)
    digits = (labels >= 0) & (status != FAILED)
    stated = read_digits(store, prior, classifier)
    most, right = stated.max(axis=1)[digits], (stated.argmax(axis=1) == labels)[digits]
    # What cannot be judged is not surprising.
    order = np.argsort(-np.nan_to_num(store.column("surprise"), nan=-np.inf))
    first = order[: np.count_nonzero(labels < 0)]
    reasons = Counter(
        reason
        for image in np.flatnonzero(labels >= 0)
        for reason in str(store.column("reasons")[image]).split(", ")
        if reason
    )
    foreign = Counter(status[labels < 0].tolist())
    return {
        "digits": int(np.count_nonzero(labels >= 0)),
        "garments": int(np.count_nonzero(labels < 0)),
        "right": float(right.mean()),
        "stated": float(most.mean()),
        "status": dict(Counter(status[labels >= 0].tolist())),
        "garments_unreliable": foreign["unreliable"],
        "reasons": [{"reason": name, "images": n} for name, n in reasons.most_common()],
        "bins": _binned(most, right),
        "garments_first": int(np.count_nonzero(labels[first] < 0)),
    }


def read_digits(
    store: Store, prior: GenerativePrior, classifier: Classifier
) -> Float[np.ndarray, "images 10"]:
    """The probability of each digit: the mean over draws of what the classifier says."""
    us, found = store.column("u"), []
    for start in range(0, len(us), _IMAGES):
        part = us[start : start + _IMAGES]
        images = prior.decode(jnp.asarray(part.reshape(-1, prior.dim)))
        read = np.asarray(classifier.probabilities(images))
        found.append(read.reshape(*part.shape[:2], -1).mean(axis=1))
    return np.concatenate(found)


def _binned(
    stated: Float[np.ndarray, " images"], right: Float[np.ndarray, " images"]
) -> list[dict[str, Any]]:
    """The mean of the stated probability, and the share that is right, in each bin."""
    places = np.clip(np.searchsorted(EDGES, stated) - 1, 0, len(EDGES) - 2)
    return [
        {
            "stated": float(stated[inside].mean()),
            "right": float(right[inside].mean()),
            "images": int(inside.sum()),
        }
        for place in range(len(EDGES) - 1)
        if (inside := places == place).any()
    ]
