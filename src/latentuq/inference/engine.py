"""The whole inference: search, fit, certify, and refine where the certificate fails."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key

from latentuq.core.arrays import to_device
from latentuq.core.cores import on_cores, one_core
from latentuq.core.errors import UserError
from latentuq.core.randomness import host_generator
from latentuq.inference.answer import GAUSSIAN_KHAT, Clock, assemble
from latentuq.inference.el2o import EL2OFit, fit_el2o
from latentuq.inference.importance import (
    WeightedDraws,
    importance_sample,
    khat_threshold,
    log_ratios,
    systematic_index,
)
from latentuq.inference.membership import assign
from latentuq.inference.mixture import Defensive, Mixture, lower_factor
from latentuq.inference.modes import Probes, SearchState
from latentuq.inference.pool import Pool, gather
from latentuq.inference.refine import (
    PROPOSAL_COMPONENTS,
    Fit,
    climb,
    climb_counts,
    replace_weakest,
    start_fit,
    widened,
)
from latentuq.inference.result import Inference, Progress
from latentuq.inference.search import ROUND_STARTS, explore, probe, search
from latentuq.inference.target import CHUNK, Counts, Target, may_wait


class Budget(NamedTuple):
    """How much work an answer is worth.

    Attributes:
        rounds: The largest number of rounds of the search.
        climbs: The largest number of refinements of the proposal in a row; with 0 the answer is a
            preview.
        draws: The number of draws of each proposal that is tried; half as many of the first, if
            others are certified.
        certified: The largest number of fresh draws of the last proposal, which the answer rests
            on; with 0 it rests on those that the proposal was tried on.
        worth: The number of independent draws that they should be worth, if so many suffice.
    """

    rounds: int
    climbs: int
    draws: int
    certified: int
    worth: int


BUDGETS = {
    "preview": Budget(rounds=1, climbs=0, draws=4096, certified=0, worth=0),
    "default": Budget(rounds=4, climbs=8, draws=8192, certified=40960, worth=1200),
    "thorough": Budget(rounds=12, climbs=12, draws=65536, certified=262144, worth=20000),
}

# At most so many modes are fitted, none more than so many nats lighter than the heaviest; each gets
# at least this share of the proposal, whose components all have these degrees of freedom.
_MOST_MODES = 10
_MASS_REACH = 12.0
_LEAST_SHARE = 0.05
_DEGREES = 10.0
# A refined proposal is worth certifying below the first k-hat, or below the second if the
# refinement before it found the same evidence.
_REFINED_KHAT, _REPEATED_KHAT = 0.5, 0.65
_SAME_EVIDENCE = 0.1
# Draws are safe with an error of ln evidence below the first, and worth more than the second.
_SAFE_ERROR = 0.2
_SAFE_ESS = 400
# The draws that a proposal is tried on should be worth so many: fewer than those of the answer.
_TRIED_ESS = 100
# An answer rests on at least so many draws.
_FEWEST_DRAWS = 8192
# The inverse temperature of the posterior whose draws lie where basins meet.
_HOT_BETA = 0.25
# The draws of the mixture, and those of the refined proposal, may lead so often to modes that the
# search has missed; such a mode is worth a new refinement from this share of the mass.
_SECOND_LOOKS = 3
_LATE_LOOKS = 2
_WORTH_REFINING = 0.01
# A certificate that fails may lead so often to another refinement.
_RETRIES = 2


class _Answer(NamedTuple):
    """A proposal, fresh draws of it, and what they rest on.

    Attributes:
        found: What the search knows.
        fits: A Gaussian for each of its relevant modes, by their index.
        proposal: The distribution that the draws came from.
        draws: Fresh draws, which had no part in making the proposal.
        fit: The fit that the proposal was made of, which the next refinement improves.
        pool: The draws of earlier proposals, which the next refinement may use as well.
        climbs: The number of refinements.
        counts: The evaluations, without those of the search.
    """

    found: SearchState
    fits: dict[int, EL2OFit]
    proposal: Defensive
    draws: WeightedDraws
    fit: Fit
    pool: Pool | None
    climbs: int
    counts: Counts


def infer(
    key: Key[Array, ""],
    target: Target,
    *,
    budget: str = "default",
    progress: Callable[[Progress], None] | None = None,
) -> Inference:
    """Finds the modes of a density, weighs them, draws from it, and says how far to trust that.

    The budget is one of `BUDGETS`, and `progress` is called after each stage.
    """
    if not isinstance(budget, str) or budget not in BUDGETS:
        raise UserError(f"The budget is one of {', '.join(BUDGETS)}, not {budget!r}.")
    with one_core(may_wait(target)):
        return _infer(key, target, BUDGETS[budget], Clock(progress))


def _infer(key: Key[Array, ""], target: Target, limits: Budget, clock: Clock) -> Inference:
    """Runs all stages, within a budget."""
    search_key, fit_key, climb_key, probe_key, certify_key = jax.random.split(key, 5)

    found = search(search_key, target, limits.rounds, lambda state: _report_map(clock, state))
    relevant = [found.modes[index].point for index in _relevant_modes(found)]
    message = f"Modes after {len(found.values)} starts: {len(relevant)}."
    clock.stage("search", "modes", message, np.reshape(relevant, (-1, target.dim)))

    answer = _fit(fit_key, target, found, limits)
    means = [fit.mean for fit in answer.fits.values()]
    message = "A Gaussian has been fitted to each mode."
    clock.stage("fit", "fitted", message, np.reshape(means, (-1, target.dim)))

    answer, probes = _refine(climb_key, probe_key, target, answer, limits)
    clock.mark("refine")
    answer = _certify(certify_key, target, answer, limits)
    if answer.climbs and not len(probes.points):  # The certificate alone called for refinement.
        probes = probe(probe_key, target, answer.found, answer.draws)
    clock.mark("certify")
    membership = assign(target, answer.found, answer.fits, answer.proposal, answer.draws, probes)
    return assemble(
        clock,
        answer.found,
        answer.proposal,
        answer.draws,
        membership,
        climbs=answer.climbs,
        counts=answer.counts + probes.state.counts,
        preview=limits.climbs == 0,
    )


def _report_map(clock: Clock, state: SearchState) -> None:
    if state.modes:
        deepest = min(state.modes, key=lambda mode: mode.value)
        clock.stage("search", "map", "The deepest mode so far.", deepest.point[None])


def _relevant_modes(found: SearchState) -> list[int]:
    """Chooses the heaviest modes by Laplace's mass, and the deepest in any case."""
    if not found.modes:
        return []
    masses = np.array([mode.log_mass for mode in found.modes])
    order = [int(index) for index in np.argsort(-masses)]
    kept = [index for index in order[:_MOST_MODES] if masses[index] > masses.max() - _MASS_REACH]
    deepest = int(np.argmin([mode.value for mode in found.modes]))
    return kept if deepest in kept else [*kept[: _MOST_MODES - 1], deepest]


def _fit(key: Key[Array, ""], target: Target, found: SearchState, limits: Budget) -> _Answer:
    """Fits a Gaussian per mode and draws from their mixture; again if that leads to new modes."""
    fits: dict[int, EL2OFit] = {}
    counts, look = Counts(), 0
    # An answer that rests on others needs fewer of them to tell whether Gaussians suffice.
    number = limits.draws // 2 if limits.certified else limits.draws
    while True:
        fit_key, draw_key = jax.random.split(jax.random.fold_in(key, look))
        order = _relevant_modes(found)
        missing = [index for index in order if index not in fits]
        more, spent = _fit_modes(fit_key, target, found, missing)
        fits = {index: (fits | more)[index] for index in order}
        fits = dict(sorted(fits.items(), key=lambda item: -float(item[1].log_mass)))
        mixture = _mixture(target, list(fits.values()))
        proposal = Defensive(mixture, scale=target.scale)
        draws = importance_sample(draw_key, target.log_density, proposal, number)
        counts += spent + Counts(forwards=number)
        answer = _Answer(found, fits, proposal, draws, start_fit(mixture), None, 0, counts)
        if look == _SECOND_LOOKS or not limits.climbs:
            return answer
        found, look = _look_again(found, target, draws), look + 1
        if _relevant_modes(found) == order:
            return answer._replace(found=found)


def _fit_modes(
    key: Key[Array, ""], target: Target, found: SearchState, order: list[int]
) -> tuple[dict[int, EL2OFit], Counts]:
    samples, iterations = max(64, 4 * target.dim), 6

    def fit(index: int) -> EL2OFit:
        mode = found.modes[index]
        return fit_el2o(
            jax.random.fold_in(key, index),
            target.log_density,
            to_device(mode.point, target.dtype),
            lower_factor(to_device(mode.root, target.dtype)),
            samples=samples,
            iterations=iterations,
        )

    fits = dict(zip(order, jax.device_get(on_cores(fit, order)), strict=True))
    return fits, Counts(gradients=len(order) * samples * (iterations + 2))


def _mixture(target: Target, fits: list[EL2OFit]) -> Mixture:
    """Joins the fits to one mixture, in their order, padded to a fixed number of components.

    Without any fit a single component stands for the reference.
    """
    dim, dtype = target.dim, target.dtype
    # There are as many as refined proposals have, so that nothing is compiled twice.
    log_weights = np.full(PROPOSAL_COMPONENTS, -np.inf)
    means = np.zeros((PROPOSAL_COMPONENTS, dim))
    factors = np.tile(target.scale * np.eye(dim), (PROPOSAL_COMPONENTS, 1, 1))
    if not fits:
        log_weights[0] = 0.0
    for place, fit in enumerate(fits):
        log_weights[place] = max(float(fit.log_mass), -1e30)
        means[place], factors[place] = fit.mean, fit.factor
    weights = np.exp(log_weights - log_weights.max())
    weights = np.where(np.isfinite(log_weights), weights / weights.sum() + _LEAST_SHARE, 0)
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights / weights.sum())
    parts = (to_device(part, dtype) for part in (log_weights, means, factors))
    return Mixture(*parts, degrees=_DEGREES)


def _look_again(found: SearchState, target: Target, draws: WeightedDraws) -> SearchState:
    """Descends from the draws that the mixture explains worst: a missed mode shows there first."""
    worst = np.argsort(-log_ratios(draws.log_densities, draws.log_proposals))[:ROUND_STARTS]
    return _with_discoveries(found, explore(found, target, draws.draws[worst]))


def _with_discoveries(found: SearchState, after: SearchState) -> SearchState:
    """Keeps what descents from a proposal's draws discover: new modes and their starts.

    Where the proposal has a component already, its draws would only confirm it.
    """
    fresh = after.basins >= len(found.modes)
    fresh[: len(found.basins)] = True
    return after._replace(
        values=after.values[fresh],
        basins=after.basins[fresh],
        independent=after.independent[fresh],
    )


def _refine(
    climb_key: Key[Array, ""],
    probe_key: Key[Array, ""],
    target: Target,
    answer: _Answer,
    limits: Budget,
) -> tuple[_Answer, Probes]:
    """Improves the proposal until the certificate holds, and again if it leads to further modes."""
    first_key, late_key = jax.random.split(climb_key)
    answer = _climb(first_key, target, answer, limits)
    if not answer.climbs:
        return answer, Probes(answer.found, np.zeros((0, target.dim)))
    look = 1
    while True:
        hot_key, posterior_key, fit_key = jax.random.split(jax.random.fold_in(probe_key, look), 3)
        known = len(answer.found.modes)
        answer = answer._replace(found=_look_hot(hot_key, answer.found, target, answer.draws))
        probes = probe(posterior_key, target, answer.found, answer.draws)
        masses = np.array([mode.log_mass for mode in probes.state.modes[known:]])
        least = float(answer.draws.log_evidence) + np.log(_WORTH_REFINING)
        if look == _LATE_LOOKS or not np.any(masses > least):
            return answer, probes
        new = [known + int(index) for index in np.flatnonzero(masses > least)]
        answer = answer._replace(found=_with_discoveries(answer.found, probes.state))
        answer = _add_modes(fit_key, target, answer, new, limits)
        answer = _climb(jax.random.fold_in(late_key, look), target, answer, limits)
        look += 1


def _look_hot(
    key: Key[Array, ""], found: SearchState, target: Target, draws: WeightedDraws
) -> SearchState:
    """Descends from draws of the tempered posterior: they lie where basins meet."""
    points = np.asarray(draws.draws)
    log_hot = _HOT_BETA * draws.log_densities + (1 - _HOT_BETA) * target.log_reference(points)
    log_weights = log_hot - draws.log_proposals
    chosen = systematic_index(host_generator(key), log_weights, ROUND_STARTS)
    return _with_discoveries(found, explore(found, target, points[chosen]))


def _add_modes(
    key: Key[Array, ""], target: Target, answer: _Answer, new: list[int], limits: Budget
) -> _Answer:
    """Fits modes that were found late and gives each a component of the proposal."""
    fit_key, draw_key = jax.random.split(key)
    new = new[: _MOST_MODES // 2]
    fits, spent = _fit_modes(fit_key, target, answer.found, new)
    evidence = float(answer.draws.log_evidence)
    masses = [float(fit.log_mass) - evidence for fit in fits.values()]
    fit = replace_weakest(answer.fit, list(fits.values()), np.clip(np.exp(masses), _LEAST_SHARE, 1))
    answer = answer._replace(
        fits=answer.fits | fits,
        fit=fit,
        pool=gather(answer.pool, answer.proposal, answer.draws),
        counts=answer.counts + spent,
    )
    return _proposed(draw_key, target, answer, limits.draws)


def _climb(key: Key[Array, ""], target: Target, answer: _Answer, limits: Budget) -> _Answer:
    """Refines as long as the importance weights have a heavy tail.

    If they keep it, the answer is the refinement with the lightest tail among those whose draws are
    worth enough.
    """
    tried: list[_Answer] = []
    while not _is_safe(answer, tried[-2:-1]):
        if len(tried) == limits.climbs or not float(answer.draws.ess):
            counts = answer.counts
            lightest = min(tried, key=_tail, default=answer)
            return lightest._replace(counts=counts, climbs=answer.climbs)
        move_key, draw_key = jax.random.split(jax.random.fold_in(key, len(tried)))
        answer = _proposed(draw_key, target, _improved(move_key, target, answer), limits.draws)
        tried.append(answer)
    return answer


def _improved(key: Key[Array, ""], target: Target, answer: _Answer) -> _Answer:
    """Improves the fit by a climb; the first one has the longest way to go."""
    bouts = 1 if answer.climbs else 2
    pool = gather(answer.pool, answer.proposal, answer.draws)
    modes = _mixture(target, list(answer.fits.values()))
    fit = climb(key, target, answer.fit, pool, modes, bouts)
    counts = answer.counts + climb_counts(bouts)
    return answer._replace(fit=fit, pool=pool, climbs=answer.climbs + 1, counts=counts)


def _tail(answer: _Answer) -> tuple[bool, float]:
    khat = float(answer.draws.khat)
    return not float(answer.draws.ess) > _TRIED_ESS, math.inf if math.isnan(khat) else khat


def _certify(key: Key[Array, ""], target: Target, answer: _Answer, limits: Budget) -> _Answer:
    """Makes the answer rest on draws that had no part in choosing the proposal either.

    Where these have a heavy tail that the choice did not see, or are worth little, they serve to
    refine once more, and the answer rests on fresh draws of what comes of it.
    """
    if not limits.certified or not float(answer.draws.ess):
        return answer
    for attempt in range(_RETRIES + 1):
        draw_key, climb_key = jax.random.split(jax.random.fold_in(key, attempt))
        tried = answer
        answer = _sampled(draw_key, target, tried, _enough(tried.draws, limits))
        light = float(answer.draws.khat) <= khat_threshold(len(answer.draws.draws))
        if attempt == _RETRIES or (light and _is_worth(answer.draws, _SAFE_ESS)):
            break
        pool = gather(tried.pool, tried.proposal, tried.draws)
        answer = _climb(climb_key, target, answer._replace(pool=pool), limits)
    return answer


def _enough(draws: WeightedDraws, limits: Budget) -> int:
    """Tells how many draws, in whole chunks, are worth enough if they are as good as these."""
    wanted = limits.worth * len(draws.draws) / float(draws.ess)
    chunks = math.ceil(max(wanted, _FEWEST_DRAWS) / CHUNK)
    return min(chunks * CHUNK, limits.certified)


def _proposed(key: Key[Array, ""], target: Target, answer: _Answer, number: int) -> _Answer:
    """Gives the answer the proposal that its fit makes, and fresh draws of it."""
    proposal = Defensive(widened(answer.fit.mixture), scale=target.scale)
    return _sampled(key, target, answer._replace(proposal=proposal), number)


def _sampled(key: Key[Array, ""], target: Target, answer: _Answer, number: int) -> _Answer:
    """Gives the answer fresh draws of its proposal."""
    draws = importance_sample(key, target.log_density, answer.proposal, number)
    counts = answer.counts + Counts(forwards=number)
    return answer._replace(draws=draws, counts=counts)


def _is_worth(draws: WeightedDraws, least: float) -> bool:
    return float(draws.ess) > least and float(draws.log_evidence_error) < _SAFE_ERROR


def _is_safe(answer: _Answer, previous: list[_Answer]) -> bool:
    draws, khat = answer.draws, float(answer.draws.khat)
    if not _is_worth(draws, _TRIED_ESS):
        return False
    if not answer.climbs:
        return khat < GAUSSIAN_KHAT
    evidence = float(draws.log_evidence)
    gaps = [abs(float(each.draws.log_evidence) - evidence) for each in previous]
    repeated = any(gap < _SAME_EVIDENCE for gap in gaps)
    return khat < (_REPEATED_KHAT if repeated else _REFINED_KHAT)
