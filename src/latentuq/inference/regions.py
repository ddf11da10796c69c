"""Regions of space, one around each of a few Gaussians."""

from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int


class Regions(NamedTuple):
    """Space divided among Gaussians: a point belongs to the one with the highest density there.

    Attributes:
        log_weights: Ln of the weight of each Gaussian.
        means: The centres.
        factors: The lower Cholesky factors of the covariances.
        degrees: The degrees of freedom of the Student-t profiles that stand for the Gaussians:
            far out the nearer region wins, however narrow it is.
    """

    log_weights: Float[np.ndarray, " regions"]
    means: Float[np.ndarray, "regions dim"]
    factors: Float[np.ndarray, "regions dim dim"]
    degrees: float = 10.0

    def of(self, points: Float[np.ndarray, "n dim"]) -> Int[np.ndarray, " n"]:
        """Finds the region of each point."""
        dim = points.shape[1]
        terms = []
        for log_weight, mean, factor in zip(*self[:3], strict=True):
            gaps = (points - mean).T
            whitened = scipy.linalg.solve_triangular(factor, gaps, lower=True, check_finite=False)
            distances = np.sum(whitened**2, axis=0) / self.degrees
            log_det = np.sum(np.log(np.diagonal(factor)))
            terms.append(log_weight - log_det - 0.5 * (self.degrees + dim) * np.log1p(distances))
        return np.argmax(terms, axis=0)

    def sample(self, rng: np.random.Generator, region: int) -> Float[np.ndarray, " dim"]:
        """Makes a draw of a region's Gaussian."""
        return self.means[region] + self.factors[region] @ rng.standard_normal(self.means.shape[1])
