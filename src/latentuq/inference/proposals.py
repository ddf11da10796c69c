"""Proposals for chains: mixtures of Student-t components that are fitted to points."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from latentuq.core.arrays import to_device
from latentuq.core.batches import padded
from latentuq.inference.em import fit_mixture
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.population import shrunk_factor
from latentuq.inference.regions import Regions
from latentuq.inference.settings import Settings
from latentuq.inference.target import Target

_DEGREES = 10.0
_ITERATIONS = 20
# With more regions than points are enough for, a mixture is padded to one of these sizes, so that
# little is compiled twice.
_SIZES = (8, 16, 32, 64)


def fit_halves(
    rng: np.random.Generator,
    target: Target,
    points: Float[np.ndarray, "islands chains stops dim"],
    regions: Regions,
    settings: Settings,
) -> tuple[Defensive, Defensive]:
    """Fits a proposal for each half of the islands, to where the other half has been."""
    first, second = points[::2].reshape(-1, target.dim), points[1::2].reshape(-1, target.dim)
    return _fit(rng, target, second, regions, settings), _fit(rng, target, first, regions, settings)


def _fit(
    rng: np.random.Generator,
    target: Target,
    points: Float[np.ndarray, "n dim"],
    regions: Regions,
    settings: Settings,
) -> Defensive:
    """Fits a mixture to points, from the Gaussians of the regions and from a few points on.

    How many components it has depends on the dimension alone, unless there are more regions.
    """
    dim, dtype, known = target.dim, target.dtype, len(regions.means)
    number = settings.points // (settings.points_per_component * dim)
    number = int(np.clip(number, 1, settings.components))
    size = next((size for size in (number, *_SIZES) if size >= known), known)
    if len(points) > settings.points:
        points = points[rng.choice(len(points), settings.points, replace=False)]
    gaps = points - points.mean(axis=0, dtype=np.float64)
    # As small as a part of the whole: from larger shapes the components hardly move apart.
    factor = shrunk_factor(gaps.T @ gaps / len(points), len(points) / 4) * number ** (-1 / dim)
    seeds = points[rng.choice(len(points), size, replace=False)]
    means, factors = seeds.astype(np.float64), np.tile(factor, (size, 1, 1))
    if known > 1:
        means[:known], factors[:known] = regions.means, regions.factors
    # What goes beyond the number of regions then only pads the shape.
    log_weights = np.where(np.arange(size) < max(known, number), 0.0, -np.inf)
    log_weights -= np.log(max(known, number))
    parts = (log_weights, means, factors)
    start = Mixture(*(to_device(part, dtype) for part in parts), degrees=_DEGREES)
    counted = np.arange(settings.points) < len(points)
    rows = to_device(padded(points, settings.points), dtype)
    return Defensive(_improved(start, rows, to_device(counted)), scale=target.scale)


@eqx.filter_jit
def _improved(start: Mixture, points: Array, counted: Array) -> Mixture:
    return fit_mixture(points, start, _ITERATIONS, counted)
