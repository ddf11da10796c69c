"""The level of the noise, where nobody knows it: what makes the data most probable."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Key
from scipy.interpolate import PchipInterpolator

from latentuq.errors import UserError
from latentuq.noise import GaussianNoise
from latentuq.operators import Operator
from latentuq.posterior.solve import solve
from latentuq.prior import GenerativePrior
from latentuq.problem import InverseProblem

# Levels from the spread of the data down to a hundredth of it, then twice around the best of them,
# at these distances in standard deviations.
_COARSE = 7
_RANGE = 100.0
_FINE = (-2.0, -1.0, 0.0, 1.0, 2.0)
_ROUNDS = 2
# The data only bound the level if the lowest is no less probable than this, in nats.
_BOUND = 2.0


class NoiseLevel(NamedTuple):
    """Standard deviation of white noise, estimated from the data.

    Attributes:
        std: Posterior mean, of ln std under a flat prior; the lowest level if the data only bound
            it.
        low: 16 % quantile.
        high: 84 % quantile.
        levels: Standard deviations that were tried, ascending.
        log_evidences: Ln p(y) under each of them.
    """

    std: float
    low: float
    high: float
    levels: Float[np.ndarray, " n"]
    log_evidences: Float[np.ndarray, " n"]

    @property
    def is_bound(self) -> bool:
        """Whether the data only bound it: no noise at all would explain them as well."""
        return bool(self.log_evidences[0] > np.max(self.log_evidences) - _BOUND)

    def __str__(self) -> str:
        if self.is_bound:
            return f"at most {self.high:.2g}: less noise explains the data as well"
        return f"{self.std:.3g} ({self.low:.3g} to {self.high:.3g})"


def estimate_noise(
    key: Key[Array, ""],
    prior: GenerativePrior,
    operator: Operator,
    y: Float[np.ndarray, "*data"],
) -> NoiseLevel:
    """Maximises the evidence over the level of white noise, by a dozen previews of the posterior.

    Args:
        key: Randomness; all levels share it, so that their evidences differ by the level alone.
        prior: Of the image.
        operator: What made the data of it.
        y: The data, NaN where missing.
    """
    seen = np.asarray(y)[np.isfinite(y)]
    spread = float(np.std(seen)) if seen.size else 0.0
    if not spread > 0:
        raise UserError("The level of the noise cannot be estimated: the data do not vary.")
    found: dict[float, float] = {}

    def try_levels(logs: Float[np.ndarray, " n"]) -> None:
        for log_std in logs:
            noise = GaussianNoise(float(np.exp(log_std)))
            post = solve(key, InverseProblem(prior, operator, noise, y), budget="preview")
            found[float(log_std)] = post.log_evidence

    top = np.log(spread)
    try_levels(np.linspace(top - np.log(_RANGE), top, _COARSE))
    for _ in range(_ROUNDS):
        mean, low, high = _posterior(found)
        near = mean + (high - low) / 2 * np.array(_FINE)
        try_levels(near[(near > min(found)) & (near < max(found))])
    mean, low, high = np.exp(_posterior(found))
    logs = sorted(found)
    level = NoiseLevel(
        float(mean),
        float(low),
        float(high),
        levels=np.exp(np.array(logs)),
        log_evidences=np.array([found[each] for each in logs]),
    )
    return level._replace(std=float(level.levels[0])) if level.is_bound else level


def _posterior(found: dict[float, float]) -> tuple[float, float, float]:
    """Mean of ln std, and its 16 and 84 % quantiles, from interpolated evidences."""
    logs = np.array(sorted(found))
    curve = PchipInterpolator(logs, [found[each] for each in logs])
    grid = np.linspace(logs[0], logs[-1], 4001)
    values = curve(grid)
    weights = np.exp(values - values.max())
    weights /= weights.sum()
    low, high = np.interp([0.16, 0.84], np.cumsum(weights), grid)
    return float(weights @ grid), float(low), float(high)
