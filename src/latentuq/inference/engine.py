"""The whole inference: a loop of steps, each chosen by what has been measured so far."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.core.cores import one_core
from latentuq.core.randomness import host_generator
from latentuq.inference.answer import Clock, assemble
from latentuq.inference.chains import Chains, advance, begin, drift, efficiencies
from latentuq.inference.el2o import EL2OFit
from latentuq.inference.gaussians import divide, fit_modes, join
from latentuq.inference.importance import WeightedDraws, importance_sample
from latentuq.inference.membership import assign
from latentuq.inference.mixture import Defensive
from latentuq.inference.modes import Probes, SearchState, empty_search
from latentuq.inference.policy import (
    Evidence,
    Info,
    Step,
    change_since,
    decide,
    next_fresh,
    next_reach,
)
from latentuq.inference.population import Population, explore
from latentuq.inference.result import Inference, Progress
from latentuq.inference.search import ROUND_STARTS, is_settled, probe, relevant_modes, search
from latentuq.inference.settings import BUDGETS, FAMILIAR_BUDGETS, Settings, check_budget
from latentuq.inference.sweep import sweep
from latentuq.inference.target import CHUNK, Counts, Target, may_wait
from latentuq.inference.weighing import weigh_chains


class State(NamedTuple):
    """What the next step needs.

    Attributes:
        starts: Places that a user gave; the population joins them.
        fits: A Gaussian for each relevant mode, by the mode's index, the heaviest first.
        counts: The evaluations so far, without those of the search.
        found: What the search knows.
        population: The particles that have come from the reference.
        chains: The chains on the density.
        proposal: The mixture of the Gaussians.
        draws: The latest draws with their weights.
        evidences: What came of each weighing of the chains.
        probes: Posterior draws that have been followed to their modes.
    """

    starts: Float[np.ndarray, "n dim"]
    fits: dict[int, EL2OFit]
    counts: Counts = Counts()
    found: SearchState = empty_search()
    population: Population | None = None
    chains: Chains | None = None
    proposal: Defensive | None = None
    draws: WeightedDraws | None = None
    evidences: tuple[Evidence, ...] = ()
    probes: Probes | None = None

    @property
    def spent(self) -> Counts:
        """All evaluations so far."""
        found = self.found if self.probes is None else self.probes.state
        return self.counts + found.counts


def infer(
    key: Key[Array, ""],
    target: Target,
    *,
    budget: str = "default",
    starts: Float[np.ndarray, "n dim"] | None = None,
    known_kind: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Inference:
    """Finds the modes of a density, weighs them, draws from it, and says how far to trust that.

    The budget is one of `BUDGETS`, `starts` are places that the search shall begin from as well,
    `known_kind` says that densities of this kind have been measured, see `FAMILIAR_BUDGETS`, and
    `progress` is called after each stage.
    """
    check_budget(budget)
    settings, clock = (FAMILIAR_BUDGETS if known_kind else BUDGETS)[budget], Clock(progress)
    given = np.zeros((0, target.dim)) if starts is None else starts
    state, info = State(given, {}), Info(wanted=-(-2 * len(given) // ROUND_STARTS) or 1)
    with one_core(may_wait(target)):
        number = 0
        while (step := decide(info, settings)) is not Step.FINISH:
            state, info = _STEPS[step](
                jax.random.fold_in(key, number), target, state, info, settings
            )
            info = info._replace(spent=state.spent.forward_equivalents(target.dim))
            clock.tell(step, state.found, state.fits, info)
            number += 1
        assert state.proposal is not None
        assert state.draws is not None
        membership = assign(
            target, state.found, state.fits, state.proposal, state.draws, state.probes
        )
        return assemble(
            clock,
            state.proposal,
            state.draws,
            membership,
            state.found,
            state.spent,
            info,
            settings,
        )


def _explore(
    key: Key[Array, ""], target: Target, state: State, info: Info, settings: Settings
) -> tuple[State, Info]:
    population = explore(key, target, settings)
    rng, last = host_generator(key), population.points.reshape(-1, target.dim)
    likely = [rng.choice(each, len(last)) for each in (last, population.before) if len(each)]
    state = state._replace(
        population=population,
        starts=np.concatenate([state.starts, np.stack(likely, axis=1).reshape(-1, target.dim)]),
        counts=state.counts + population.counts,
    )
    return state, info._replace(explored=True)


def _search(
    key: Key[Array, ""], target: Target, state: State, info: Info, settings: Settings
) -> tuple[State, Info]:
    found = state.found
    if settings.sweep:
        likely = state.starts if not info.searched else state.starts[:0]
        found = sweep(key, target, found, likely, settings.sweep)
    found = search(jax.random.fold_in(key, 1), target, found, state.starts, info.searched)
    order = relevant_modes(found, settings)
    return state._replace(found=found), info._replace(
        searched=info.searched + 1,
        settled=is_settled(found, settings),
        modes=len(order),
    )


def _fit(
    key: Key[Array, ""], target: Target, state: State, info: Info, settings: Settings
) -> tuple[State, Info]:
    order = relevant_modes(state.found, settings)
    fits, counts = fit_modes(key, target, state.found, order)
    fits = dict(sorted(fits.items(), key=lambda item: -float(item[1].log_mass)))
    return state._replace(fits=fits, counts=state.counts + counts), info._replace(fitted=True)


def _try(
    key: Key[Array, ""], target: Target, state: State, info: Info, settings: Settings
) -> tuple[State, Info]:
    proposal = join(target, list(state.fits.values()))
    state = state._replace(proposal=proposal)
    return _drawn(key, target, state, info._replace(tried=True), settings.gaussian_draws)


def _certify(
    key: Key[Array, ""], target: Target, state: State, info: Info, settings: Settings
) -> tuple[State, Info]:
    wanted = max(settings.worth * settings.gaussian_draws / info.ess, 2 * settings.gaussian_draws)
    number = min(-(-int(wanted) // CHUNK) * CHUNK, settings.certified)
    return _drawn(key, target, state, info._replace(certified=True), number)


def _drawn(
    key: Key[Array, ""], target: Target, state: State, info: Info, number: int
) -> tuple[State, Info]:
    """Draws from the proposal and weighs the draws."""
    assert state.proposal is not None
    draws = importance_sample(key, target.log_density, state.proposal, number)
    state = state._replace(draws=draws, counts=state.counts + Counts(forwards=number))
    return state, info._replace(**_measured(draws))


def _measured(draws: WeightedDraws) -> dict[str, float]:
    return {
        "khat": float(draws.khat),
        "ess": float(draws.ess),
        "error": float(draws.log_evidence_error),
    }


def _move(
    key: Key[Array, ""], target: Target, state: State, info: Info, settings: Settings
) -> tuple[State, Info]:
    begin_key, advance_key = jax.random.split(key)
    chains, spent = state.chains, Counts()
    if chains is None:
        assert state.population is not None
        assert state.proposal is not None
        chains, spent = begin(
            begin_key,
            target,
            divide(target, list(state.fits.values())),
            state.population.points,
            state.population.log_step,
            state.proposal,
            settings,
        )
    chains, counts = advance(advance_key, target, chains, settings)
    state = state._replace(chains=chains, counts=state.counts + spent + counts)
    return state, info._replace(rounds=chains.rounds)


def _weigh(
    key: Key[Array, ""], target: Target, state: State, info: Info, settings: Settings
) -> tuple[State, Info]:
    chains = state.chains
    assert chains is not None
    fresh = next_fresh(info, settings)
    worth = efficiencies(chains)
    weighed = weigh_chains(key, target, chains, fresh, float(np.median(worth)), settings)
    evidence = Evidence(
        info.rounds, float(weighed.draws.log_evidence), float(weighed.draws.log_evidence_error)
    )
    shift, shift_errors = drift(chains)
    turns = float(np.min(worth)) * chains.settled.points.shape[2]
    reach = next_reach(chains.reach, turns, settings)
    state = state._replace(
        chains=chains._replace(reach=reach, proposals=weighed.proposals),
        draws=weighed.draws,
        evidences=(*state.evidences, evidence),
        counts=state.counts + weighed.counts,
    )
    return state, info._replace(
        weighed=info.rounds,
        fresh=fresh,
        change=change_since(state.evidences, evidence, settings),
        turns=turns,
        shift=shift,
        shift_errors=shift_errors,
        **_measured(weighed.draws),
    )


def _probe(
    key: Key[Array, ""], target: Target, state: State, info: Info, settings: Settings
) -> tuple[State, Info]:
    assert state.draws is not None
    probes = probe(key, target, state.found, state.draws, settings.probes)
    return state._replace(probes=probes), info._replace(probed=True)


_STEPS: dict[Step, Callable[..., tuple[State, Info]]] = {
    Step.EXPLORE: _explore,
    Step.SEARCH: _search,
    Step.FIT: _fit,
    Step.TRY: _try,
    Step.CERTIFY: _certify,
    Step.MOVE: _move,
    Step.WEIGH: _weigh,
    Step.PROBE: _probe,
}
