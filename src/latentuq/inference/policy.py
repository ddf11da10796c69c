"""What to do next: a pure function of what has been measured and of the settings."""

import enum
import math
from typing import NamedTuple

from latentuq.inference.settings import Settings


class Step(enum.Enum):
    """The steps of an inference."""

    EXPLORE = "lead particles from the reference to the density"
    SEARCH = "descend to modes from one more round of starts"
    FIT = "fit a Gaussian to each relevant mode"
    TRY = "draw from the Gaussians, to see whether they suffice"
    CERTIFY = "draw from the Gaussians afresh, for the answer"
    MOVE = "move the chains by one round"
    WEIGH = "weigh the chains by bridge sampling"
    PROBE = "descend from posterior draws, to weigh the modes"
    FINISH = "give the answer"


class Info(NamedTuple):
    """What has been measured so far.

    Attributes:
        spent: The cost of all evaluations, in forward equivalents.
        explored: Whether the population has been made.
        searched: The number of rounds of the search.
        wanted: The number of rounds that it takes to use all starts that a user gave.
        settled: Whether another round is unlikely to find a new mode of relevant mass.
        unfitted: The number of relevant modes without a Gaussian.
        modes: The number of relevant modes.
        tried: Whether the Gaussians have been tried.
        certified: Whether the answer rests on fresh draws of them.
        khat: The shape of the tail of their weights.
        rounds: The rounds of the chains.
        weighed: The rounds after which they were weighed last.
        fresh: The draws of proposals that they were weighed against then.
        error: The standard error of ln evidence.
        ess: The effective number of draws.
        change: How far ln evidence has changed since half as many rounds, in standard errors.
        turns: The number of independent draws that a chain has made, of the slowest coordinate.
        shift: How far ln p has shifted along the chains, in its standard deviations.
        shift_errors: The same in standard errors.
        probed: Whether posterior draws have been followed to their modes.
    """

    spent: float = 0.0
    explored: bool = False
    searched: int = 0
    wanted: int = 1
    settled: bool = False
    unfitted: int = 0
    modes: int = 0
    tried: bool = False
    certified: bool = False
    khat: float = math.inf
    rounds: int = 0
    weighed: int = 0
    fresh: int = 0
    error: float = math.inf
    ess: float = 0.0
    change: float = math.inf
    turns: float = 0.0
    shift: float = 0.0
    shift_errors: float = 0.0
    probed: bool = False


def decide(info: Info, settings: Settings) -> Step:
    """Chooses the next step."""
    affordable = info.spent < settings.cost
    if settings.explores and not info.explored:
        return Step.EXPLORE
    if not info.searched or (info.searched < info.wanted and affordable):
        return Step.SEARCH
    searching = info.spent < settings.search_share * settings.cost
    if not info.settled and info.searched < settings.search_rounds and searching:
        return Step.SEARCH
    if info.unfitted:
        return Step.FIT
    if not info.tried:
        return Step.TRY
    if not settings.explores:
        return Step.FINISH
    if not info.rounds and _gaussians_suffice(info, settings):
        return Step.FINISH if info.certified else Step.CERTIFY
    if info.rounds < settings.rounds[0]:
        return Step.MOVE
    if info.weighed < info.rounds and (info.rounds in settings.rounds or not affordable):
        return Step.WEIGH
    if info.weighed == info.rounds and not affordable:
        return _last(info)
    if info.weighed == info.rounds and _have_come_round(info, settings):
        if info.error <= settings.wanted_error:
            return _last(info)
        if info.fresh < settings.most_fresh:  # Draws of proposals cost far less than chains.
            return Step.WEIGH
    return _last(info) if info.rounds >= settings.rounds[-1] else Step.MOVE


def _last(info: Info) -> Step:
    return Step.PROBE if info.modes > 1 and not info.probed and info.ess else Step.FINISH


def _gaussians_suffice(info: Info, settings: Settings) -> bool:
    return info.khat < settings.gaussian_khat and info.ess > settings.fewest_draws


def _have_come_round(info: Info, settings: Settings) -> bool:
    """Says whether the chains have, and nothing that they had not seen was found since."""
    complete = info.change <= settings.change or info.khat < settings.covering_khat
    return info.turns >= settings.turns and has_arrived(info, settings) and complete


def has_arrived(info: Info, settings: Settings) -> bool:
    """Says whether the chains have come round, and are where they were a while ago."""
    shifted = info.shift > settings.drift and info.shift_errors > settings.drift_errors
    return not info.rounds or (info.turns >= settings.least_turns and not shifted)
