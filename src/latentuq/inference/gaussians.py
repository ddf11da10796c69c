"""A Gaussian for each mode, and what a mixture of them says of the density."""

import jax
import numpy as np
from jaxtyping import Array, Key

from latentuq.core.arrays import to_device
from latentuq.core.cores import on_cores
from latentuq.inference.el2o import EL2OFit, fit_el2o
from latentuq.inference.mixture import Defensive, Mixture, lower_factor
from latentuq.inference.modes import SearchState
from latentuq.inference.regions import Regions
from latentuq.inference.target import Counts, Target

# Each mode has at least this share of the mixture, whose components have these degrees of freedom.
_LEAST_SHARE = 0.05
_DEGREES = 10.0
# A mixture has as many components as one of these sizes, so that little is compiled twice.
_SIZES = (16, 64)
# The updates of a fit.
_ITERATIONS = 6


def fit_modes(
    key: Key[Array, ""], target: Target, found: SearchState, order: list[int]
) -> tuple[dict[int, EL2OFit], Counts]:
    """Fits a Gaussian to each of some modes by EL2O."""
    samples = max(64, 4 * target.dim)

    def fit(index: int) -> EL2OFit:
        mode = found.modes[index]
        return fit_el2o(
            jax.random.fold_in(key, index),
            target.log_density,
            to_device(mode.point, target.dtype),
            lower_factor(to_device(mode.root, target.dtype)),
            samples=samples,
            iterations=_ITERATIONS,
        )

    fits = dict(zip(order, jax.device_get(on_cores(fit, order)), strict=True))
    return fits, Counts(gradients=len(order) * samples * (_ITERATIONS + 2))


def join(target: Target, fits: list[EL2OFit]) -> Defensive:
    """Joins fits to one proposal, in their order; without any it is the reference."""
    dim, dtype = target.dim, target.dtype
    size = next((size for size in _SIZES if size >= len(fits)), len(fits))
    log_weights = np.full(size, -np.inf)
    means = np.zeros((size, dim))
    factors = np.tile(target.scale * np.eye(dim), (size, 1, 1))
    if not fits:
        log_weights[0] = 0.0
    for place, fit in enumerate(fits):
        log_weights[place] = max(float(fit.log_mass), -1e30)
        means[place], factors[place] = fit.mean, fit.factor
    weights = np.exp(log_weights - log_weights.max())
    least = _LEAST_SHARE / max(1, len(fits) // 10)
    weights = np.where(np.isfinite(log_weights), weights / weights.sum() + least, 0)
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights / weights.sum())
    parts = (to_device(part, dtype) for part in (log_weights, means, factors))
    return Defensive(Mixture(*parts, degrees=_DEGREES), scale=target.scale)


def divide(target: Target, fits: list[EL2OFit]) -> Regions:
    """Divides space among the fits; without any, all of it belongs to the reference."""
    if not fits:
        dim = target.dim
        return Regions(np.zeros(1), np.zeros((1, dim)), target.scale * np.eye(dim)[None])
    return Regions(
        np.array([float(fit.log_mass) for fit in fits]),
        np.array([fit.mean for fit in fits], np.float64),
        np.array([fit.factor for fit in fits], np.float64),
    )
