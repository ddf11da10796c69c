"""The whole inference: search, fit, certify, and refine where the certificate fails."""

import time
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.errors import UserError
from latentuq.inference.el2o import EL2OFit, fit_el2o
from latentuq.inference.importance import (
    WeightedDraws,
    importance_sample,
    khat_threshold,
    mode_weights,
)
from latentuq.inference.laplace import lower_factor
from latentuq.inference.membership import Membership, assign
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.refine import begin, climb, climb_counts, defensive
from latentuq.inference.result import Counts, Diagnostics, Inference, SearchRecord
from latentuq.inference.search import ROUND, SearchState, explore, search
from latentuq.inference.target import Target
from latentuq.inference.verdict import Evidence, give_verdict


class Budget(NamedTuple):
    """How much work an answer is worth.

    Attributes:
        rounds: Most rounds of the search.
        climbs: Most refinements of the proposal; none: the answer is a preview.
        draws: Of each proposal.
    """

    rounds: int
    climbs: int
    draws: int


BUDGETS = {
    "preview": Budget(rounds=1, climbs=0, draws=4096),
    "default": Budget(rounds=4, climbs=4, draws=16384),
    "thorough": Budget(rounds=12, climbs=10, draws=65536),
}


class Progress(NamedTuple):
    """A partial answer.

    Attributes:
        stage: "map", "modes", "fitted" or "certified".
        message: One sentence for people.
        modes: Found so far; in the stage "map" the deepest alone.
        weights: Their weights, as far as known.
        seconds: Since the start.
    """

    stage: str
    message: str
    modes: Float[Array, "modes dim"]
    weights: Float[Array, " modes"] | None
    seconds: float


# Modes that are fitted, the share of the proposal that the least of them gets, and the degrees of
# freedom of every component.
_MOST_MODES = 10
_LEAST_SHARE = 0.05
_DEGREES = 10.0
# Gaussians are good enough below the first k-hat: above it they were seen to miss up to 30 % of
# the mass in tails that none of their draws reached. Refining ends below the second.
_GAUSSIAN_KHAT = 0.3
_REFINED_KHAT = 0.65
_SAFE_ERROR = 0.2
# How often the draws with the largest weights may lead to modes that the search has missed.
_SECOND_LOOKS = 3


def infer(
    key: Key[Array, ""],
    target: Target,
    *,
    budget: str = "default",
    progress: Callable[[Progress], None] | None = None,
) -> Inference:
    """Finds the modes of a density, weighs them, draws from it, and says how far to trust that.

    Args:
        key: Randomness.
        target: The density.
        budget: "preview", "default" or "thorough".
        progress: Called after each stage.
    """
    if budget not in BUDGETS:
        raise UserError(f"The budget is one of {', '.join(BUDGETS)}, not {budget!r}.")
    limits = BUDGETS[budget]
    clock = _Clock(progress or (lambda _: None))
    search_key, fit_key, pilot_key, climb_key, probe_key = jax.random.split(key, 5)

    found = search(search_key, target, limits.rounds, lambda state: _report_map(clock, state))
    order = _relevant_modes(found)
    clock.stage(
        "search",
        "modes",
        f"{len(order)} modes after {len(found.values)} starts.",
        jnp.asarray(
            np.array([found.modes[index].point for index in order]).reshape(-1, target.dim)
        ),
    )
    fits, counts = _fit_modes(fit_key, target, found, order)
    mixture = _mixture(target, fits)
    draws = _pilot(pilot_key, target, mixture, limits)
    counts += Counts(forwards=limits.draws)
    for repeat in range(_SECOND_LOOKS if limits.climbs else 0):
        found = _look_again(found, target, draws)
        wider = _relevant_modes(found)
        if wider == order:
            break
        order = wider
        fits, more = _fit_modes(fit_key, target, found, order)
        mixture = _mixture(target, fits)
        draws = _pilot(jax.random.fold_in(pilot_key, repeat), target, mixture, limits)
        counts += more + Counts(forwards=limits.draws)
    counts += found.counts
    clock.stage("fit", "fitted", "A Gaussian has been fitted to each mode.", _means(target, fits))

    draws, proposal, climbs, more = _refine(climb_key, target, mixture, draws, limits)
    counts += more
    membership = assign(probe_key, target, found, order, fits, proposal, draws, refined=climbs > 0)
    counts += membership.counts
    return _assemble(clock, target, found, proposal, draws, membership, climbs, counts, limits)


class _Clock:
    """Times the stages and reports them."""

    def __init__(self, report: Callable[[Progress], None]):
        self.start = self.last = time.perf_counter()
        self.seconds: dict[str, float] = {}
        self.report = report

    def mark(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
        self.last = now

    def stage(self, name, stage, message, modes, weights=None) -> None:
        self.mark(name)
        self.report(Progress(stage, message, modes, weights, self.last - self.start))


def _report_map(clock: _Clock, state: SearchState) -> None:
    if state.modes:
        deepest = min(state.modes, key=lambda mode: mode.value)
        clock.stage("search", "map", "The deepest mode so far.", jnp.asarray(deepest.point)[None])


def _relevant_modes(found: SearchState) -> list[int]:
    """The heaviest modes by Laplace's mass, and the deepest in any case."""
    if not found.modes:
        return []
    order = list(np.argsort([-mode.log_mass for mode in found.modes]))
    heaviest = found.modes[order[0]].log_mass
    kept = [i for i in order[:_MOST_MODES] if found.modes[i].log_mass > heaviest - 12]
    deepest = int(np.argmin([mode.value for mode in found.modes]))
    return kept if deepest in kept else [*kept[: _MOST_MODES - 1], deepest]


def _fit_modes(
    key: Key[Array, ""], target: Target, found: SearchState, order: list[int]
) -> tuple[list[EL2OFit], Counts]:
    samples, iterations = max(64, 4 * target.dim), 6
    fits = []
    for index in order:
        mode = found.modes[index]
        eigenvalues, vectors = np.linalg.eigh(mode.hessian)
        factor = lower_factor(jnp.asarray(vectors / np.sqrt(eigenvalues), target.dtype))
        fits.append(
            fit_el2o(
                jax.random.fold_in(key, index),
                target.log_density,
                jnp.asarray(mode.point, target.dtype),
                factor,
                samples=samples,
                iterations=iterations,
            )
        )
    return fits, Counts(gradients=len(order) * samples * (iterations + 2))


def _means(target: Target, fits: list[EL2OFit]) -> Float[Array, "modes dim"]:
    return jnp.asarray(np.array([fit.mean for fit in fits]).reshape(-1, target.dim))


def _mixture(target: Target, fits: list[EL2OFit]) -> Mixture:
    """The fits as one mixture, heaviest first, padded to a fixed number of components.

    Without any fit a single component stands for the reference.
    """
    dim, dtype = target.dim, target.dtype
    log_weights = np.full(_MOST_MODES, -np.inf)
    means = np.zeros((_MOST_MODES, dim))
    factors = np.tile(target.scale * np.eye(dim), (_MOST_MODES, 1, 1))
    if not fits:
        log_weights[0] = 0.0
    for place, fit in enumerate(fits):
        log_weights[place] = max(float(fit.log_mass), -1e30)
        means[place], factors[place] = fit.mean, fit.factor
    weights = np.exp(log_weights - log_weights.max())
    weights = np.where(np.isfinite(log_weights), weights / weights.sum() + _LEAST_SHARE, 0)
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights / weights.sum())
    return Mixture(
        jnp.asarray(log_weights, dtype),
        jnp.asarray(means, dtype),
        jnp.asarray(factors, dtype),
        _DEGREES,
    )


def _pilot(key, target: Target, mixture: Mixture, limits: Budget) -> WeightedDraws:
    proposal = Defensive(mixture, scale=target.scale)
    return importance_sample(key, target.log_density, proposal, limits.draws)


def _look_again(found: SearchState, target: Target, draws: WeightedDraws) -> SearchState:
    """Descends from the draws that the mixture explains worst: a missed mode shows there first."""
    ratios = draws.log_densities - draws.log_proposals
    _, worst = jax.lax.top_k(jnp.where(jnp.isfinite(ratios), ratios, -jnp.inf), ROUND)
    betas = jnp.ones(ROUND, draws.draws.dtype)
    return explore(found, target, draws.draws[worst], betas, np.zeros(ROUND, bool))


def _refine(
    key: Key[Array, ""], target: Target, mixture: Mixture, draws: WeightedDraws, limits: Budget
) -> tuple[WeightedDraws, Defensive, int, Counts]:
    """Better proposals, as long as the importance weights have a heavy tail.

    Every set of draws is fresh: it had no part in making its proposal.
    """
    best = draws, Defensive(mixture, scale=target.scale)
    ladder, counts, climbs = begin(mixture), Counts(), 0
    while climbs < limits.climbs and not _is_safe(draws, climbs):
        move_key, draw_key = jax.random.split(jax.random.fold_in(key, climbs))
        ladder = climb(move_key, target, ladder, draws)
        proposal = defensive(ladder, target)
        draws = importance_sample(draw_key, target.log_density, proposal, limits.draws)
        counts += climb_counts() + Counts(forwards=limits.draws)
        climbs += 1
        if not draws.khat >= best[0].khat:
            best = draws, proposal
    return *best, climbs, counts


def _is_safe(draws: WeightedDraws, climbs: int) -> bool:
    limit = _REFINED_KHAT if climbs else _GAUSSIAN_KHAT
    steady = bool(draws.log_evidence_error < _SAFE_ERROR)
    return bool(draws.khat < limit) and bool(draws.ess > 100) and steady


def _assemble(
    clock: _Clock,
    target: Target,
    found: SearchState,
    proposal: Defensive,
    draws: WeightedDraws,
    membership: Membership,
    climbs: int,
    counts: Counts,
    limits: Budget,
) -> Inference:
    """Weighs the modes, heaviest first, and writes the verdict."""
    dtype = draws.draws.dtype
    by_component = _responsibilities(proposal.mixture, draws.draws)
    shares = jnp.asarray(membership.shares, dtype)
    weights, errors = mode_weights(draws, by_component @ shares)
    masses, _ = mode_weights(draws, by_component)
    # Shares that were counted on probes carry the error of that count.
    counting = (masses**2 / jnp.asarray(membership.probes, dtype)) @ (shares * (1 - shares))
    errors = jnp.sqrt(errors**2 + counting)
    order = np.argsort(-np.nan_to_num(np.asarray(weights)), kind="stable")
    basins = np.where(
        membership.basins >= 0, np.argsort(order)[np.maximum(membership.basins, 0)], -1
    )
    starts = np.bincount(basins[basins >= 0], minlength=len(order))
    missed = float(np.sum(np.nan_to_num(np.asarray(weights))[order][starts <= 1]))
    verdict = give_verdict(
        Evidence(
            khat=float(draws.khat),
            threshold=khat_threshold(len(draws.draws)),
            ess=float(draws.ess),
            evidence_error=float(draws.log_evidence_error),
            starts=len(found.values),
            minimum=bool(found.modes),
            missed_mass=missed,
            climbs=climbs,
            preview=limits.climbs == 0,
        )
    )
    modes = [membership.modes[index] for index in order]
    clock.stage(
        "certify",
        "certified",
        verdict,
        jnp.asarray(np.array([mode.point for mode in modes]), dtype),
        weights[order],
    )
    return Inference(
        modes=jnp.asarray(np.array([mode.point for mode in modes]), dtype),
        log_densities=jnp.asarray([-mode.value for mode in modes], dtype),
        weights=weights[order],
        weight_errors=errors[order],
        means=jnp.asarray(membership.means[order], dtype),
        factors=jnp.asarray(membership.factors[order], dtype),
        proposal=proposal,
        membership=shares[:, order],
        draws=draws,
        search=SearchRecord(
            jnp.asarray(-found.values, dtype), jnp.asarray(basins), jnp.asarray(found.independent)
        ),
        diagnostics=Diagnostics(
            khat=float(draws.khat),
            ess=float(draws.ess),
            draws=len(draws.draws),
            el2o=tuple(membership.el2o[index] for index in order),
            missed_mass=missed,
            new_basin_chance=new_basin_chance(found),
            rounds=climbs,
            counts=counts,
            forward_equivalents=counts.forward_equivalents(target.dim),
            seconds=dict(clock.seconds),
        ),
        verdict=verdict,
    )


def new_basin_chance(found: SearchState) -> float:
    """Good-Turing: basins reached once by the independent starts, over the number of these."""
    independent = found.basins[found.independent.astype(bool)]
    if not len(independent):
        return float("nan")
    counts = np.bincount(independent[independent >= 0], minlength=1)
    return float(np.sum(counts == 1) / len(independent))


@eqx.filter_jit
def _responsibilities(mixture: Mixture, points: Array) -> Array:
    return jax.lax.map(mixture.responsibilities, points, batch_size=1024)
