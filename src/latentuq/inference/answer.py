"""The last step of the inference: modes weighed and sorted, the certificate, the verdict."""

import math
import time
from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array, Float

from latentuq.core.arrays import to_device
from latentuq.inference.causes import Cause
from latentuq.inference.el2o import EL2OFit
from latentuq.inference.importance import WeightedDraws, expectation
from latentuq.inference.membership import Membership, responsibilities
from latentuq.inference.mixture import Defensive
from latentuq.inference.modes import SearchState
from latentuq.inference.policy import Info, Step, has_arrived
from latentuq.inference.result import (
    Counts,
    Diagnostics,
    Inference,
    ProbeRecord,
    Progress,
    SearchRecord,
)
from latentuq.inference.settings import Settings
from latentuq.inference.verdict import Mark, Reason, Verdict

# The stage that the time of each step belongs to.
_STAGES = {
    Step.EXPLORE: "explore",
    Step.SEARCH: "search",
    Step.FIT: "fit",
    Step.TRY: "fit",
    Step.CERTIFY: "certify",
    Step.MOVE: "move",
    Step.WEIGH: "weigh",
    Step.PROBE: "probe",
}


class Clock:
    """Times the stages and reports them."""

    def __init__(self, report: Callable[[Progress], None] | None):
        self.start = self.last = time.perf_counter()
        self.seconds: dict[str, float] = {}
        self.report = report or (lambda _: None)

    def mark(self, name: str) -> None:
        """Adds the time since the last mark to a stage."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
        self.last = now

    def tell(self, step: Step, found: SearchState, fits: dict[int, EL2OFit], info: Info) -> None:
        """Reports what a step has found."""
        name = _STAGES[step]
        if step is Step.SEARCH and found.modes:
            deepest = min(found.modes, key=lambda mode: mode.value)
            self.stage(name, "map", "The deepest mode so far.", deepest.point[None])
        elif step is Step.FIT:
            points = np.array([found.modes[index].point for index in fits])
            message = f"Modes after {len(found.values)} starts: {len(fits)}."
            self.stage(name, "modes", message, points)
        elif step in (Step.TRY, Step.WEIGH) and fits:
            means = np.array([fit.mean for fit in fits.values()])
            message = "A Gaussian has been fitted to each mode."
            if step is Step.WEIGH:
                message = f"Chains have been weighed after {info.rounds} rounds."
            self.stage(name, "fitted", message, means)
        else:
            self.mark(name)

    def stage(
        self,
        name: str,
        stage: str,
        message: str,
        modes: Float[np.ndarray | Array, "modes dim"],
        weights: Float[Array, " modes"] | None = None,
    ) -> None:
        """Marks a stage and reports what it found."""
        self.mark(name)
        self.report(Progress(stage, message, to_device(modes), weights, self.last - self.start))


def assemble(
    clock: Clock,
    proposal: Defensive,
    draws: WeightedDraws,
    membership: Membership,
    found: SearchState,
    counts: Counts,
    info: Info,
    settings: Settings,
) -> Inference:
    """Weighs the modes, heaviest first, and writes the verdict."""
    dtype, dim = draws.draws.dtype, draws.draws.shape[1]
    weights, errors = _weigh_modes(proposal, draws, membership)
    order = np.argsort(-np.nan_to_num(weights), kind="stable")
    weights, errors = weights[order], errors[order]
    # The last place is that of no mode, which the index -1 picks.
    ranks = np.append(np.argsort(order), -1)
    basins, (began, ended) = ranks[membership.basins], membership.probed
    probes = ProbeRecord(to_device(began, dtype), to_device(ranks[ended]))
    # What ended nowhere may belong to any of the modes: the spread of a uniform share.
    errors = np.hypot(errors, probes.lost / np.sqrt(12))
    starts = np.bincount(basins[basins >= 0], minlength=len(order))
    starts += np.bincount(ranks[ended][ranks[ended] >= 0], minlength=len(order))
    modes = [membership.modes[index] for index in order]
    gaussians = [membership.gaussians[index] for index in order]
    diagnostics = Diagnostics(
        khat=float(draws.khat),
        # Chains bound the weights of all draws, and the tail does not matter.
        khat_limit=math.inf if info.rounds else settings.gaussian_khat,
        ess=float(draws.ess),
        draws=len(draws.draws),
        el2o=tuple(float(gaussian.value) for gaussian in gaussians),
        missed_mass=float(np.sum(np.nan_to_num(weights)[starts <= 1])),
        new_basin_chance=found.new_basin_chance,
        rounds=info.rounds,
        turns=info.turns if info.rounds else math.inf,
        drift=info.shift,
        counts=counts,
        forward_equivalents=counts.forward_equivalents(dim),
        seconds=clock.seconds,
    )
    computed = judge_computation(
        diagnostics,
        settings,
        evidence_error=float(draws.log_evidence_error),
        starts=len(found.values),
        found_mode=membership.minima,
        lost=probes.lost,
        settled=has_arrived(info, settings),
        change=info.change,
    )
    points = to_device(np.array([mode.point for mode in modes]), dtype)
    clock.stage("certify", "certified", computed.sentence, points, to_device(weights, dtype))
    return Inference(
        modes=points,
        log_densities=to_device([-mode.value for mode in modes], dtype),
        weights=to_device(weights, dtype),
        weight_errors=to_device(errors, dtype),
        means=to_device(np.array([gaussian.mean for gaussian in gaussians]), dtype),
        factors=to_device(np.array([gaussian.factor for gaussian in gaussians]), dtype),
        proposal=proposal,
        membership=to_device(membership.shares[:, order], dtype),
        draws=jax.tree.map(to_device, draws),
        search=SearchRecord(
            to_device(-found.values, dtype), to_device(basins), to_device(found.independent)
        ),
        probes=probes,
        diagnostics=diagnostics,
        verdict=Verdict(computed),
    )


def _weigh_modes(
    proposal: Defensive, draws: WeightedDraws, membership: Membership
) -> tuple[Float[np.ndarray, " modes"], Float[np.ndarray, " modes"]]:
    """Computes the posterior mass of each mode and its standard error."""
    by_component = responsibilities(proposal.mixture, np.asarray(draws.draws))
    shares = membership.shares
    weights, errors = expectation(by_component @ shares, draws.log_weights, draws.groups)
    masses, _ = expectation(by_component, draws.log_weights)
    # Shares that were counted on probes carry the error of that count: of a count that agrees on
    # one mode, too, unless it is exact.
    probes = membership.probes[:, None]
    known = np.isinf(probes)
    number = np.where(known, 1, probes)
    smooth = np.where(known, shares, (number * shares + 1 / shares.shape[1]) / (number + 1))
    counting = (masses**2) @ (smooth * (1 - smooth) / probes)
    return weights, np.sqrt(errors**2 + np.maximum(counting, 0))


def judge_computation(
    diagnostics: Diagnostics,
    settings: Settings,
    *,
    evidence_error: float,
    starts: int,
    found_mode: bool,
    lost: float,
    settled: bool = True,
    change: float = 0.0,
) -> Mark:
    """Makes the mark `computed`: is this the posterior?

    Args:
        diagnostics: The numbers of the certificate.
        settings: The limits.
        evidence_error: The standard error of ln evidence.
        starts: The number of starts of the search.
        found_mode: Whether the search found a mode at all.
        lost: The share of the posterior draws that were followed and ended in no mode.
        settled: Whether the chains had arrived.
        change: How far ln evidence had changed, in standard errors.
    """
    khat, limit, ess = diagnostics.khat, diagnostics.khat_limit, diagnostics.ess
    missed = {"missed_mass": diagnostics.missed_mass, "starts": starts}
    if ess == 0 or not math.isfinite(ess):
        return Mark((Reason(Cause.DENSITY_ZERO),))
    if not found_mode:
        return Mark((Reason(Cause.NO_MODE, {"starts": starts}),))
    reasons = []
    if not khat <= limit:
        # A tail that could not be fitted may be as heavy as any.
        tail = {"khat": math.inf if math.isnan(khat) else khat, "limit": limit}
        reasons.append(Reason(Cause.PREVIEW_ONLY, tail))
    if ess < settings.fewest_draws:
        reasons.append(Reason(Cause.FEW_DRAWS, {"ess": ess, "limit": settings.fewest_draws}))
    if not evidence_error <= settings.largest_error:
        error = {"error": evidence_error, "limit": settings.largest_error}
        reasons.append(Reason(Cause.EVIDENCE_UNCERTAIN, error))
    if not settled:
        found = {"turns": diagnostics.turns, "least": settings.least_turns}
        found |= {"drift": diagnostics.drift, "limit": settings.drift}
        found |= {"change": change, "most": settings.largest_change}
        reasons.append(Reason(Cause.UNSETTLED, found | {"rounds": diagnostics.rounds}))
    if lost > settings.most_lost:
        reasons.append(Reason(Cause.DRAWS_LOST, {"lost": lost, "limit": settings.most_lost}))
    if diagnostics.missed_mass > settings.most_missed:
        reasons.append(Reason(Cause.MODES_MISSED, missed | {"limit": settings.most_missed}))
    confirmed = {"ess": ess, "error": evidence_error} | missed
    if diagnostics.rounds:
        good = Reason(Cause.AGREED, confirmed | {"turns": diagnostics.turns})
    else:
        good = Reason(Cause.CONFIRMED, confirmed | {"khat": khat, "limit": limit})
    return Mark(tuple(reasons) or (good,))
