"""Search for every mode: starts, descent, saddles, de-duplication, and when to stop."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from latentuq.arrays import to_device
from latentuq.inference.chance import host_generator
from latentuq.inference.cores import on_cores
from latentuq.inference.descent import Ends, descend, gauss_newton, newton
from latentuq.inference.importance import effective_sample_size
from latentuq.inference.result import Counts
from latentuq.inference.target import Target, log_densities, log_densities_at

ROUND = 64
"""Starts of one round; one shape, so that nothing compiles twice."""

_BANK = 4096
# Groups of starts that descend at the same time, and lanes of each.
_GROUPS = 2
_LANES = 4
_STEPS = 60
# New minima that a round may polish, and lanes of each group of them: most rounds have few.
_POLISHED = 16
_POLISHING_LANES = 2
# A mode this many nats above the deepest cannot be wide enough to matter.
_REACH = 25.0
_HOPELESS = 60.0
# Squared Mahalanobis distance below which two minima are one.
_SAME = 0.5
# A barrier lower than this, in nats, does not part two modes.
_BARRIER = 0.2
_SEGMENT = 8
# Newton decrement, in nats, at which a Gauss-Newton descent has told which minimum it leads to: by
# then it is closer than _SAME. New minima are polished further.
_ARRIVED = 0.05
# Newton decrement, in nats, of a converged minimum: rounding in float32 allows no less.
_CONVERGED = 0.01
# One that cannot be polished may lie at a kink, where no gradient vanishes: there a network without
# curvature has its minima. It is a mode all the same if psi falls by less than this, in nats, half
# a standard deviation away; and barriers twice as high do not part such modes.
_ROUGHNESS = 0.5
# Share of the mass from which a mode is relevant, and the starts without a new one that suffice.
_RELEVANT = 0.01
_QUIET = 40


class Mode(NamedTuple):
    """A local minimum of psi = -ln p.

    Attributes:
        point: Where it is.
        value: psi there.
        hessian: Of psi; positive definite.
        log_mass: Laplace's estimate of ln of its mass.
        kinked: Whether it could not be polished, as at a kink, although psi hardly falls around it.
    """

    point: Float[np.ndarray, " dim"]
    value: float
    hessian: Float[np.ndarray, "dim dim"]
    log_mass: float
    kinked: bool = False


class SearchState(NamedTuple):
    """What the search knows.

    Attributes:
        modes: Found so far, in the order of discovery.
        found_at: The start that found each mode.
        values: psi at the end of each start.
        basins: Index of the mode of each start, -1 for none.
        independent: Whether a start was an independent draw of the reference.
        counts: Evaluations.
    """

    modes: tuple[Mode, ...]
    found_at: tuple[int, ...]
    values: Float[np.ndarray, " starts"]
    basins: Int[np.ndarray, " starts"]
    independent: Bool[np.ndarray, " starts"]
    counts: Counts


class Bank(NamedTuple):
    """Draws of the reference with their log likelihoods ln p - ln reference."""

    points: Float[np.ndarray, "bank dim"]
    log_likelihoods: Float[np.ndarray, " bank"]


def search(
    key: Key[Array, ""],
    target: Target,
    rounds: int,
    report: Callable[[SearchState], None] = lambda state: None,
) -> SearchState:
    """Starts descents, round by round, until no new mode of relevant mass appears.

    Half of the starts are independent draws of the reference. The others come from a bank of draws
    weighted by likelihood^beta, with beta so small that many of them matter: likely and diverse.
    Half of these descend on the tempered posterior first.

    Args:
        key: Randomness of the starts.
        target: What to search.
        rounds: Most rounds.
        report: Called after each round.
    """
    bank_key, *round_keys = jax.random.split(key, rounds + 1)
    bank = make_bank(bank_key, target)
    nothing = np.zeros(0)
    state = SearchState(
        (), (), nothing, nothing.astype(int), nothing.astype(bool), Counts(forwards=_BANK)
    )
    for round_key in round_keys:
        starts, betas, independent = _choose_starts(round_key, target, bank)
        state = explore(state, target, starts, betas, independent)
        report(state)
        if is_settled(state):
            break
    return state


def make_bank(key: Key[Array, ""], target: Target) -> Bank:
    """Draws the bank and evaluates the density on it."""
    points = _draw_reference(host_generator(key), target, _BANK)
    values = log_densities_at(target.log_density, points)
    log_likelihoods = values - target.log_references(points)
    return Bank(points, np.where(np.isfinite(log_likelihoods), log_likelihoods, -np.inf))


def _choose_starts(key: Key[Array, ""], target: Target, bank: Bank):
    """Alternates draws of the reference and members of the bank."""
    rng, half = host_generator(key), ROUND // 2
    beta, high = 1e-6, 1.0
    for _ in range(25):
        middle = math.sqrt(beta * high)
        if effective_sample_size(middle * bank.log_likelihoods) >= 3 * ROUND:
            beta = middle
        else:
            high = middle
    # The largest perturbed log weights are a draw without replacement.
    perturbed = beta * bank.log_likelihoods + rng.gumbel(size=_BANK)
    picked = np.argsort(-perturbed)[:half]
    prior = _draw_reference(rng, target, half)
    starts = np.stack([prior, bank.points[picked]], axis=1).reshape(ROUND, target.dim)
    tempered = np.where(np.arange(half) % 2 == 0, max(beta, 0.01), 1)
    betas = np.stack([np.ones(half), tempered], axis=1).reshape(ROUND).astype(starts.dtype)
    return starts, betas, np.arange(ROUND) % 2 == 0


def _draw_reference(rng: np.random.Generator, target: Target, n: int) -> Float[np.ndarray, "n dim"]:
    return (target.scale * rng.standard_normal((n, target.dim))).astype(target.dtype)


def explore(
    state: SearchState,
    target: Target,
    starts: Float[Array | np.ndarray, "starts dim"],
    betas: Float[np.ndarray, " starts"] | None = None,
    independent: Bool[np.ndarray, " starts"] | None = None,
) -> SearchState:
    """Descends from one round of starts and adds what was found.

    Args:
        state: What is known.
        target: What to search.
        starts: A round of them.
        betas: Where each begins to descend on the tempered posterior; by default none does.
        independent: Which are independent draws of the reference; by default none is.
    """
    betas = np.ones(len(starts), starts.dtype) if betas is None else betas
    independent = np.zeros(len(starts), bool) if independent is None else independent
    ends, counts = _descend(target, np.asarray(starts), betas)
    points, values, curvatures = (np.asarray(part, np.float64) for part in ends[:3])
    modes = list(state.modes)
    found_at = list(state.found_at)
    basins = np.full(len(points), -1)
    finite = np.isfinite(values)
    deepest = min([mode.value for mode in modes] + list(values[finite]), default=np.inf)
    close: list[list[int]] = []
    for index in np.argsort(values):
        if not finite[index] or values[index] > deepest + _REACH:
            continue
        known = _known_mode(points[index], values[index], curvatures[index], modes)
        if known >= 0:
            basins[index] = known
            continue
        for group in close:
            head = group[0]
            if _distance(points[index] - points[head], curvatures[index], curvatures[head]) < _SAME:
                group.append(index)
                break
        else:
            close.append([index])
    # Ends that no barrier parts from a mode, or from a deeper end, need no polishing.
    heads: list[Mode] = []
    new: list[list[int]] = []
    for group in close[:_POLISHED]:
        head = group[0]
        end = make_mode(target, points[head], float(values[head]), curvatures[head])
        where, more = _place(target, modes + heads, end)
        counts += more
        if where < len(modes):
            basins[group] = where
        elif where < len(modes) + len(heads):
            new[where - len(modes)] += group
        else:
            heads.append(end)
            new.append(group)
    if heads:
        polished, more = _polish(target, np.array([head.point for head in heads]))
        counts += more
        for group, found in zip(new, polished, strict=True):
            reached: list[int] = []
            for mode in found:
                where, more = _place(target, modes, mode)
                counts += more
                if where == len(modes):
                    modes.append(mode)
                    found_at.append(len(state.values) + int(min(group)))
                elif mode.value < modes[where].value - 1e-3:
                    modes[where] = mode
                reached.append(where)
            # From a saddle there are two ways down; the deeper end counts.
            if reached:
                basins[group] = min(reached, key=lambda where: modes[where].value)
    return SearchState(
        tuple(modes),
        tuple(found_at),
        np.concatenate([state.values, values]),
        np.concatenate([state.basins, basins]),
        np.concatenate([state.independent, independent]),
        state.counts + counts,
    )


def is_settled(state: SearchState) -> bool:
    """Whether enough starts have passed since the last new mode of relevant mass."""
    if not state.modes:
        return False
    masses = np.array([mode.log_mass for mode in state.modes])
    relevant = masses > masses.max() + np.log(_RELEVANT)
    last = max(np.array(state.found_at)[relevant])
    return len(state.values) - last > _QUIET


def new_basin_chance(found: SearchState) -> float:
    """Good-Turing: basins reached once by the independent starts, over the number of these."""
    independent = found.basins[found.independent]
    if not len(independent):
        return float("nan")
    counts = np.bincount(independent[independent >= 0], minlength=1)
    return float(np.sum(counts == 1) / len(independent))


def _descend(
    target: Target, starts: Float[np.ndarray, "starts dim"], betas: Float[np.ndarray, " starts"]
) -> tuple[Ends, Counts]:
    """Descends from all starts."""
    least_squares = target.residual_fn is not None

    def one(group: Int[np.ndarray, " members"]) -> Ends:
        ends = descend(
            gauss_newton if least_squares else newton,
            target,
            to_device(starts[group]),
            to_device(betas[group]),
            lanes=_LANES,
            steps=_STEPS,
            tolerance=_ARRIVED if least_squares else 1e-3,
            hopeless=_HOPELESS,
        )
        return jax.tree.map(np.atleast_1d, ends)

    ends = _in_groups(one, len(starts))
    evaluations = int(ends.evaluations)
    if not least_squares:
        return ends, Counts(hessians=evaluations)
    # The descent knows psi without the constants of the log density.
    values = -np.asarray(log_densities(target.log_density, to_device(ends.points)))
    return ends._replace(values=values), Counts(jacobians=evaluations, forwards=len(starts))


def _polish(target: Target, points: Float[np.ndarray, "n dim"]) -> tuple[list[list[Mode]], Counts]:
    """Newton from each point; where that ends in a saddle, both ways down from it.

    Returns:
        The minima that each point leads to: one, two from a saddle, none if nothing converged.
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
    for first in range(0, len(downhill), _POLISHED):
        ends = _newton(target, np.array(downhill[first : first + _POLISHED]))
        counts += Counts(hessians=int(ends.evaluations))
        for index, owner in enumerate(owners[first : first + _POLISHED]):
            hessian = np.asarray(ends.curvatures[index], np.float64)
            if np.all(np.isfinite(hessian)) and np.linalg.eigvalsh(hessian)[0] > 0:
                minimum, more = _minimum(target, ends, index)
                found[owner] += minimum
                counts += more
    return found, counts


def _minimum(target: Target, ends: Ends, index: int) -> tuple[list[Mode], Counts]:
    """The mode at which a polished end has arrived, if it has."""
    point, hessian = (np.asarray(part[index], np.float64) for part in (ends[0], ends[2]))
    value = float(ends.values[index])
    if not np.isfinite(value):
        return [], Counts()
    mode = make_mode(target, point, value, hessian)
    if ends.decrements[index] < _CONVERGED:
        return [mode], Counts()
    eigenvalues, vectors = np.linalg.eigh(mode.hessian)
    steps = 0.5 * (vectors / np.sqrt(eigenvalues)).T
    around = _psi(target, np.concatenate([point + steps, point - steps]))
    kinked = np.min(around) > value - _ROUGHNESS
    return [mode._replace(kinked=True)] if kinked else [], Counts(forwards=len(around))


def _newton(target: Target, points: Float[np.ndarray, "n dim"]) -> Ends:
    """Newton from a few points, padded to a fixed number of them."""
    size = _POLISHED // _GROUPS

    def one(group: Int[np.ndarray, " members"]) -> Ends:
        ends = descend(
            newton,
            target,
            to_device(np.resize(points[group], (size, target.dim)), target.dtype),
            to_device(np.ones(size), target.dtype),
            lanes=_POLISHING_LANES,
            steps=_STEPS,
            tolerance=1e-4,
            hopeless=np.inf,
            number=to_device(len(group)),
        )
        return jax.tree.map(lambda part: np.atleast_1d(part)[: len(group)], ends)

    return _in_groups(one, len(points))


def _in_groups(descend_fn: Callable[[Int[np.ndarray, " members"]], Ends], starts: int) -> Ends:
    """The ends of all starts, which descend in groups, at the same time if there are cores."""
    groups = np.array_split(np.arange(starts), min(_GROUPS, starts))
    ends = jax.tree.map(lambda *parts: np.concatenate(parts), *on_cores(descend_fn, groups))
    return ends._replace(evaluations=np.sum(ends.evaluations))


def make_mode(
    target: Target,
    point: Float[np.ndarray, " dim"],
    value: float,
    hessian: Float[np.ndarray, "dim dim"],
) -> Mode:
    """Laplace's mass at a minimum; a direction flatter than ten scales counts as ten scales."""
    eigenvalues, vectors = np.linalg.eigh(hessian)
    eigenvalues = np.maximum(eigenvalues, (10 * target.scale) ** -2)
    log_mass = -value + 0.5 * np.sum(np.log(2 * np.pi / eigenvalues))
    return Mode(point, value, (vectors * eigenvalues) @ vectors.T, float(log_mass))


def _distance(gap, first, second) -> float:
    """Squared Mahalanobis distance with the averaged precision."""
    return float(gap @ (0.5 * (first + second)) @ gap)


def _known_mode(point, value, curvature, modes: list[Mode]) -> int:
    """The known mode at which a descent ended, or -1."""
    for index, mode in enumerate(modes):
        close = _distance(point - mode.point, curvature, mode.hessian) < _SAME
        if close and value < mode.value + 1:
            return index
    return -1


def _place(target: Target, modes: list[Mode], mode: Mode) -> tuple[int, Counts]:
    """The index of a mode among the known ones; their number if it is new."""
    counts = Counts()
    distances = [_distance(mode.point - m.point, mode.hessian, m.hessian) for m in modes]
    for index in np.argsort(distances):
        if distances[index] < _SAME:
            return int(index), counts
        if distances[index] > 100 * target.dim:
            break
        other = modes[index]
        along = np.linspace(0, 1, _SEGMENT + 2)[1:-1, None]
        values = _psi(target, mode.point + along * (other.point - mode.point))
        counts += Counts(forwards=len(values))
        barrier = 2 * _ROUGHNESS if mode.kinked or other.kinked else _BARRIER
        if np.max(values) < max(mode.value, other.value) + barrier:
            return int(index), counts
    return len(modes), counts


def _psi(target: Target, points: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " rounds"]:
    """Psi at the points, which are repeated to whole rounds, so that nothing new compiles."""
    rounds = -(-len(points) // ROUND)
    padded = np.resize(points, (rounds * ROUND, target.dim))
    return -np.asarray(log_densities(target.log_density, to_device(padded, target.dtype)))
