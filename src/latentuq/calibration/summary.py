"""From the rows of a study to what they say: p-values, coverage, scores, reliability."""

import re
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from latentuq.calibration.measure import BINS, LEVELS
from latentuq.calibration.statistics import (
    Rate,
    Reliability,
    clustered_rate,
    corrected,
    reliability,
    uniformity,
)

Rows = list[dict[str, Any]]


class Uniformity(NamedTuple):
    """P-values of what should be uniform, each corrected for their number.

    Attributes:
        ranks: The p-value of each latent dimension; there are none where the truth has no u.
        tarp: The p-value of the TARP ranks in image space.
    """

    ranks: Float[np.ndarray, " dim"]
    tarp: float

    @property
    def least(self) -> float:
        """The smallest of all p-values."""
        return float(np.min([*self.ranks, self.tarp]))


def check_uniformity(rows: Rows) -> Uniformity:
    """Kolmogorov-Smirnov tests of all ranks, with Holm's correction."""
    columns = np.array([row["ranks"] for row in rows if "ranks" in row])
    p_values = [uniformity(column) for column in columns.T]
    p_values.append(uniformity(np.array([row["tarp"] for row in rows])))
    adjusted = corrected(np.array(p_values))
    return Uniformity(adjusted[:-1], float(adjusted[-1]))


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


def class_reliability(rows: Rows) -> Reliability:
    """Stated class probabilities against what the images were, over all classes."""
    stated = np.array([row["classes"] for row in rows])
    labels = np.array([row["label"] for row in rows])
    happened = np.eye(stated.shape[1])[labels]
    return reliability(stated.ravel(), happened.ravel())


def class_noise(rows: Rows, times: int = 200) -> tuple[float, float]:
    """Calibration errors of all classes and of the top one that chance alone would show.

    Their means over labels drawn from the stated probabilities: few images fill few bins.
    """
    generator = np.random.default_rng(0)
    stated = np.array([row["classes"] for row in rows], float)
    bounds = np.cumsum(stated / stated.sum(axis=1, keepdims=True), axis=1)
    every, top = [], []
    for _ in range(times):
        labels = (generator.uniform(size=(len(rows), 1)) > bounds).sum(axis=1)
        drawn = [row | {"label": int(label)} for row, label in zip(rows, labels, strict=True)]
        every.append(class_reliability(drawn).error)
        top.append(top_class_reliability(drawn).error)
    return float(np.mean(every)), float(np.mean(top))


def top_class_reliability(rows: Rows) -> Reliability:
    """The probability of the most probable class against how often it is right."""
    stated = np.array([row["classes"] for row in rows])
    labels = np.array([row["label"] for row in rows])
    return reliability(stated.max(axis=1), stated.argmax(axis=1) == labels)


def mode_reliability(rows: Rows, least: float = 0.0) -> Reliability:
    """Weights of modes against how often they hold the truth.

    Args:
        rows: The rows of a study of simulated data.
        least: Weights below it, or above 1 - it, are left out: they are many, and easily right.
    """
    stated = np.concatenate([row["weights"] for row in rows])
    happened = np.concatenate([row["mode_of_truth"] for row in rows])
    kept = (stated >= least) & (stated <= 1 - least)
    return reliability(stated[kept], happened[kept])


def check_weights(rows: Rows, bins: int = 10) -> float:
    """P-value of the heaviest modes' weights, one of each problem.

    In bins of equal width, the number of truths that they hold against the sum of their weights,
    in units of its binomial variance: chi-squared, and too large a p-value where modes overlap.
    """
    from scipy.stats import chi2

    stated = np.array([max(row["weights"]) for row in rows])
    held = np.array([row["mode_of_truth"][int(np.argmax(row["weights"]))] for row in rows])
    place = np.minimum((stated * bins).astype(int), bins - 1)
    excess = np.bincount(place, held - stated, bins)
    variance = np.bincount(place, stated * (1 - stated), bins)
    doubtful = variance > 0
    terms = excess[doubtful] ** 2 / variance[doubtful]
    return float(chi2.sf(terms.sum(), len(terms))) if len(terms) else 1.0


def rank_distance(rows: Rows) -> float:
    """Largest distance of the distribution of uncertain pixels' ranks from the uniform one."""
    below = np.cumsum(histogram(rows)) / BINS
    return float(np.max(np.abs(below - np.arange(1, BINS + 1) / BINS)))


def describe(rows: Rows) -> dict[str, Any]:
    """The numbers of one study, by name."""
    uniform = check_uniformity(rows)
    facts: dict[str, Any] = {
        "problems": len(rows),
        "p-value of TARP": round(uniform.tarp, 4),
    }
    if len(uniform.ranks):
        facts["least p-value of the ranks"] = round(float(uniform.ranks.min()), 4)
    for group in ("hidden", "uncertain", "uncertain_inked"):
        for level, rate in coverage(rows, group).items():
            facts[f"{group} {level:.0%}"] = [round(rate.value, 4), round(rate.error, 4)]
    facts["CRPS"] = round(float(np.mean([row["crps"] for row in rows])), 5)
    facts["energy score"] = round(float(np.mean([row["energy"] for row in rows])), 4)
    if "classes" in rows[0]:
        facts["calibration error of classes"] = round(class_reliability(rows).error, 4)
        facts["calibration error of top class"] = round(top_class_reliability(rows).error, 4)
    if "mode_of_truth" in rows[0]:
        facts["calibration error of weights"] = round(mode_reliability(rows).error, 4)
        facts["p-value of weights"] = round(check_weights(rows), 4)
    if "verdict" in rows[0]:
        facts["unreliable"] = sum(map(is_unreliable, rows))
    return facts


def verdict_word(row: dict[str, Any]) -> str:
    """The word that a row's verdict starts with, which says whether to trust the posterior."""
    return re.split(r"\W", row.get("verdict", ""), maxsplit=1)[0]


def is_unreliable(row: dict[str, Any]) -> bool:
    """Whether a row's posterior should not be trusted, by its own verdict."""
    return verdict_word(row) == "unreliable"
