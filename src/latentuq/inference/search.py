"""Search for every mode: starts, descent, saddles, de-duplication, and when to stop."""

import math

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from latentuq.core.arrays import to_device
from latentuq.core.randomness import host_generator
from latentuq.inference.descent import Ends, Limits, descend_groups, gauss_newton, newton
from latentuq.inference.importance import (
    WeightedDraws,
    effective_sample_size,
    systematic_index,
)
from latentuq.inference.modes import (
    MOST_POLISHED,
    REACH_NATS,
    Mode,
    Probes,
    SearchState,
    are_close,
    known_mode,
    make_mode,
    place,
    polish,
    reached,
)
from latentuq.inference.settings import Settings
from latentuq.inference.target import Counts, Target, log_densities, log_densities_at

ROUND_STARTS = 64
"""The number of starts of one round, always the same, so that nothing is compiled twice."""

# The number of draws of the reference from which likely starts are chosen.
_BANK_DRAWS = 4096
_LIMITS = Limits(lanes=4, steps=60, tolerance=1e-3, hopeless=60.0)
# The Newton decrement, in nats, at which a Gauss-Newton descent has told which minimum it leads to:
# by then it is close. New minima are polished further.
_ARRIVED_DECREMENT = 0.05


def search(
    key: Key[Array, ""],
    target: Target,
    state: SearchState,
    likely: Float[np.ndarray, "n dim"] | None = None,
    number: int = 0,
) -> SearchState:
    """Descends from one round of starts, half of them independent draws of the reference.

    The other half are the next ones of `likely`, places where the density is, in a fixed order:
    `number` rounds have gone before. Without any they come from a bank of draws of the reference
    weighted by likelihood^beta, with beta so small that many of them matter: likely and diverse.
    Half of those descend on the tempered posterior first.
    """
    reference_key, bank_key = jax.random.split(key)
    half = ROUND_STARTS // 2
    prior = draw_reference(host_generator(reference_key), target, half)
    if likely is None or not len(likely):
        others, betas = _likely_starts(bank_key, target, half)
        state = state._replace(counts=state.counts + Counts(forwards=_BANK_DRAWS))
    else:
        first = half * number
        others = np.take(likely, np.arange(first, first + half), axis=0, mode="wrap")
        betas = np.ones(half)
    starts = np.stack([prior, others.astype(prior.dtype)], axis=1)
    tempers = np.stack([np.ones(half), betas], axis=1)
    return descend_from(
        state,
        target,
        starts.reshape(ROUND_STARTS, target.dim),
        tempers.reshape(ROUND_STARTS).astype(starts.dtype),
        np.arange(ROUND_STARTS) % 2 == 0,
    )


def _likely_starts(
    key: Key[Array, ""], target: Target, number: int
) -> tuple[Float[np.ndarray, "number dim"], Float[np.ndarray, " number"]]:
    """Chooses likely and diverse draws of the reference, and the inverse temperature of each."""
    rng = host_generator(key)
    bank = draw_reference(rng, target, _BANK_DRAWS)
    log_likelihoods = log_densities_at(target.log_density, bank) - target.log_reference(bank)
    log_likelihoods = np.where(np.isfinite(log_likelihoods), log_likelihoods, -np.inf)
    beta, high = 1e-6, 1.0
    for _ in range(25):
        middle = math.sqrt(beta * high)
        if effective_sample_size(middle * log_likelihoods) >= 3 * ROUND_STARTS:
            beta = middle
        else:
            high = middle
    # The largest perturbed log weights are a draw without replacement.
    perturbed = beta * log_likelihoods + rng.gumbel(size=_BANK_DRAWS)
    picked = np.argsort(-perturbed)[:number]
    return bank[picked], np.where(np.arange(number) % 2 == 0, max(beta, 0.01), 1)


def draw_reference(rng: np.random.Generator, target: Target, n: int) -> Float[np.ndarray, "n dim"]:
    """Makes independent draws of the reference on the host."""
    return (target.scale * rng.standard_normal((n, target.dim))).astype(target.dtype)


def descend_from(
    state: SearchState,
    target: Target,
    starts: Float[Array | np.ndarray, "starts dim"],
    betas: Float[np.ndarray, " starts"] | None = None,
    independent: Bool[np.ndarray, " starts"] | None = None,
) -> SearchState:
    """Descends from one round of starts and adds what was found.

    By default no start is tempered, and none is an independent draw of the reference.
    """
    betas = np.ones(len(starts), starts.dtype) if betas is None else betas
    independent = np.zeros(len(starts), bool) if independent is None else independent
    ends, counts = _descend(target, np.asarray(starts), betas)
    points, values, curvatures = (np.asarray(part, np.float64) for part in ends[:3])
    modes, found_at = list(state.modes), list(state.found_at)
    basins, heads, groups, more = _sort_ends(target, points, values, curvatures, modes)
    counts += more
    if heads:
        polished, more = polish(target, np.array([head.point for head in heads]))
        counts += more
        for group, found in zip(groups, polished, strict=True):
            places: list[int] = []
            for mode in found:
                where, more = place(target, modes, mode)
                counts += more
                if where == len(modes):
                    modes.append(mode)
                    found_at.append(len(state.values) + int(min(group)))
                elif mode.value < modes[where].value - 1e-3:
                    modes[where] = mode
                places.append(where)
            # From a saddle there are two ways down; the deeper end counts.
            if places:
                basins[group] = min(places, key=lambda where: modes[where].value)
    return SearchState(
        tuple(modes),
        tuple(found_at),
        np.concatenate([state.values, values]),
        np.concatenate([state.basins, basins]),
        np.concatenate([state.independent, independent]),
        state.counts + counts,
    )


def _sort_ends(
    target: Target,
    points: Float[np.ndarray, "starts dim"],
    values: Float[np.ndarray, " starts"],
    curvatures: Float[np.ndarray, "starts dim dim"],
    modes: list[Mode],
) -> tuple[Int[np.ndarray, " starts"], list[Mode], list[list[int]], Counts]:
    """Tells ends that have reached a known mode from those that are to be polished.

    Returns:
        The index of the mode of each end or -1, the ends to polish, those that belong to each of
        them, and the evaluations.
    """
    basins, counts = np.full(len(points), -1), Counts()
    finite = np.isfinite(values)
    deepest = min([mode.value for mode in modes] + list(values[finite]), default=np.inf)
    close: list[list[int]] = []
    for index in np.argsort(values):
        if not finite[index] or values[index] > deepest + REACH_NATS:
            continue
        known = known_mode(points[index], values[index], curvatures[index], modes)
        if known >= 0:
            basins[index] = known
            continue
        for group in close:
            head = group[0]
            if are_close(points[index], curvatures[index], points[head], curvatures[head]):
                group.append(index)
                break
        else:
            close.append([index])
    heads: list[Mode] = []
    groups: list[list[int]] = []
    for group in close:
        head = group[0]
        end = make_mode(target, points[head], float(values[head]), curvatures[head])
        where, more = reached(target, modes + heads, end)
        counts += more
        if where < 0 and len(heads) < MOST_POLISHED:
            heads.append(end)
            groups.append(group)
        elif where >= len(modes):
            groups[where - len(modes)] += group
        elif where >= 0:
            basins[group] = where
    return basins, heads, groups, counts


def probe(
    key: Key[Array, ""], target: Target, found: SearchState, draws: WeightedDraws, number: int
) -> Probes:
    """Descends from posterior draws, which may find modes that the search has missed."""
    chosen = systematic_index(host_generator(key), draws.log_weights, number)
    points, state = np.asarray(draws.draws)[chosen], found
    for first in range(0, number, ROUND_STARTS):
        state = descend_from(state, target, points[first : first + ROUND_STARTS])
    worth = min(1.0, float(draws.ess) / number)
    return Probes(state, points, state.basins[len(found.values) :], worth)


def relevant_modes(state: SearchState, settings: Settings) -> list[int]:
    """Chooses the heaviest modes by Laplace's mass, and the deepest in any case."""
    if not state.modes:
        return []
    masses = np.array([mode.log_mass for mode in state.modes])
    order = [int(index) for index in np.argsort(-masses, kind="stable")]
    most, least = settings.most_modes, masses.max() - settings.mass_reach
    kept = [index for index in order[:most] if masses[index] > least]
    deepest = int(np.argmin([mode.value for mode in state.modes]))
    return kept if deepest in kept else [*kept[: most - 1], deepest]


def is_settled(state: SearchState, settings: Settings) -> bool:
    """Says whether another round is unlikely to find a new mode of relevant mass.

    Enough starts have passed since the last such mode, there were enough for so many modes, and
    modes that very few starts have found hold little of the mass: what no start has found is no
    more than that (Good and Turing).
    """
    if not state.modes:
        return False
    masses = np.array([mode.log_mass for mode in state.modes])
    shares = np.exp(masses - np.logaddexp.reduce(masses))
    relevant = shares > settings.relevant * shares.max()
    last, starts = max(np.array(state.found_at)[relevant]), len(state.values)
    hits = np.bincount(state.basins[state.basins >= 0], minlength=len(masses))
    lonely = float(np.sum(shares[hits <= settings.lonely]))
    # The rarest of K modes that share the starts at random has one in K^2 of them.
    squares = np.count_nonzero(shares > settings.relevant) ** 2, len(masses) ** 2
    enough = starts >= max(
        settings.starts_per_mode * squares[0], settings.starts_per_basin * squares[1]
    )
    quiet = starts - last > settings.quiet_starts
    return bool(quiet and enough and lonely <= settings.lonely_mass)


def _descend(
    target: Target, starts: Float[np.ndarray, "starts dim"], betas: Float[np.ndarray, " starts"]
) -> tuple[Ends, Counts]:
    """Descends from all starts."""
    least_squares = target.residual_fn is not None
    limits = _LIMITS._replace(tolerance=_ARRIVED_DECREMENT) if least_squares else _LIMITS
    model_fn = gauss_newton if least_squares else newton
    ends = descend_groups(model_fn, target, starts, betas, limits, ROUND_STARTS)
    evaluations = int(ends.evaluations)
    if not least_squares:
        return ends, Counts(hessians=evaluations)
    # The descent knows psi without the constants of the log density.
    values = -np.asarray(log_densities(target.log_density, to_device(ends.points)))
    return ends._replace(values=values), Counts(jacobians=evaluations, forwards=len(starts))
