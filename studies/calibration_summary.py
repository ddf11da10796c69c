"""What only the page of the calibration study says: classes, weights of modes, ranks."""

import numpy as np

from latentuq.calibration.measure import BINS
from latentuq.calibration.statistics import Reliability, reliability
from latentuq.calibration.summary import Rows, histogram


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
