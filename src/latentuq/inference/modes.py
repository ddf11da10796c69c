"""Modes: minima of -ln p, polished, and told apart by the barriers between them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from latentuq.core.arrays import to_device
from latentuq.core.batches import padded
from latentuq.inference.descent import Ends, Limits, descend_groups, newton
from latentuq.inference.target import Counts, Target, log_densities

MOST_POLISHED = 16
"""The number of points that can be polished at once: most rounds of a search have none or few."""

REACH_NATS = 25.0
"""A mode this many nats above the deepest cannot be wide enough to matter."""

_LIMITS = Limits(lanes=2, steps=300, tolerance=1e-4, hopeless=np.inf)
# Two minima are one below this squared Mahalanobis distance.
_SAME_DISTANCE = 0.5
# A barrier lower than this, in nats, does not part two modes; it is looked for at so many points.
_BARRIER_NATS = 0.2
_BARRIER_POINTS = 8
# The Newton decrement, in nats, of a converged minimum: rounding in float32 allows no less.
_CONVERGED_DECREMENT = 0.01
# One that cannot be polished may lie at a kink, where no gradient vanishes: there a network without
# curvature has its minima. It is a mode all the same if psi falls by less than this, in nats, half
# a standard deviation away; and barriers twice as high do not part such modes.
_ROUGHNESS_NATS = 0.5
# Psi is evaluated at multiples of so many points, so that little is compiled twice.
_PSI_BATCH = 16


class Mode(NamedTuple):
    """A local minimum of psi = -ln p.

    Attributes:
        point: The place of the minimum.
        value: The value of psi there.
        hessian: The Hessian of psi there, which is positive definite.
        log_mass: Laplace's estimate of ln of its mass.
        kinked: Whether it could not be polished, as at a kink, although psi hardly falls around it.
    """

    point: Float[np.ndarray, " dim"]
    value: float
    hessian: Float[np.ndarray, "dim dim"]
    log_mass: float
    kinked: bool = False

    @property
    def root(self) -> Float[np.ndarray, "dim dim"]:
        """A root R of Laplace's covariance R R^T; its columns are the principal axes."""
        eigenvalues, vectors = np.linalg.eigh(self.hessian)
        return vectors / np.sqrt(eigenvalues)


class SearchState(NamedTuple):
    """What the search knows.

    Attributes:
        modes: The modes found so far, in the order of discovery.
        found_at: The index of the start that found each mode.
        values: The value of psi at the end of each start.
        basins: The index of the mode of each start, -1 for none.
        independent: Whether each start was an independent draw of the reference.
        counts: The evaluations so far.
    """

    modes: tuple[Mode, ...]
    found_at: tuple[int, ...]
    values: Float[np.ndarray, " starts"]
    basins: Int[np.ndarray, " starts"]
    independent: Bool[np.ndarray, " starts"]
    counts: Counts

    @property
    def new_basin_chance(self) -> float:
        """The chance that one more independent start ends in a new basin.

        Good and Turing estimate it by the number of basins that one start alone has reached, over
        the number of starts.
        """
        independent = self.basins[self.independent]
        if not len(independent):
            return float("nan")
        counts = np.bincount(independent[independent >= 0], minlength=1)
        return float(np.sum(counts == 1) / len(independent))


def empty_search() -> SearchState:
    """Makes what a search knows before it has begun."""
    nothing = np.zeros(0)
    return SearchState((), (), nothing, nothing.astype(int), nothing.astype(bool), Counts())


class Probes(NamedTuple):
    """Posterior draws that have descended to their modes.

    Attributes:
        state: What the search knows after them.
        points: The draws; there are none if Gaussians sufficed, or if there is one mode.
        basins: The index of the mode of each, -1 for none.
        worth: The number of independent draws that each of them is worth, at most one.
    """

    state: SearchState
    points: Float[np.ndarray, "probes dim"]
    basins: Int[np.ndarray, " probes"] = np.zeros(0, int)
    worth: float = 1.0


def make_mode(
    target: Target,
    point: Float[np.ndarray, " dim"],
    value: float,
    hessian: Float[np.ndarray, "dim dim"],
) -> Mode:
    """Makes a mode of a minimum; a direction flatter than ten scales counts as ten scales."""
    eigenvalues, vectors = np.linalg.eigh(hessian)
    eigenvalues = np.maximum(eigenvalues, (10 * target.scale) ** -2)
    log_mass = -value + 0.5 * np.sum(np.log(2 * np.pi / eigenvalues))
    return Mode(point, value, (vectors * eigenvalues) @ vectors.T, float(log_mass))


def polish(target: Target, points: Float[np.ndarray, "n dim"]) -> tuple[list[list[Mode]], Counts]:
    """Descends by Newton's method from each point, and both ways down where that ends in a saddle.

    Returns:
        The minima that each point leads to (one, two from a saddle, none if nothing converged), and
        the evaluations.
    """
    ends = _newton(target, points)
    counts = Counts(hessians=int(ends.evaluations))
    found: list[list[Mode]] = [[] for _ in points]
    downhill, owners = [], []
    for index in range(len(points)):
        if not np.isfinite(ends.values[index]):
            continue
        eigenvalues, vectors = np.linalg.eigh(np.asarray(ends.curvatures[index], np.float64))
        if eigenvalues[0] < -1e-3 * abs(eigenvalues[-1]):
            step = vectors[:, 0] / np.sqrt(abs(eigenvalues[0]))
            downhill += [ends.points[index] + step, ends.points[index] - step]
            owners += [index, index]
            continue
        minimum, more = _minimum(target, ends, index)
        found[index] += minimum
        counts += more
    for first in range(0, len(downhill), MOST_POLISHED):
        ends = _newton(target, np.array(downhill[first : first + MOST_POLISHED]))
        counts += Counts(hessians=int(ends.evaluations))
        for index, owner in enumerate(owners[first : first + MOST_POLISHED]):
            hessian = np.asarray(ends.curvatures[index], np.float64)
            if np.all(np.isfinite(hessian)) and np.linalg.eigvalsh(hessian)[0] > 0:
                minimum, more = _minimum(target, ends, index)
                found[owner] += minimum
                counts += more
    return found, counts


def _minimum(target: Target, ends: Ends, index: int) -> tuple[list[Mode], Counts]:
    """Returns the mode at which a polished end has arrived, if it has."""
    point, hessian = (np.asarray(part[index], np.float64) for part in (ends[0], ends[2]))
    value = float(ends.values[index])
    if not np.isfinite(value):
        return [], Counts()
    mode = make_mode(target, point, value, hessian)
    if ends.decrements[index] < _CONVERGED_DECREMENT:
        return [mode], Counts()
    steps = 0.5 * mode.root.T
    around = _psi(target, np.concatenate([point + steps, point - steps]))
    kinked = np.min(around) > value - _ROUGHNESS_NATS
    return [mode._replace(kinked=True)] if kinked else [], Counts(forwards=len(around))


def _newton(target: Target, points: Float[np.ndarray, "n dim"]) -> Ends:
    """Descends by Newton's method from a few points."""
    return descend_groups(newton, target, points, np.ones(len(points)), _LIMITS, MOST_POLISHED)


def _distance(gap, first, second) -> float:
    """Computes the squared Mahalanobis distance with the averaged precision."""
    return float(gap @ (0.5 * (first + second)) @ gap)


def are_close(point, curvature, other_point, other_curvature) -> bool:
    """Says whether two minima, each with its curvature, are one."""
    return _distance(point - other_point, curvature, other_curvature) < _SAME_DISTANCE


def known_mode(point, value, curvature, modes: list[Mode]) -> int:
    """Finds the known mode at which a descent ended, or -1."""
    for index, mode in enumerate(modes):
        if are_close(point, curvature, mode.point, mode.hessian) and value < mode.value + 1:
            return index
    return -1


def reached(target: Target, others: list[Mode], end: Mode) -> tuple[int, Counts]:
    """Finds the mode or deeper end that a descent has all but reached, or -1: it must be polished.

    Nothing parts them, and the end is no higher than barriers that part nothing: a saddle, or a
    slope, that leads elsewhere as well would be.
    """
    level = [
        index
        for index, other in enumerate(others)
        if other.value - 1e-3 <= end.value < other.value + _BARRIER_NATS
    ]
    # An end lies above its own minimum: barriers are higher than they look from there.
    where, counts = place(target, [others[index] for index in level], end, _BARRIER_NATS / 4)
    return (level[where] if where < len(level) else -1), counts


def place(
    target: Target, modes: list[Mode], mode: Mode, barrier: float = _BARRIER_NATS
) -> tuple[int, Counts]:
    """Finds the index of a mode among the known ones, or their number if it is new.

    A barrier lower than `barrier`, in nats, does not part two smooth modes.
    """
    counts = Counts()
    distances = [_distance(mode.point - m.point, mode.hessian, m.hessian) for m in modes]
    for index in np.argsort(distances):
        if distances[index] < _SAME_DISTANCE:
            return int(index), counts
        if distances[index] > 100 * target.dim:
            break
        other = modes[index]
        along = np.linspace(0, 1, _BARRIER_POINTS + 2)[1:-1, None]
        values = _psi(target, mode.point + along * (other.point - mode.point))
        counts += Counts(forwards=len(values))
        height = 2 * _ROUGHNESS_NATS if mode.kinked or other.kinked else barrier
        if np.max(values) < max(mode.value, other.value) + height:
            return int(index), counts
    return len(modes), counts


def _psi(target: Target, points: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " rows"]:
    """Evaluates psi at the points, repeated to whole batches: the repeated values are harmless."""
    rows = to_device(padded(points, _PSI_BATCH), target.dtype)
    return -np.asarray(log_densities(target.log_density, rows))
