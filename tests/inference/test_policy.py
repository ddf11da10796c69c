"""Every step is reached for a reason, and for no other."""

import dataclasses
import itertools
import math

import pytest

from latentuq.inference.policy import (
    Evidence,
    Info,
    Step,
    change_since,
    decide,
    has_arrived,
    next_fresh,
    next_reach,
)
from latentuq.inference.settings import BUDGETS, FAMILIAR_BUDGETS, Settings

SETTINGS = Settings()
FAMILIES = {"any": BUDGETS["default"], "familiar": FAMILIAR_BUDGETS["default"]}
ALL = [*BUDGETS.values(), *FAMILIAR_BUDGETS.values()]
NAMES = [f"{family} {budget}" for family in FAMILIES for budget in BUDGETS]


def courses(settings):
    """What has been measured, and the step that follows."""
    first, last, many = settings.rounds[0], settings.rounds[-1], settings.search_rounds
    # Chains were weighed some rounds ago, and shall be again after more than one other.
    early, late = next(
        pair for pair in itertools.pairwise(settings.rounds) if pair[1] > pair[0] + 1
    )
    spent, half = settings.cost, settings.search_share * settings.cost
    # What has been measured when a step is over that went well.
    explored = {"explored": True}
    searched = explored | {"searched": 1, "settled": True, "modes": 1}
    fitted = searched | {"fitted": True}
    sufficient = {"khat": settings.gaussian_khat - 0.01, "ess": settings.fewest_draws + 1.0}
    tried = fitted | {"tried": True, "khat": 0.9, "ess": 2000.0, "error": 0.02}
    good = {"turns": settings.turns, "error": settings.wanted_error, "change": settings.change}
    weighed = tried | good | {"rounds": first, "weighed": first, "fresh": settings.fresh}
    uncertain = {"error": settings.wanted_error + 0.01}
    most = {"fresh": settings.most_fresh}
    lasting = {"rounds": last, "weighed": last}
    return [
        # The population comes first, then the search, as long as it finds something.
        ({}, Step.EXPLORE),
        (explored, Step.SEARCH),
        (searched | {"settled": False}, Step.SEARCH),
        (searched | {"settled": False, "searched": many - 1}, Step.SEARCH),
        (searched | {"settled": False, "searched": many}, Step.FIT),
        (searched | {"settled": False, "spent": half - 1}, Step.SEARCH),
        (searched | {"settled": False, "spent": half}, Step.FIT),
        # All places that a user gave are used, whatever has been found, if they can be paid.
        (searched | {"wanted": 3, "searched": 2}, Step.SEARCH),
        (searched | {"wanted": 3, "searched": 2, "spent": half}, Step.SEARCH),
        (searched | {"wanted": 3, "searched": 2, "spent": spent}, Step.FIT),
        (explored | {"wanted": 3, "spent": 2 * spent}, Step.SEARCH),
        (searched | {"wanted": 3, "searched": 3}, Step.FIT),
        # Gaussians are tried; without a mode there is none to fit.
        (searched, Step.FIT),
        (fitted, Step.TRY),
        (searched | {"modes": 0, "settled": False, "searched": many}, Step.TRY),
        # Where they suffice, fresh draws are the answer.
        (tried | sufficient, Step.CERTIFY),
        (tried | sufficient | {"khat": -math.inf}, Step.CERTIFY),
        (tried | sufficient | {"certified": True}, Step.FINISH),
        (tried | sufficient | {"certified": True, "modes": 5}, Step.FINISH),
        # Else, and where the fresh draws say otherwise, chains move, whatever has been spent.
        (tried, Step.MOVE),
        (tried | sufficient | {"khat": settings.gaussian_khat}, Step.MOVE),
        (tried | sufficient | {"khat": math.nan}, Step.MOVE),
        (tried | sufficient | {"ess": float(settings.fewest_draws)}, Step.MOVE),
        (tried | {"certified": True}, Step.MOVE),
        (tried | {"spent": 2 * spent}, Step.MOVE),
        (tried | sufficient | {"rounds": 1}, Step.MOVE),
        (tried | {"rounds": first - 1, "spent": 2 * spent}, Step.MOVE),
        # They are weighed after some rounds, and when nothing else can be paid.
        (tried | {"rounds": first}, Step.WEIGH),
        (tried | {"rounds": late - 1, "weighed": early}, Step.MOVE),
        (tried | {"rounds": late - 1, "weighed": early, "spent": spent}, Step.WEIGH),
        (tried | {"rounds": late, "weighed": early}, Step.WEIGH),
        (tried | good | {"rounds": late - 1, "weighed": early}, Step.MOVE),
        # Good chains end; those of several modes are followed to them first.
        (weighed, Step.FINISH),
        (weighed | {"modes": 2}, Step.PROBE),
        (weighed | {"modes": 2, "probed": True}, Step.FINISH),
        # Where the density is nowhere there is nothing to wait for.
        (weighed | {"modes": 2, "ess": 0.0}, Step.FINISH),
        (weighed | uncertain | {"ess": 0.0, "turns": 0.1, "change": math.inf}, Step.FINISH),
        (tried | {"ess": 0.0}, Step.MOVE),
        (tried | {"ess": 0.0, "rounds": first}, Step.WEIGH),
        (weighed | {"modes": 0}, Step.FINISH),
        # Those that have come round but tell the evidence badly are weighed against more draws of
        # proposals, as long as these may grow and can be paid;
        (weighed | uncertain, Step.WEIGH),
        (weighed | uncertain | lasting, Step.WEIGH),
        (weighed | {"error": math.nan}, Step.WEIGH),
        (weighed | uncertain | {"fresh": settings.most_fresh - 1}, Step.WEIGH),
        (weighed | uncertain | most, Step.MOVE),
        (weighed | {"error": math.nan} | most, Step.MOVE),
        (weighed | uncertain | {"spent": spent}, Step.FINISH),
        # others go on, for each of three reasons,
        (weighed | {"turns": settings.turns - 0.1}, Step.MOVE),
        (weighed | {"turns": math.nan}, Step.MOVE),
        (weighed | {"shift": 0.3, "shift_errors": 5.0}, Step.MOVE),
        (weighed | {"change": settings.change + 0.1}, Step.MOVE),
        (weighed | {"change": math.inf}, Step.MOVE),
        (weighed | {"change": math.nan}, Step.MOVE),
        (weighed | uncertain | {"change": math.inf}, Step.MOVE),
        # unless proposals are known to cover the density,
        (weighed | {"change": math.inf, "khat": settings.covering_khat}, Step.MOVE),
        # until the last round or the end of the budget.
        (weighed | {"turns": 0.1, "spent": spent}, Step.FINISH),
        (weighed | {"change": math.inf, "spent": spent}, Step.FINISH),
        (weighed | {"error": 1.0, "spent": spent, "modes": 2}, Step.PROBE),
        (weighed | {"turns": 0.1} | lasting, Step.FINISH),
        (weighed | {"change": math.inf} | lasting, Step.FINISH),
        (weighed | {"error": 1.0} | most | lasting, Step.FINISH),
        (weighed | {"error": 1.0, "modes": 2} | most | lasting, Step.PROBE),
        (weighed | {"error": 1.0, "rounds": last, "weighed": early}, Step.WEIGH),
    ]


@pytest.mark.parametrize(
    ("settings", "measured", "step"),
    [
        pytest.param(settings, *course, id=f"{name} {number} {course[1].name}")
        for name, settings in FAMILIES.items()
        for number, course in enumerate(courses(settings))
    ],
)
def test_the_next_step_follows_from_what_was_measured(settings, measured, step):
    assert decide(Info(**measured), settings) is step


@pytest.mark.parametrize(
    ("name", "turns", "step"),
    [
        ("any", SETTINGS.turns, Step.MOVE),
        ("any", SETTINGS.least_turns, Step.MOVE),
        # Then few independent draws will do, but not fewer than an answer needs.
        ("familiar", FAMILIES["familiar"].turns, Step.FINISH),
        ("familiar", FAMILIES["familiar"].least_turns, Step.FINISH),
        ("familiar", FAMILIES["familiar"].least_turns - 0.1, Step.MOVE),
    ],
)
def test_proposals_cover_only_what_they_are_known_to_cover(name, turns, step):
    """Those of a few regions fit the part of a banana that chains have seen perfectly."""
    settings = FAMILIES[name]
    info = Info(
        explored=True,
        searched=1,
        settled=True,
        modes=1,
        fitted=True,
        tried=True,
        khat=-5.0,
        ess=2000.0,
        error=settings.wanted_error,
        rounds=settings.rounds[0],
        weighed=settings.rounds[0],
        fresh=settings.fresh,
        turns=turns,
        change=math.inf,
    )
    assert decide(info, settings) is step


SUFFICIENT = {"khat": SETTINGS.gaussian_khat - 0.01, "ess": SETTINGS.fewest_draws + 1.0}


@pytest.mark.parametrize(
    ("measured", "step"),
    [
        ({}, Step.SEARCH),
        ({"searched": 1, "modes": 1}, Step.FIT),
        ({"searched": 1}, Step.TRY),
        ({"searched": 1, "tried": True, "khat": 2.0}, Step.FINISH),
        ({"searched": 1, "modes": 1, "fitted": True}, Step.TRY),
        ({"searched": 1, "tried": True, "modes": 3, "fitted": True} | SUFFICIENT, Step.FINISH),
    ],
)
def test_a_preview_neither_explores_nor_moves(measured, step):
    for family in (BUDGETS, FAMILIAR_BUDGETS):
        assert decide(Info(**measured), family["preview"]) is step


@pytest.mark.parametrize("settings", ALL, ids=NAMES)
@pytest.mark.parametrize("cost", [0.0, 1e5, 1e9])
@pytest.mark.parametrize("turns", [0.0, math.inf])
def test_every_course_ends(settings, cost, turns):
    """Nothing is ever good enough, whether chains come round or not, and steps cost the same."""
    info, steps = Info(modes=3), []
    while (step := decide(info, settings)) is not Step.FINISH:
        steps.append(step)
        fresh = next_fresh(info, settings)
        after = {
            Step.EXPLORE: {"explored": True},
            Step.SEARCH: {"searched": info.searched + 1, "modes": 3},
            Step.FIT: {"fitted": True},
            Step.TRY: {"tried": True, "ess": 1.0},
            Step.CERTIFY: {"certified": True},
            Step.MOVE: {"rounds": info.rounds + 1},
            Step.WEIGH: {"weighed": info.rounds, "fresh": fresh, "turns": turns, "change": 0.0},
            Step.PROBE: {"probed": True},
        }
        info = info._replace(spent=info.spent + cost, **after[step])
        # Two weighings at most after the same rounds: most draws are four times the first ones.
        most = settings.search_rounds + settings.rounds[-1] + 2 * len(settings.rounds) + 10
        assert len(steps) < most
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
        # So does a change of ln evidence, as soon as there is something to compare with.
        ({"rounds": 4, "turns": SETTINGS.turns, "change": SETTINGS.largest_change}, True),
        ({"rounds": 4, "turns": SETTINGS.turns, "change": SETTINGS.largest_change + 0.1}, False),
        ({"rounds": 4, "turns": SETTINGS.turns, "change": math.inf}, True),
        ({"change": SETTINGS.largest_change + 0.1}, True),
    ],
)
def test_chains_have_arrived_if_they_came_round_and_neither_shift_nor_change(measured, arrived):
    assert has_arrived(Info(**measured), SETTINGS) == arrived


@pytest.mark.parametrize(
    ("rounds", "weighed", "before", "fresh"),
    [
        (2, 0, 0, SETTINGS.fresh),
        (3, 2, SETTINGS.most_fresh, SETTINGS.fresh),
        (3, 3, 8, 32),
        (3, 3, SETTINGS.most_fresh // 4, SETTINGS.most_fresh),
        (3, 3, SETTINGS.most_fresh // 2, SETTINGS.most_fresh),
    ],
)
def test_the_same_rounds_are_weighed_against_more_draws(rounds, weighed, before, fresh):
    assert next_fresh(Info(rounds=rounds, weighed=weighed, fresh=before), SETTINGS) == fresh


@pytest.mark.parametrize(
    ("reach", "turns", "after"),
    [
        (1.0, SETTINGS.turns - 0.1, 2.0),
        (1.0, SETTINGS.turns, 1.0),
        (2.0, SETTINGS.turns, 2.0),
        (0.7 * SETTINGS.longest, 0.0, SETTINGS.longest),
        (SETTINGS.longest, 0.0, SETTINGS.longest),
        (1.0, math.nan, 1.0),
    ],
)
def test_moves_grow_until_chains_come_round(reach, turns, after):
    assert next_reach(reach, turns, SETTINGS) == after


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        ([], (8, 0.0, 0.3), math.inf),
        # From a quarter to a half of the rounds, both included.
        ([(1, 0.0, 0.4)], (8, 1.0, 0.3), math.inf),
        ([(2, 0.0, 0.4)], (8, 1.0, 0.3), 2.0),
        ([(4, 0.0, 0.4)], (8, 1.0, 0.3), 2.0),
        ([(5, 0.0, 0.4)], (8, 1.0, 0.3), math.inf),
        ([(2, 0.0, 0.4)], (9, 1.0, 0.3), math.inf),
        ([(3, 0.0, 0.4)], (7, 1.0, 0.3), 2.0),
        # It does not matter which way, and the largest counts in errors, whichever comes last.
        ([(4, 2.0, 0.4)], (8, 1.0, 0.3), 2.0),
        ([(2, 0.0, 0.4), (3, 0.9, 0.4), (4, 0.5, 0.0)], (8, 1.0, 0.3), 2.0),
        ([(2, 0.5, 0.4), (4, 0.4, 0.0)], (8, 1.0, 0.3), 2.0),
        # What was weighed twice after the same rounds is there twice.
        ([(4, 0.0, 0.4), (4, 1.0, 0.1)], (8, 1.0, 0.3), 2.0),
        # Rounds of the distant past, and of just now, are not looked at.
        ([(1, 9.0, 0.1), (2, 1.0, 0.4), (6, 9.0, 0.1)], (8, 1.0, 0.3), 0.0),
        ([(2, 0.0, 0.0)], (4, 0.0, 0.0), 0.0),
        ([(2, 0.0, math.inf)], (4, 5.0, 0.1), 0.0),
    ],
)
def test_evidence_changes_by_the_most_since_a_quarter_to_a_half_of_the_rounds(before, now, change):
    found = change_since(tuple(Evidence(*each) for each in before), Evidence(*now), SETTINGS)
    assert found == pytest.approx(change)


def test_changes_are_measured_in_errors_of_some_size_at_least():
    settings = dataclasses.replace(SETTINGS, tolerance=1.2)
    before, now = Evidence(4, 0.0, 0.4), Evidence(8, 2.6, 0.3)
    # The three errors are those of 0.3^2 + 0.4^2 + 1.2^2 = 1.3^2.
    assert change_since((before,), now, settings) == pytest.approx(2.0)
    assert SETTINGS.tolerance == 0


def test_settings_that_must_fit_each_other():
    for settings in ALL:
        assert settings.islands * settings.chains % settings.block == 0
        assert settings.islands % 2 == 0  # Half of them are bridged to the other half.
        assert list(settings.rounds) == sorted(set(settings.rounds))
        assert settings.least_turns <= settings.turns
        assert settings.fresh % settings.islands == 0
        assert settings.fresh <= settings.most_fresh <= 4 * settings.fresh
        # Half of the chains spread out, in whole blocks.
        assert settings.islands * settings.chains // 2 % settings.block == 0
        # From twice the first rounds on there are some that ln evidence can be held against.
        for late in range(2 * settings.rounds[0], settings.rounds[-1] + 1):
            assert any(2 * early <= late <= 4 * early for early in settings.rounds)
        assert settings.change <= settings.largest_change < math.inf
        assert 0 < settings.burn_in < 1
    for family in (BUDGETS, FAMILIAR_BUDGETS):
        costs = [settings.cost for settings in family.values()]
        assert costs == sorted(costs)
    assert BUDGETS.keys() == FAMILIAR_BUDGETS.keys()
    assert all(known.cost <= BUDGETS[name].cost for name, known in FAMILIAR_BUDGETS.items())
    # What is not known to be covered never counts as covered.
    assert all(settings.covering_khat == -math.inf for settings in BUDGETS.values())
    with pytest.raises(dataclasses.FrozenInstanceError):
        SETTINGS.cost = 1.0  # pyright: ignore[reportAttributeAccessIssue]
