"""From measured rows to what they say: p-values, coverage, ranks."""

import re
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from latentuq.calibration.measure import BINS, LEVELS
from latentuq.calibration.statistics import (
    Rate,
    clustered_rate,
    corrected,
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


def verdict_word(row: dict[str, Any]) -> str:
    """The word that a row's verdict starts with, which says whether to trust the posterior."""
    return re.split(r"\W", row.get("verdict", ""), maxsplit=1)[0]


def is_unreliable(row: dict[str, Any]) -> bool:
    """Whether a row's posterior should not be trusted, by its own verdict."""
    return verdict_word(row) == "unreliable"
