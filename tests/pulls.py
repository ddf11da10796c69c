"""Pulls: how far estimates are off, in the errors that they state."""

import numpy as np
from scipy import stats


def squares_of_pulls(islands: int) -> tuple[float, float]:
    """The mean and the standard deviation of the square of a pull.

    The stated error is the larger of two: that of the scatter of a few islands, s in units of the
    true one, and that of very many sources, which is the true one. Each half of the islands
    scatters about a mean of its own:

        pull = z / max(s, 1),    s^2 = chi^2 / (islands - 2).
    """
    levels = (np.arange(100_000) + 0.5) / 100_000
    larger = np.maximum(stats.chi2(islands - 2).ppf(levels) / (islands - 2), 1)
    mean = np.mean(1 / larger)
    return float(mean), float(np.sqrt(3 * np.mean(1 / larger**2) - mean**2))
