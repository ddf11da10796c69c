"""What only the page of the calibration study says: classes, weights of modes, ranks."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from latentuq.calibration.measure import BINS, Rows, histogram
from latentuq.calibration.statistics import uniformity


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


def corrected(p_values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Holm's correction: p-values of which none below a level happens that rarely by chance."""
    p_values = np.asarray(p_values, float)
    order = np.argsort(p_values)
    scaled = p_values[order] * (len(p_values) - np.arange(len(p_values)))
    result = np.empty_like(p_values)
    result[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return result


class Reliability(NamedTuple):
    """Stated against observed probabilities, bin by bin.

    Attributes:
        stated: The mean stated probability of each bin.
        observed: The fraction of the bin's events that happened.
        counts: The number of events in each bin.
        error: The expected calibration error, which is the mean gap weighted by counts.
    """

    stated: Float[np.ndarray, " bins"]
    observed: Float[np.ndarray, " bins"]
    counts: Int[np.ndarray, " bins"]
    error: float


def reliability(
    stated: Float[np.ndarray, " n"], happened: Float[np.ndarray, " n"], bins: int = 10
) -> Reliability:
    """Compares stated probabilities with what happened, in bins of equal width.

    Args:
        stated: The stated probabilities.
        happened: 1 where the event happened, 0 where not, or the probability that it did.
        bins: The number of bins; empty ones are left out.
    """
    stated, happened = np.asarray(stated, float), np.asarray(happened, float)
    place = np.minimum((stated * bins).astype(int), bins - 1)
    counts = np.bincount(place, minlength=bins)
    used = counts > 0
    mean_stated = np.bincount(place, stated, bins)[used] / counts[used]
    observed = np.bincount(place, happened, bins)[used] / counts[used]
    error = np.sum(counts[used] * np.abs(mean_stated - observed)) / max(counts.sum(), 1)
    return Reliability(mean_stated, observed, counts[used], float(error))


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
