"""Particles in independent islands, and their way from the reference to the density."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from latentuq.core.arrays import to_device
from latentuq.core.cores import on_cores
from latentuq.core.randomness import host_generator
from latentuq.inference.importance import effective_sample_size, systematic_index
from latentuq.inference.moves import Kernel, Moved, Pace, move
from latentuq.inference.settings import Settings
from latentuq.inference.target import Counts, Target, log_densities_at

# The first step size, in standard deviations.
_FIRST_STEP = 0.3
# The temperature of a step is found by so many bisections.
_BISECTIONS = 40
# Far more temperatures than any way took that led somewhere: if ln p grows without bound, no step
# is small enough.
_MOST_TEMPERATURES = 100
# A kernel is padded to the first of these numbers of regions that holds it.
_SIZES = (8, 64)


class Population(NamedTuple):
    """Particles at the end of their way from the reference to the density.

    Attributes:
        points: The particles of each island.
        before: Where they were at each temperature before: in more modes, while these were wide.
        log_evidences: Each island's estimate of ln of the density's integral.
        betas: The inverse temperatures of the way.
        log_step: Ln of the last step size.
        counts: The evaluations.
    """

    points: Float[np.ndarray, "islands particles dim"]
    before: Float[np.ndarray, "n dim"]
    log_evidences: Float[np.ndarray, " islands"]
    betas: tuple[float, ...]
    log_step: float
    counts: Counts


class Visited(NamedTuple):
    """Where particles have been, island by island.

    Attributes:
        points: The places, those of one particle side by side.
        log_densities: The values of ln p there.
    """

    points: Float[np.ndarray, "islands particles stops dim"]
    log_densities: Float[np.ndarray, "islands particles stops"]


def explore(key: Key[Array, ""], target: Target, settings: Settings) -> Population:
    """Leads particles from the reference to the density: tempered sequential Monte Carlo.

    At each temperature particles are resampled within their island, moved, and all places that
    they visit are weighted for the next one (Dau and Chopin 2022). Temperatures and shapes are
    adapted to all islands together. If the density is finite nowhere, they end where they began,
    and on the way if it grows without bound.
    """
    rng, spent = host_generator(key), Counts(forwards=settings.bank)
    islands, size = settings.islands, settings.chains
    bank = rng.standard_normal((settings.bank // islands * islands, target.dim))
    points = (target.scale * bank).astype(target.dtype)
    gains = log_densities_at(target.log_density, points) - target.log_reference(points)
    points = points.reshape(islands, -1, target.dim)
    gains = _finite(gains).reshape(islands, -1)
    beta, betas, log_step = 0.0, (), float(np.log(_FIRST_STEP))
    log_evidences, least = np.zeros(islands), float(islands * size)
    before = [np.zeros((0, target.dim), points.dtype)]
    while beta < 1 and len(betas) < _MOST_TEMPERATURES and np.any(gains > -np.inf):
        after = _next_beta(gains, beta, least)
        log_weights = (after - beta) * gains
        with np.errstate(divide="ignore"):
            log_evidences += np.logaddexp.reduce(log_weights, axis=1) - np.log(gains.shape[1])
        beta, betas = after, (*betas, after)
        factor = _shape(points.reshape(-1, target.dim), log_weights.ravel())
        # An island that nothing is left of goes on from where it is.
        usable = np.any(log_weights > -np.inf, axis=1, keepdims=True)
        log_weights = np.where(usable, log_weights, 0)
        chosen = [systematic_index(rng, each, size) for each in log_weights]
        starts = np.stack([part[index] for part, index in zip(points, chosen, strict=True)])
        before.append(starts.reshape(-1, target.dim))
        kernel = Kernel(factor[None], np.array([log_step]))
        regions = np.zeros((islands, size), int)
        move_key = jax.random.fold_in(key, len(betas))
        visited, kernel, counts = move_all(
            move_key, target, (beta, 1 - beta), starts, regions, kernel, settings
        )
        log_step, spent = float(kernel.log_steps[0]), spent + counts
        points = visited.points.reshape(islands, -1, target.dim)
        flat = points.reshape(-1, target.dim)
        gains = visited.log_densities.reshape(islands, -1) - target.log_reference(flat).reshape(
            islands, -1
        )
        gains, least = _finite(gains), settings.tempering * gains.size
    stops = points.shape[1] // size
    last = points[:, stops - 1 :: stops]
    return Population(last, np.concatenate(before), log_evidences, betas, log_step, spent)


def _finite(gains: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return np.where(np.isfinite(gains), gains, -np.inf).astype(np.float64)


def _next_beta(gains: Float[np.ndarray, "islands n"], beta: float, least: float) -> float:
    """Finds the largest inverse temperature that leaves so many effective draws."""
    flat = gains.ravel()
    least = min(least, 0.9 * float(np.sum(flat > -np.inf)))
    if effective_sample_size((1 - beta) * flat) >= least:
        return 1.0
    low, high = beta, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if effective_sample_size((middle - beta) * flat) >= least:
            low = middle
        else:
            high = middle
    return max(low, beta + 1e-9)


def _shape(
    points: Float[np.ndarray, "n dim"], log_weights: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "dim dim"]:
    """Factors the covariance of weighted points, shrunk to its diagonal as far as they are few."""
    weights = np.exp(log_weights - np.max(log_weights))
    weights /= np.sum(weights)
    worth = 1 / np.sum(weights**2)
    gaps = points.astype(np.float64) - weights @ points
    covariance = (weights[:, None] * gaps).T @ gaps
    return shrunk_factor(covariance, worth)


def shrunk_factor(
    covariance: Float[np.ndarray, "dim dim"], worth: float
) -> Float[np.ndarray, "dim dim"]:
    """Factors a covariance of so many points, mixed with its own diagonal as if dim were added."""
    dim = len(covariance)
    diagonal = np.diagonal(covariance)
    floor = 1e-12 * np.max(diagonal) + 1e-30
    mixed = (worth * covariance + dim * np.diag(diagonal)) / (worth + dim)
    return np.linalg.cholesky(mixed + np.diag(1e-6 * diagonal + floor))


def move_all(
    key: Key[Array, ""],
    target: Target,
    powers: tuple[float, float],
    points: Float[np.ndarray, "islands particles dim"],
    regions: Int[np.ndarray, "islands particles"],
    kernel: Kernel,
    settings: Settings,
    reach: float = 1.0,
) -> tuple[Visited, Kernel, Counts]:
    """Moves all islands, a block of particles in each program, on all cores.

    The kernel is padded to one of few numbers of regions, so that little is compiled twice. Moves
    are `reach` times as long as the settings say.
    """
    length, most = reach * settings.length, reach * settings.most_leaps
    numbers = (length, most, settings.acceptance, settings.octaves)
    pace = Pace(
        settings.moves, settings.stops, *(to_device(each, target.dtype) for each in numbers)
    )
    islands, size, dim = points.shape
    given = len(kernel.factors)
    missing = next((size for size in _SIZES if size >= given), given) - given
    eye = np.tile(np.eye(dim), (missing, 1, 1))
    padded = Kernel(
        to_device(np.concatenate([kernel.factors, eye]), target.dtype),
        to_device(np.pad(kernel.log_steps, (0, missing)), target.dtype),
    )
    parts = max(1, islands * size // settings.block)
    rows = np.split(points.reshape(-1, dim), parts)
    labels = np.split(regions.ravel(), parts)

    def one(part: int) -> Moved:
        return move(
            jax.random.fold_in(key, part),
            target,
            to_device(np.array(powers), target.dtype),
            to_device(rows[part], target.dtype),
            to_device(labels[part]),
            padded,
            pace,
        )

    moved = [jax.device_get(each) for each in on_cores(one, range(parts))]
    places = np.concatenate([each.points for each in moved], axis=1)
    densities = np.concatenate([each.log_densities for each in moved], axis=1)
    stops = len(places)
    visited = Visited(
        np.swapaxes(places, 0, 1).reshape(islands, size, stops, dim),
        densities.T.reshape(islands, size, stops).astype(np.float64),
    )
    # A region that a block has no particle of keeps its step size there.
    log_steps = np.mean([each.log_steps for each in moved], axis=0)[: len(kernel.factors)]
    gradients = size * islands // parts * sum(int(each.gradients) for each in moved)
    return visited, kernel._replace(log_steps=log_steps), Counts(gradients=gradients)
