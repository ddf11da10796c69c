"""Problems with known truths: how do these lie among the posteriors' draws?"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from latentuq.calibration.statistics import (
    Rate,
    clustered_rate,
    covered,
    crps,
    energy_score,
    ranks,
    tarp_rank,
)
from latentuq.posterior.maps import draw_images
from latentuq.posterior.posterior import Posterior
from latentuq.problem.inverse import InverseProblem, observe

Rows = list[dict[str, Any]]
"""What was measured on each problem."""

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
    """

    x: Float[np.ndarray, "*shape"]
    u: Float[np.ndarray, " dim"] | None = None


def corrupted(
    key: Key[Array, ""], base: InverseProblem, x: Float[np.ndarray, "*shape"]
) -> Float[Array, "*data"]:
    """Data of an image with fresh noise, missing where they are missing in another problem."""
    return jnp.where(base.observed, observe(key, base.operator, base.noise, x), jnp.nan)


def describe_posterior(post: Posterior, truth: Truth) -> dict[str, Any]:
    """What a row keeps of a posterior."""
    d = post.diagnostics
    facts = {
        "verdict": str(post.verdict),
        "computed": str(post.verdict.computed.standing),
        "fit": str(post.verdict.fit.standing),
        "log_evidence": round(post.log_evidence, 3),
        "khat": round(d.khat, 3),
        "ess": round(d.ess),
        "missed_mass": round(d.missed_mass, 4),
        "p_value": d.predictive_p_value,
        "chi_squared": round(float(d.reduced_chi_squared or np.nan), 4),
        "forward_equivalents": d.forward_equivalents,
        "weights": [round(float(weight), 4) for weight in post.weights[:4]],
    }
    if truth.u is not None:
        at_truth = post.responsibilities(jnp.asarray(truth.u))
        facts["mode_of_truth"] = [round(float(share), 4) for share in at_truth[:4]]
    return facts


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
) -> tuple[dict[str, Any], Float[np.ndarray, "n *shape"]]:
    """Ranks, coverage and scores of equally weighted posterior draws in random order.

    Returns:
        A row and the images that were drawn. The row has numbers and short lists only, so that
        thousands of problems make a small JSON file: `pixels` counts the pixels of each group and
        how many of them each interval of `LEVELS` covers, all of them hidden ones except those of
        the group `seen`; `std` and `crps` are means over hidden pixels; `pit` is the histogram of
        the ranks of uncertain hidden pixels, all clipped to [0, 1] first: true pixels are black or
        white exactly, draws lie on both sides of that.
    """
    image_key, reference_key, seed_key = jax.random.split(key, 3)
    generator = np.random.default_rng(np.asarray(jax.random.key_data(seed_key)))
    keys = jax.random.split(image_key, len(draws))
    images = np.asarray(draw_images(keys, problem, draws))
    hidden = hidden_pixels(problem)
    place = ranks(generator, images, truth.x)
    spread = images.std(axis=0)
    uncertain, inked = hidden & (spread > _UNCERTAIN), hidden & (truth.x > 0)
    groups = {
        "hidden": hidden,
        "uncertain": uncertain,
        "black": hidden & (truth.x == 0),
        "inked": inked,
        "uncertain_inked": uncertain & inked,
        "seen": ~hidden,
    }
    reference = np.asarray(problem.prior.sample(reference_key, 1)[0])
    row: dict[str, Any] = {
        "tarp": round(tarp_rank(generator, images, truth.x, reference), 4),
        "pixels": {
            name: [int(group.sum())]
            + [int(np.sum(covered(place[group], level))) for level in LEVELS]
            for name, group in groups.items()
        },
        "std": round(float(np.mean(spread[hidden])), 5),
        "energy": round(energy_score(images, truth.x), 4),
        "crps": round(float(np.mean(crps(images, truth.x)[hidden])), 5),
    }
    shown = ranks(generator, np.clip(images, 0, 1), np.clip(truth.x, 0, 1))
    row["pit"] = np.histogram(shown[uncertain], BINS, (0, 1))[0].tolist()
    if truth.u is not None:
        row["ranks"] = np.round(ranks(generator, np.asarray(draws), truth.u), 4).tolist()
    return row, images


def coverage(rows: Rows, group: str) -> dict[float, Rate]:
    """Coverage of each central interval over a group of pixels, clustered by image."""
    counts = np.array([row["pixels"][group] for row in rows])
    return {
        level: clustered_rate(counts[:, 1 + place], counts[:, 0])
        for place, level in enumerate(LEVELS)
    }


def histogram(rows: Rows) -> Float[np.ndarray, " bins"]:
    """Density of the ranks of uncertain hidden pixels, 1 if they are uniform."""
    total = np.sum([row["pit"] for row in rows], axis=0)
    return total / max(total.sum(), 1) * BINS
