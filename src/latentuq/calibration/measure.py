"""One problem with a known truth: how does it lie among the posterior's draws?"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from latentuq.calibration.classifier import load_classifier
from latentuq.calibration.statistics import covered, crps, energy_score, ranks, tarp_rank
from latentuq.posterior.maps import decode_images, draw_images
from latentuq.problem.inverse import InverseProblem

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Central intervals whose coverage is counted."""

BINS = 20
"""The number of bins of the histograms of ranks."""

DRAWS = 400
"""The number of posterior draws of each problem."""

# Pixels are uncertain above this posterior standard deviation: most of an image is black for sure.
_UNCERTAIN = 0.05


class Truth(NamedTuple):
    """What the data were made from.

    Attributes:
        x: The clean image.
        u: The base variable of the image, if the model made it.
        label: The class of the image, if it has one.
    """

    x: Float[np.ndarray, "*shape"]
    u: Float[np.ndarray, " dim"] | None = None
    label: int | None = None


def hidden_pixels(problem: InverseProblem) -> Bool[np.ndarray, "*shape"]:
    """Pixels that the data do not show; all of them if none is missing, as under a blur."""
    hidden = ~np.asarray(problem.observed)
    if hidden.shape == problem.prior.shape and hidden.any():
        return hidden
    return np.ones(problem.prior.shape, bool)


def measure_draws(
    key: Key[Array, ""],
    problem: InverseProblem,
    draws: Float[Array, "n dim"],
    truth: Truth,
) -> dict[str, Any]:
    """Ranks, coverage and scores of equally weighted posterior draws in random order.

    Returns:
        Numbers and short lists only, so that thousands of problems make a small JSON file:
        `pixels` counts the pixels of each group and how many of them each interval of `LEVELS`
        covers, `pit` is the histogram of the ranks of uncertain hidden pixels, all clipped to
        [0, 1] first: true pixels are black or white exactly, draws lie on both sides of that.
    """
    image_key, reference_key, seed_key = jax.random.split(key, 3)
    generator = np.random.default_rng(np.asarray(jax.random.key_data(seed_key)))
    keys = jax.random.split(image_key, len(draws))
    images = np.asarray(draw_images(keys, problem, draws))
    hidden = hidden_pixels(problem)
    place = ranks(generator, images, truth.x)[hidden]
    spread = images.std(axis=0)[hidden]
    values = truth.x[hidden]
    uncertain = spread > _UNCERTAIN
    groups = {
        "hidden": np.ones(values.shape, bool),
        "uncertain": uncertain,
        "black": values == 0,
        "inked": values > 0,
        "uncertain_inked": uncertain & (values > 0),
    }
    reference = np.asarray(problem.prior.sample(reference_key, 1)[0])
    row: dict[str, Any] = {
        "tarp": round(tarp_rank(generator, images, truth.x, reference), 4),
        "pixels": {
            name: [int(group.sum())]
            + [int(np.sum(covered(place[group], level))) for level in LEVELS]
            for name, group in groups.items()
        },
        "energy": round(energy_score(images, truth.x), 4),
        "crps": round(float(np.mean(crps(images, truth.x)[hidden])), 5),
    }
    shown = ranks(generator, np.clip(images, 0, 1), np.clip(truth.x, 0, 1))[hidden]
    row["pit"] = np.histogram(shown[uncertain], BINS, (0, 1))[0].tolist()
    if truth.u is not None:
        row["ranks"] = np.round(ranks(generator, np.asarray(draws), truth.u), 4).tolist()
    if truth.label is not None:
        classes = load_classifier().probabilities(decode_images(problem.prior, draws))
        row["classes"] = np.round(np.asarray(jnp.mean(classes, axis=0)), 4).tolist()
        row["label"] = truth.label
    return row
