import dataclasses

import numpy as np
import pytest

from latentuq.inference.causes import Cause
from latentuq.inference.verdict import Mark, Reason, Verdict
from latentuq.posterior.judge import WORST_FIT, judge_fit
from latentuq.posterior.learned import Learned
from latentuq.posterior.likeness import Likeness, Usual
from latentuq.posterior.misfit import Fit, Prominences

DATA = 200
SHAPE = (10, 40)
ALIKE = Likeness(factor=1.0, offset=0.0, correlation=0.8, negative=-0.1)
SOUND = Fit(
    p_value=0.5,
    unexplained=0.1,
    usual_unexplained=0.1,
    brightest=2.0,
    scatter=3.0,
    noise_ratio=1.0,
    noise_level=0.2,
    neighbours=0.1,
    surprises=np.linspace(0, 3, DATA),
    prominences=Prominences(np.zeros(DATA), np.full(DATA, 0.1), images=0.2),
    places=2 * np.arange(DATA),
    likeness=ALIKE,
    usual=Usual(factor_spread=0.15, correlation=0.6),
)
TAUGHT = Learned(information=12.0, variance_left=0.1)


def judge(learned=TAUGHT, inflated=False, **changes):
    return judge_fit(SOUND._replace(**changes), learned, SHAPE, inflated)


def wild(*numbers):
    surprises = SOUND.surprises.copy()
    surprises[list(numbers)] = 15.0
    return surprises


def standing_out(prominence):
    return SOUND.prominences._replace(data=np.where(np.arange(DATA) == 30, prominence, 0.0))


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, [Cause.FITS]),
        ({"p_value": WORST_FIT}, [Cause.FITS]),
        ({"p_value": 0.995}, [Cause.FITS_CLOSELY]),
        ({"p_value": 0.995, "inflated": True}, [Cause.FITS_BY_DESIGN]),
        ({"p_value": WORST_FIT / 2}, [Cause.MISFIT]),
        ({"unexplained": 0.31}, [Cause.UNEXPLAINED]),
        ({"unexplained": 0.31, "usual_unexplained": 0.2}, [Cause.FITS]),
        ({"p_value": 1e-9, "unexplained": 0.5}, [Cause.MISFIT, Cause.UNEXPLAINED]),
        ({"p_value": 1e-9, "noise_ratio": 2.0}, [Cause.NOISE_TOO_SMALL]),
        ({"p_value": 1e-9, "noise_ratio": 2.0, "neighbours": 0.5}, [Cause.MISFIT]),
        ({"noise_ratio": 2.0}, [Cause.FITS]),
        ({"scatter": 0.2}, [Cause.NOISE_TOO_LARGE]),
        ({"scatter": 1e-9, "brightest": 0.0, "likeness": None}, [Cause.BLANK]),
        ({"likeness": ALIKE._replace(correlation=0.1, negative=-0.7)}, [Cause.INVERTED]),
        ({"likeness": ALIKE._replace(factor=0.4)}, [Cause.WRONG_SCALE]),
        ({"likeness": ALIKE._replace(factor=2.5)}, [Cause.WRONG_SCALE]),
        ({"likeness": ALIKE._replace(factor=1.45)}, [Cause.FITS]),
        ({"likeness": ALIKE._replace(factor=1.45), "unexplained": 0.19}, [Cause.FITS]),
        ({"likeness": ALIKE._replace(factor=1.45), "unexplained": 0.21}, [Cause.WRONG_SCALE]),
        ({"likeness": ALIKE._replace(factor=2.5, correlation=0.4)}, [Cause.FITS]),
        ({"likeness": None}, [Cause.FITS]),
        ({"surprises": wild(7)}, [Cause.WILD_DATA]),
        ({"surprises": wild(7), "p_value": 0.0}, [Cause.WILD_DATA]),
        ({"surprises": wild(*range(50))}, [Cause.FITS]),
        ({"prominences": standing_out(0.6)}, [Cause.FITS]),
        ({"prominences": standing_out(0.8)}, [Cause.WILD_DATA]),
        ({"brightest": 0.4}, [Cause.BLANK]),
        ({"brightest": 0.4, "scatter": 0.5}, [Cause.NOISE_TOO_LARGE]),
        ({"scatter": 0.5}, [Cause.FITS]),
        ({"brightest": 0.4, "prominences": standing_out(0.8)}, [Cause.WILD_DATA, Cause.BLANK]),
        ({"learned": Learned(0.2, 0.99)}, [Cause.NOTHING_LEARNED]),
        (
            {"learned": Learned(0.2, 0.99), "likeness": ALIKE._replace(factor=3000.0)},
            [Cause.WRONG_SCALE, Cause.NOTHING_LEARNED],
        ),
        ({"learned": Learned(0.2, 0.5)}, [Cause.FITS]),
        ({"learned": Learned(5.0, 1.2)}, [Cause.FITS]),
        ({"learned": None}, [Cause.FITS]),
    ],
)
def test_the_mark_gives_the_most_particular_reason(changes, causes):
    mark = judge(**changes)
    assert [reason.cause for reason in mark.reasons] == causes
    assert mark.sentence
    assert mark.details


def test_without_data_nothing_is_compared():
    assert judge_fit(None, None, (), False) == Mark((Reason(Cause.NOT_COMPARED),))


def test_wild_data_are_told_by_row_and_column():
    mark = judge(surprises=wild(30))
    assert mark.sentence.endswith("makes: row 1, column 20.")
    assert "1 in number" in mark.details
    assert judge(prominences=standing_out(0.8)).sentence == mark.sentence


def test_many_wild_data_are_counted():
    mark = judge_fit(
        SOUND._replace(
            surprises=np.append(np.zeros(995), [15.0] * 5),
            prominences=Prominences(np.zeros(1000), np.ones(1000), 0.0),
            places=np.arange(1000),
        ),
        TAUGHT,
        (10, 100),
        False,
    )
    assert mark.sentence.endswith(
        "row 9, column 95; row 9, column 96; row 9, column 97; and 2 more."
    )


def test_data_of_another_shape_are_told_by_their_place():
    mark = judge_fit(SOUND._replace(surprises=wild(30)), TAUGHT, (400,), False)
    assert mark.sentence.endswith("makes: datum 60.")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"likeness": ALIKE._replace(correlation=0.1, negative=-0.7)}, "--invert"),
        ({"likeness": ALIKE._replace(factor=0.1)}, "divided by about 0.1"),
        ({"p_value": 1e-9, "noise_ratio": 2.0}, "about 0.2"),
        ({"scatter": 0.16}, "below 0.08"),
        ({"surprises": wild(7)}, "missing"),
        ({"p_value": 1e-9}, "latentuq train"),
        ({"learned": Learned(0.2, 0.99)}, "Check the noise"),
    ],
)
def test_advice_follows_from_the_reason(changes, words):
    computed = Mark((Reason(Cause.MODES_MISSED, {"missed_mass": 0.1, "starts": 4, "limit": 0.05}),))
    verdict = Verdict(computed, judge(**changes))
    assert words in verdict.advice[0]
    assert not verdict.reliable
    assert Verdict.from_json(verdict.to_json()) == verdict
    assert dataclasses.replace(verdict, fit=judge()).advice[0] != verdict.advice[0]


def test_the_noise_of_a_single_datum_is_not_judged():
    nothing = Learned(information=0.3, variance_left=0.97)
    one = {"surprises": np.zeros(1), "places": np.zeros(1, int), "scatter": 0.0}
    alone = SOUND.prominences._replace(data=np.zeros(1), noise=np.full(1, 0.1))
    mark = judge(nothing, prominences=alone, **one)
    assert [reason.cause for reason in mark.reasons] == [Cause.NOTHING_LEARNED]
