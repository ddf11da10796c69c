"""The level of the noise, where nobody knows it: what makes the data most probable."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.core.arrays import read_real
from latentuq.core.errors import UserError
from latentuq.forward.operator import Operator
from latentuq.likelihood.noise import GaussianNoise
from latentuq.posterior.solve import solve
from latentuq.prior.generative import GenerativePrior
from latentuq.problem.inverse import InverseProblem

# Levels from twice the spread of the data down to a hundredth of it; then halfway between the best
# and its neighbours, until these are closer than two standard deviations of the parabola through
# the three; and last some within two standard deviations of its top.
_COARSE = 7
_HIGHEST, _LOWEST = 2.0, 0.01
_ROUNDS = 8
_CLOSE = 2.0
_LAST = (-2.0, -1.0, 0.0, 1.0, 2.0)
# The data only bound the level if the lowest is no less probable than this, in nats.
_BOUND = 2.0


class NoiseLevel(NamedTuple):
    """The standard deviation of white noise, estimated from the data.

    Attributes:
        std: The exponential of the posterior mean of ln std, under a flat prior between the lowest
            and the highest level; the lowest level if the data only bound it.
        low: The 16 % quantile of the posterior of std.
        high: The 84 % quantile of the posterior of std.
        levels: The standard deviations that were tried, ascending.
        log_evidences: The values of ln p(y) under each of them.
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

    def scaled(self, factor: float) -> "NoiseLevel":
        """The same levels in other units."""
        std, low, high = (factor * each for each in (self.std, self.low, self.high))
        return NoiseLevel(std, low, high, factor * self.levels, self.log_evidences)

    def __str__(self) -> str:
        if self.is_bound:
            return (
                f"{self.std:.2g} is assumed, because no noise at all explains the data as well: the"
                " generator's own error hides it, so give it if you know it"
            )
        return f"{self.std:.3g} ({self.low:.3g} to {self.high:.3g})"


def estimate_noise(
    key: Key[Array, ""],
    prior: GenerativePrior,
    operator: Operator,
    y: Float[np.ndarray, "*data"],
) -> NoiseLevel:
    """Weighs levels of white noise by the evidence, with some twenty previews of the posterior.

    Args:
        key: The randomness; all levels share it, so that their evidences differ by the level alone.
        prior: The prior of the image.
        operator: The operator that made the data of it.
        y: The data, NaN where missing.
    """
    # Evidences of different levels compare only if each is a density of the data.
    prior = prior.with_gaussian_error() if isinstance(prior, GenerativePrior) else prior
    seen = np.asarray(y)[np.isfinite(read_real(y, "y"))]
    spread = float(np.std(seen)) if seen.size else 0.0
    if not spread > 0:
        raise UserError("The level of the noise cannot be estimated: the data do not vary.")
    found: dict[float, float] = {}

    def try_levels(logs: Float[np.ndarray, " n"]) -> None:
        for log_std in logs:
            noise = GaussianNoise(float(np.exp(log_std)))
            post = solve(key, InverseProblem(prior, operator, noise, y), budget="preview")
            if np.isfinite(post.log_evidence):
                found[float(log_std)] = post.log_evidence
        if not found:
            raise UserError("The level of the noise cannot be estimated: no level has an evidence.")

    try_levels(np.linspace(np.log(_LOWEST * spread), np.log(_HIGHEST * spread), _COARSE))
    for _ in range(_ROUNDS):
        peak = _parabola(found)
        if peak is None or peak.reach < _CLOSE * peak.width:
            break
        try_levels(peak.halfway)
    if (peak := _parabola(found)) is not None:
        try_levels(np.clip(peak.place + peak.width * np.array(_LAST), min(found), max(found)))
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


class _Peak(NamedTuple):
    """The parabola through the best level and its neighbours.

    Attributes:
        place: The place of its top.
        width: The standard deviation of the Gaussian that it is the logarithm of.
        reach: The distance from the best level to its farther neighbour.
        halfway: The levels between the best and its neighbours.
    """

    place: float
    width: float
    reach: float
    halfway: Float[np.ndarray, " 2"]


def _parabola(found: dict[float, float]) -> _Peak | None:
    """Returns the parabola, or None if the best level is the lowest or the highest."""
    logs = sorted(found)
    best = max(range(len(logs)), key=lambda index: found[logs[index]])
    if best in (0, len(logs) - 1):
        return None
    near = np.array(logs[best - 1 : best + 2])
    gaps = near - near[1]
    curvature, slope, _ = np.polyfit(gaps, [found[each] for each in near], 2)
    place = float(np.clip(near[1] - slope / (2 * curvature), near[0], near[2]))
    width = float(1 / np.sqrt(-2 * curvature))
    return _Peak(place, width, float(np.max(np.abs(gaps))), near[[0, 2]] - gaps[[0, 2]] / 2)


def _posterior(found: dict[float, float]) -> tuple[float, float, float]:
    """Computes the mean of ln std and its 16 and 84 % quantiles from interpolated evidences."""
    # Slow to import, and of no use to those who know their noise.
    from scipy.interpolate import PchipInterpolator

    logs = np.array(sorted(found))
    curve = PchipInterpolator(logs, [found[each] for each in logs])
    # Fine enough for a peak that is a thousandth of the range wide.
    grid = np.linspace(logs[0], logs[-1], 20001)
    values = curve(grid)
    weights = np.exp(values - values.max())
    weights /= weights.sum()
    low, high = np.interp([0.16, 0.84], np.cumsum(weights), grid)
    return float(weights @ grid), float(low), float(high)
