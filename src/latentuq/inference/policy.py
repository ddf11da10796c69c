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
        modes: The number of relevant modes.
        fitted: Whether each of them has a Gaussian.
        tried: Whether the Gaussians have been tried.
        certified: Whether the answer rests on fresh draws of them.
        khat: The shape of the tail of their weights.
        rounds: The rounds of the chains.
        weighed: The rounds after which they were weighed last.
        fresh: The draws of proposals that they were weighed against then.
        error: The standard error of ln evidence.
        ess: The effective number of draws.
        change: How far ln evidence has changed, see `change_since`.
        turns: How many independent draws a chain has made on average, of the slowest among the
            coordinates, their squares and ln p.
        shift: How far ln p has shifted along the chains, in its standard deviations.
        shift_errors: The same in standard errors.
        probed: Whether posterior draws have been followed to their modes.
    """

    spent: float = 0.0
    explored: bool = False
    searched: int = 0
    wanted: int = 1
    settled: bool = False
    modes: int = 0
    fitted: bool = False
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
    if info.modes and not info.fitted:
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
    if info.weighed and not info.ess:
        return Step.FINISH
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
    if not has_arrived(info, settings):
        return False
    covered = info.khat < settings.covering_khat
    return covered or (info.turns >= settings.turns and info.change <= settings.change)


def has_arrived(info: Info, settings: Settings) -> bool:
    """Says whether the chains have come round, and find what they found a while ago."""
    if not info.rounds:
        return True
    shifted = info.shift > settings.drift and info.shift_errors > settings.drift_errors
    # The change is infinite until there is something to compare with.
    changed = settings.largest_change < info.change < math.inf
    return info.turns >= settings.least_turns and not shifted and not changed


def next_fresh(info: Info, settings: Settings) -> int:
    """Chooses how many fresh draws the chains are weighed against: more, if these were too few."""
    if info.weighed < info.rounds:
        return settings.fresh
    return min(4 * info.fresh, settings.most_fresh)


def next_reach(reach: float, turns: float, settings: Settings) -> float:
    """Chooses how long moves are from now on: longer, if chains do not come round."""
    return min(2 * reach, settings.longest) if turns < settings.turns else reach


class Evidence(NamedTuple):
    """What came of weighing the chains after so many rounds: ln evidence and its error."""

    rounds: int
    value: float
    error: float


def change_since(before: tuple[Evidence, ...], now: Evidence, settings: Settings) -> float:
    """Computes how far ln evidence is from what it was, in standard errors.

    The largest change counts since a quarter to a half of the rounds; it is infinite if the chains
    were not weighed then.
    """
    gaps = [
        abs(now.value - then.value)
        / max(math.hypot(now.error, then.error, settings.tolerance), 1e-30)
        for then in before
        if 2 * then.rounds <= now.rounds <= 4 * then.rounds
    ]
    return max(gaps, default=math.inf)
