"""The certificate in words."""

import math
from typing import NamedTuple


class Evidence(NamedTuple):
    """What the verdict rests on.

    Attributes:
        khat: Of the fresh draws.
        threshold: What it must not exceed.
        ess: Effective number of draws.
        evidence_error: Of ln evidence.
        starts: Of the search.
        minimum: Whether the search found a minimum at all.
        missed_mass: Estimated mass of modes that were not found.
        lost: Share of the posterior draws that were followed and ended in no mode.
        climbs: Refinements of the proposal.
        preview: Whether refining was not allowed.
    """

    khat: float
    threshold: float
    ess: float
    evidence_error: float
    starts: int
    minimum: bool
    missed_mass: float
    lost: float
    climbs: int
    preview: bool


_FEWEST = 100
_MOST_MISSED = 0.05
_LARGEST_ERROR = 0.5

MOST_LOST = 0.25
"""Share of the posterior draws that were followed which may end in no mode."""


def give_verdict(evidence: Evidence) -> str:
    """One of "reliable", "refined" and "unreliable", then one sentence why."""
    e = evidence
    if e.ess == 0 or not math.isfinite(e.ess):
        return "unreliable: the density is zero or not a number wherever it was evaluated."
    if not e.minimum:
        return f"unreliable: none of {e.starts} starts ended in a mode within reach."
    if not e.khat <= e.threshold:
        hint = (
            "this is a preview without refinement"
            if e.preview
            else f"{e.climbs} refinements did not help; the budget 'thorough' tries more"
        )
        return (
            f"unreliable: the importance weights have a heavy tail (k-hat {e.khat:.2f}, limit"
            f" {e.threshold:.2f}), and {hint}."
        )
    if e.ess < _FEWEST:
        return f"unreliable: the draws are worth only {e.ess:.0f} independent ones."
    if e.evidence_error > _LARGEST_ERROR:
        return f"unreliable: ln evidence is uncertain by {e.evidence_error:.1f}."
    if e.lost > MOST_LOST:
        return (
            f"unreliable: {e.lost:.0%} of the posterior draws that were followed ended in no mode,"
            " as where a density has kinks; evidence and draws hold, the weights of the modes may"
            " not."
        )
    if e.missed_mass > _MOST_MISSED:
        return (
            f"unreliable: {e.missed_mass:.0%} of the mass lies in modes that at most one of"
            f" {e.starts} starts found, so others may have been missed."
        )
    refinements = "1 refinement" if e.climbs == 1 else f"{e.climbs} refinements"
    quality = (
        f"k-hat {e.khat:.2f} of fresh draws is below {e.threshold:.2f}, they are worth"
        f" {e.ess:.0f} independent ones, and the mass in modes that at most one of"
        f" {e.starts} starts found is {e.missed_mass:.1%}."
    )
    if e.climbs:
        return f"refined: Gaussians did not suffice, but after {refinements} {quality}"
    return f"reliable: {quality}"
