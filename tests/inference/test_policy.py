"""Every step is reached for a reason, and for no other."""

import dataclasses
import math

import pytest

from latentuq.inference.policy import Info, Step, decide, has_arrived
from latentuq.inference.settings import BUDGETS, Settings

SETTINGS = Settings()
FIRST, SECOND, *_, LAST = SETTINGS.rounds
MANY = SETTINGS.search_rounds
SPENT = SETTINGS.cost
HALF = SETTINGS.search_share * SPENT

# What has been measured when a step is over that went well.
EXPLORED = {"explored": True}
SEARCHED = EXPLORED | {"searched": 1, "settled": True, "modes": 1, "unfitted": 1}
FITTED = SEARCHED | {"unfitted": 0}
SUFFICIENT = {"khat": SETTINGS.gaussian_khat - 0.01, "ess": SETTINGS.fewest_draws + 1.0}
TRIED = FITTED | {"tried": True, "khat": 0.6, "ess": 2000.0, "error": 0.02}
GOOD = {"turns": SETTINGS.turns, "error": SETTINGS.wanted_error}
WEIGHED = TRIED | GOOD | {"rounds": FIRST, "weighed": FIRST}


@pytest.mark.parametrize(
    ("measured", "step"),
    [
        # The population comes first, then the search, as long as it finds something.
        ({}, Step.EXPLORE),
        (EXPLORED, Step.SEARCH),
        (SEARCHED | {"settled": False}, Step.SEARCH),
        (SEARCHED | {"settled": False, "searched": MANY - 1}, Step.SEARCH),
        (SEARCHED | {"settled": False, "searched": MANY}, Step.FIT),
        (SEARCHED | {"settled": False, "spent": HALF - 1}, Step.SEARCH),
        (SEARCHED | {"settled": False, "spent": HALF}, Step.FIT),
        # All places that a user gave are used, whatever has been found, if they can be paid.
        (SEARCHED | {"wanted": 3, "searched": 2}, Step.SEARCH),
        (SEARCHED | {"wanted": 3, "searched": 2, "spent": HALF}, Step.SEARCH),
        (SEARCHED | {"wanted": 3, "searched": 2, "spent": SPENT}, Step.FIT),
        (EXPLORED | {"wanted": 3, "spent": 2 * SPENT}, Step.SEARCH),
        (SEARCHED | {"wanted": 3, "searched": 3}, Step.FIT),
        # Gaussians are tried; without a mode there is none to fit.
        (SEARCHED, Step.FIT),
        (FITTED, Step.TRY),
        (SEARCHED | {"modes": 0, "unfitted": 0, "settled": False, "searched": MANY}, Step.TRY),
        # Where they suffice, fresh draws are the answer.
        (TRIED | SUFFICIENT, Step.CERTIFY),
        (TRIED | SUFFICIENT | {"certified": True}, Step.FINISH),
        (TRIED | SUFFICIENT | {"certified": True, "modes": 5}, Step.FINISH),
        # Else, and where the fresh draws say otherwise, chains move, whatever has been spent.
        (TRIED, Step.MOVE),
        (TRIED | SUFFICIENT | {"khat": SETTINGS.gaussian_khat}, Step.MOVE),
        (TRIED | SUFFICIENT | {"khat": math.nan}, Step.MOVE),
        (TRIED | SUFFICIENT | {"ess": float(SETTINGS.fewest_draws)}, Step.MOVE),
        (TRIED | {"certified": True}, Step.MOVE),
        (TRIED | {"spent": 2 * SPENT}, Step.MOVE),
        (TRIED | SUFFICIENT | {"rounds": 1}, Step.MOVE),
        (TRIED | {"rounds": FIRST - 1, "spent": 2 * SPENT}, Step.MOVE),
        # They are weighed after some rounds, and when nothing else can be paid.
        (TRIED | {"rounds": FIRST}, Step.WEIGH),
        (TRIED | {"rounds": SECOND - 1, "weighed": FIRST}, Step.MOVE),
        (TRIED | {"rounds": SECOND - 1, "weighed": FIRST, "spent": SPENT}, Step.WEIGH),
        (TRIED | {"rounds": SECOND, "weighed": FIRST}, Step.WEIGH),
        # Good chains end; those of several modes are followed to them first.
        (WEIGHED, Step.FINISH),
        (WEIGHED | {"modes": 2}, Step.PROBE),
        (WEIGHED | {"modes": 2, "probed": True}, Step.FINISH),
        (WEIGHED | {"modes": 2, "ess": 0.0}, Step.FINISH),
        (WEIGHED | {"modes": 0}, Step.FINISH),
        # Chains that are not good go on, for each of three reasons,
        (WEIGHED | {"turns": SETTINGS.turns - 0.1}, Step.MOVE),
        (WEIGHED | {"error": SETTINGS.wanted_error + 0.01}, Step.MOVE),
        (WEIGHED | {"error": math.nan}, Step.MOVE),
        (WEIGHED | {"shift": 0.3, "shift_errors": 5.0}, Step.MOVE),
        # until the last round or the end of the budget.
        (WEIGHED | {"error": 1.0, "spent": SPENT}, Step.FINISH),
        (WEIGHED | {"error": 1.0, "spent": SPENT, "modes": 2}, Step.PROBE),
        (WEIGHED | {"error": 1.0, "rounds": LAST, "weighed": LAST}, Step.FINISH),
        (WEIGHED | {"error": 1.0, "rounds": LAST, "weighed": LAST, "modes": 2}, Step.PROBE),
        (WEIGHED | {"error": 1.0, "rounds": LAST, "weighed": SECOND}, Step.WEIGH),
    ],
)
def test_the_next_step_follows_from_what_was_measured(measured, step):
    assert decide(Info(**measured), SETTINGS) is step


@pytest.mark.parametrize(
    ("measured", "step"),
    [
        ({}, Step.SEARCH),
        ({"searched": 1, "unfitted": 1}, Step.FIT),
        ({"searched": 1}, Step.TRY),
        ({"searched": 1, "tried": True, "khat": 2.0}, Step.FINISH),
        ({"searched": 1, "tried": True, "modes": 3} | SUFFICIENT, Step.FINISH),
    ],
)
def test_a_preview_neither_explores_nor_moves(measured, step):
    assert decide(Info(**measured), BUDGETS["preview"]) is step


@pytest.mark.parametrize("settings", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("cost", [0.0, 1e5, 1e9])
def test_every_course_ends(settings, cost):
    """Nothing is ever good enough, and each step costs the same."""
    info, steps = Info(modes=3), []
    while (step := decide(info, settings)) is not Step.FINISH:
        steps.append(step)
        after = {
            Step.EXPLORE: {"explored": True},
            Step.SEARCH: {"searched": info.searched + 1, "unfitted": 3},
            Step.FIT: {"unfitted": 0},
            Step.TRY: {"tried": True, "ess": 1.0},
            Step.CERTIFY: {"certified": True},
            Step.MOVE: {"rounds": info.rounds + 1},
            Step.WEIGH: {"weighed": info.rounds},
            Step.PROBE: {"probed": True},
        }
        info = info._replace(spent=info.spent + cost, **after[step])
        assert len(steps) < settings.search_rounds + 2 * settings.rounds[-1] + 10
    if settings.explores:
        # No answer rests on chains that were not weighed after their last round.
        assert info.weighed == info.rounds >= settings.rounds[0]
        assert steps[-1] is Step.PROBE
        # What has been paid for once the budget is spent are the steps of an answer alone.
        if cost == 1e9:
            assert info.searched == info.wanted
            assert info.rounds == settings.rounds[0]
        if cost == 0:
            assert info.searched == settings.search_rounds
            assert info.rounds == settings.rounds[-1]


@pytest.mark.parametrize(
    ("measured", "arrived"),
    [
        ({}, True),  # There are no chains.
        ({"turns": 0.1}, True),
        ({"rounds": 4, "turns": SETTINGS.least_turns}, True),
        ({"rounds": 4, "turns": SETTINGS.least_turns - 0.01}, False),
        ({"rounds": 4, "turns": math.nan}, False),
        # A shift counts if it is both large and significant.
        ({"rounds": 4, "turns": SETTINGS.turns, "shift": 0.3, "shift_errors": 5.0}, False),
        ({"rounds": 4, "turns": SETTINGS.turns, "shift": 0.3, "shift_errors": 3.0}, True),
        ({"rounds": 4, "turns": SETTINGS.turns, "shift": 0.1, "shift_errors": 50.0}, True),
    ],
)
def test_chains_have_arrived_if_they_came_round_and_do_not_shift(measured, arrived):
    assert has_arrived(Info(**measured), SETTINGS) == arrived


def test_settings_that_must_fit_each_other():
    for settings in BUDGETS.values():
        assert settings.islands * settings.chains % settings.block == 0
        assert settings.islands % 2 == 0  # Half of them are bridged to the other half.
        assert list(settings.rounds) == sorted(set(settings.rounds))
        assert settings.least_turns <= settings.turns
        assert settings.fresh % settings.islands == 0
    costs = [settings.cost for settings in BUDGETS.values()]
    assert costs == sorted(costs)
    with pytest.raises(dataclasses.FrozenInstanceError):
        SETTINGS.cost = 1.0  # pyright: ignore[reportAttributeAccessIssue]
