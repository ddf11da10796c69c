"""The last step of the inference: modes weighed and sorted, the certificate, the verdict."""

import time
from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array, Float

from latentuq.core.arrays import to_device
from latentuq.inference.importance import WeightedDraws, khat_threshold, mode_weights
from latentuq.inference.membership import Membership, responsibilities
from latentuq.inference.mixture import Defensive
from latentuq.inference.modes import SearchState
from latentuq.inference.result import (
    Counts,
    Diagnostics,
    Inference,
    ProbeRecord,
    Progress,
    SearchRecord,
)
from latentuq.inference.verdict import Measurements, Verdict, judge_computation

GAUSSIAN_KHAT = 0.3
"""Above it Gaussians were seen to miss up to 30 % of the mass, in tails that no draw reached."""


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
    found: SearchState,
    proposal: Defensive,
    draws: WeightedDraws,
    membership: Membership,
    *,
    climbs: int,
    counts: Counts,
    preview: bool,
) -> Inference:
    """Weighs the modes, heaviest first, and writes the verdict."""
    dtype = draws.draws.dtype
    weights, errors = weigh(proposal, draws, membership)
    order = np.argsort(-np.nan_to_num(weights), kind="stable")
    weights, errors = weights[order], errors[order]
    # The last place is that of no mode, which the index -1 picks.
    ranks = np.append(np.argsort(order), -1)
    basins, (began, ended) = ranks[membership.basins], membership.probed
    probes = ProbeRecord(to_device(began, dtype), to_device(ranks[ended]))
    # What ended nowhere may belong to any of the modes: the spread of a uniform share.
    errors = np.hypot(errors, probes.lost / np.sqrt(12))
    starts = np.bincount(basins[basins >= 0], minlength=len(order))
    missed = float(np.sum(np.nan_to_num(weights)[starts <= 1]))
    khat_limit = GAUSSIAN_KHAT if preview else khat_threshold(len(draws.draws))
    measured = Measurements(
        khat=float(draws.khat),
        khat_limit=khat_limit,
        ess=float(draws.ess),
        evidence_error=float(draws.log_evidence_error),
        starts=len(found.values),
        found_mode=membership.minima,
        missed_mass=missed,
        lost=probes.lost,
        rounds=climbs,
        preview=preview,
    )
    verdict = Verdict(judge_computation(measured))
    modes = [membership.modes[index] for index in order]
    points = to_device(np.array([mode.point for mode in modes]), dtype)
    clock.stage("certify", "certified", str(verdict), points, to_device(weights, dtype))
    return Inference(
        modes=points,
        log_densities=to_device([-mode.value for mode in modes], dtype),
        weights=to_device(weights, dtype),
        weight_errors=to_device(errors, dtype),
        means=to_device(membership.means[order], dtype),
        factors=to_device(membership.factors[order], dtype),
        proposal=proposal,
        membership=to_device(membership.shares[:, order], dtype),
        draws=jax.tree.map(to_device, draws),
        search=SearchRecord(
            to_device(-found.values, dtype), to_device(basins), to_device(found.independent)
        ),
        probes=probes,
        diagnostics=Diagnostics(
            khat=float(draws.khat),
            khat_limit=khat_limit,
            ess=float(draws.ess),
            draws=len(draws.draws),
            el2o=tuple(membership.el2o[index] for index in order),
            missed_mass=missed,
            new_basin_chance=found.new_basin_chance,
            rounds=climbs,
            counts=counts,
            forward_equivalents=counts.forward_equivalents(proposal.mixture.dim),
            seconds=dict(clock.seconds),
        ),
        verdict=verdict,
    )


def weigh(
    proposal: Defensive, draws: WeightedDraws, membership: Membership
) -> tuple[Float[np.ndarray, " modes"], Float[np.ndarray, " modes"]]:
    """Computes the posterior mass of each mode and its standard error."""
    by_component = responsibilities(proposal.mixture, np.asarray(draws.draws))
    shares = membership.shares
    weights, errors = mode_weights(draws, by_component @ shares)
    masses, _ = mode_weights(draws, by_component)
    # Shares that were counted on probes carry the error of that count: of a count that agrees on
    # one mode, too, unless it is exact.
    probes = membership.probes[:, None]
    known = np.isinf(probes)
    number = np.where(known, 1, probes)
    smooth = np.where(known, shares, (number * shares + 1 / shares.shape[1]) / (number + 1))
    counting = (masses**2) @ (smooth * (1 - smooth) / probes)
    return weights, np.sqrt(errors**2 + np.maximum(counting, 0))
