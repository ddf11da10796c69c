"""Statistics of calibration: ranks, coverage, scores, and the p-values of their uniformity."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


def ranks(
    generator: np.random.Generator,
    draws: Float[np.ndarray, "n *shape"],
    truth: Float[np.ndarray, "*shape"],
) -> Float[np.ndarray, "*shape"]:
    """Where the truth lies among draws, as a number in (0, 1): uniform if draws and truth agree.

    The randomised probability integral transform: (number of draws below + v (1 + number of equal
    ones)) / (n + 1) with v uniform, which is exactly uniform for independent draws.
    """
    below = np.sum(draws < truth, axis=0)
    equal = np.sum(draws == truth, axis=0)
    return (below + generator.uniform(size=truth.shape) * (1 + equal)) / (len(draws) + 1)


def tarp_rank(
    generator: np.random.Generator,
    draws: Float[np.ndarray, "n *shape"],
    truth: Float[np.ndarray, "*shape"],
    reference: Float[np.ndarray, "*shape"],
) -> float:
    """Rank of the truth's distance from a reference point among the draws' distances.

    Lemos, Coogan, Hezaveh and Perreault-Levasseur (2023): uniform over problems for the exact
    posterior, whatever the reference, as long as it does not know the truth.
    """
    distances = np.linalg.norm((draws - reference).reshape(len(draws), -1), axis=1)
    distance = np.linalg.norm(np.ravel(truth - reference))
    return float(ranks(generator, distances, np.asarray(distance)))


def uniformity(values: Float[np.ndarray, " n"]) -> float:
    """P-value of the Kolmogorov-Smirnov test that numbers are uniform on (0, 1)."""
    from scipy.stats import kstest

    return float(kstest(values, "uniform").pvalue)


class Rate(NamedTuple):
    """A fraction of pixels and its standard error."""

    value: float
    error: float
    pixels: int


def clustered_rate(hits: Int[np.ndarray, " images"], counts: Int[np.ndarray, " images"]) -> Rate:
    """The fraction of all pixels that are hit, with an error that treats images as independent.

    The pixels of one image are not: the error is that of a ratio of sums over images.
    """
    hits, counts = np.asarray(hits, float), np.asarray(counts, float)
    total = counts.sum()
    if not total:
        return Rate(np.nan, np.nan, 0)
    value = hits.sum() / total
    n = len(counts)
    spread = np.sum((hits - value * counts) ** 2) * n / max(n - 1, 1)
    return Rate(float(value), float(np.sqrt(spread) / total), int(total))


def covered(ranks: Float[np.ndarray, "*shape"], level: float) -> Bool[np.ndarray, "*shape"]:
    """Whether the central interval of a level holds the truth."""
    return np.abs(ranks - 0.5) <= level / 2


def energy_score(draws: Float[np.ndarray, "n *shape"], truth: Float[np.ndarray, "*shape"]) -> float:
    """E |x - truth| - E |x - x'| / 2: a proper score of whole images, the lower the better.

    The second mean is taken over pairs of neighbours, so the draws must be in random order.
    """
    flat, target = draws.reshape(len(draws), -1), np.ravel(truth)
    to_truth = np.mean(np.linalg.norm(flat - target, axis=1))
    apart = np.mean(np.linalg.norm(flat - np.roll(flat, 1, axis=0), axis=1))
    return float(to_truth - apart / 2)


def crps(
    draws: Float[np.ndarray, "n *shape"], truth: Float[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """Continuous ranked probability score of every pixel, by its unbiased estimate."""
    n = len(draws)
    ordered = np.sort(draws, axis=0)
    places = (2 * np.arange(1, n + 1) - n - 1).reshape(-1, *[1] * truth.ndim)
    apart = 2 * np.sum(places * ordered, axis=0) / (n * (n - 1))
    return np.mean(np.abs(draws - truth), axis=0) - apart / 2
