import dataclasses
import json
import math
import pickle

import pytest

from latentuq.inference.answer import judge_computation
from latentuq.inference.causes import Cause, Standing
from latentuq.inference.result import Counts, Diagnostics
from latentuq.inference.settings import Settings
from latentuq.inference.verdict import Mark, Reason, Verdict, show_p_value

GOOD = Diagnostics(
    khat=0.3,
    khat_limit=0.7,
    ess=5000.0,
    draws=8192,
    el2o=(0.1,),
    missed_mass=0.01,
    new_basin_chance=0.0,
    rounds=0,
    turns=math.inf,
    drift=0.0,
    counts=Counts(),
    forward_equivalents=0,
)
MISFIT = Mark((Reason(Cause.MISFIT, {"p_value": 1e-9, "limit": 0.02}),))
FITS = Mark((Reason(Cause.FITS, {"p_value": 0.4}),))


def judge(fit=None, **changes):
    """The verdict on a good answer with changes to its numbers, or to what else is judged."""
    names = {field.name for field in dataclasses.fields(Diagnostics)}
    numbers = {name: value for name, value in changes.items() if name in names}
    others = {"evidence_error": 0.01, "found_mode": True, "lost": 0.0, "starts": 32}
    others |= {name: value for name, value in changes.items() if name not in names}
    computed = judge_computation(
        dataclasses.replace(GOOD, **numbers),
        Settings(),
        **others,
    )
    return Verdict(computed) if fit is None else Verdict(computed, fit)


@pytest.mark.parametrize(
    ("changes", "cause", "details"),
    [
        ({}, Cause.CONFIRMED, "k-hat 0.30 (limit 0.70) and are worth 5000 independent ones"),
        ({"khat": -math.inf}, Cause.CONFIRMED, "1.0% of the mass"),
        ({"rounds": 2, "turns": 1.9}, Cause.AGREED, "Each chain made 1.9 independent draws"),
        ({"rounds": 2}, Cause.AGREED, "one of 32 starts"),
        ({"ess": 0.0}, Cause.DENSITY_ZERO, "zero or not a number"),
        ({"ess": math.nan}, Cause.DENSITY_ZERO, "zero or not a number"),
        ({"evidence_error": 0.6}, Cause.EVIDENCE_UNCERTAIN, "is 0.6, above the limit of 0.5"),
        ({"found_mode": False}, Cause.NO_MODE, "None of 32 starts"),
        ({"khat": 0.71}, Cause.PREVIEW_ONLY, "k-hat 0.71, limit 0.70"),
        ({"khat": math.nan}, Cause.PREVIEW_ONLY, "k-hat inf"),
        # Chains bound the weights of draws: there is no limit to their k-hat.
        (
            {"khat": 5.0, "khat_limit": math.inf, "rounds": 4, "turns": 2.0},
            Cause.AGREED,
            "2.0 indep",
        ),
        (
            {"rounds": 64, "turns": 1.2, "drift": 0.3, "settled": False, "change": 5.66},
            Cause.UNSETTLED,
            "Over 64 rounds a chain made 1.2 independent draws (at least 4.0 are needed), ln p"
            " shifted by 0.30 of its standard deviation (limit 0.20), and ln evidence changed by"
            " 5.7 of its standard errors (limit 4.0)",
        ),
        # Nothing was there to compare with.
        (
            {"rounds": 2, "turns": 1.2, "settled": False, "change": math.inf},
            Cause.UNSETTLED,
            "ln evidence changed by inf of its standard errors",
        ),
        ({"ess": 99.0}, Cause.FEW_DRAWS, "only 99 independent ones, and 100 are needed"),
        ({"missed_mass": 0.06}, Cause.MODES_MISSED, "6% of the mass"),
        ({"lost": 0.3}, Cause.DRAWS_LOST, "30% of the posterior draws"),
        ({"missed_mass": 0.06, "rounds": 1}, Cause.MODES_MISSED, "6% of the mass"),
    ],
)
def test_every_outcome_is_a_value_with_its_words(changes, cause, details):
    verdict = judge(**changes)
    (reason,) = verdict.computed.reasons
    assert reason.cause is cause
    assert verdict.reliable == (cause.standing is Standing.OK)
    assert str(verdict) == f"{verdict.word}: {cause.clause}."
    assert details in reason.details
    assert reason.details in verdict.details
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json(), allow_nan=False))) == verdict


def test_limits_themselves_pass():
    assert judge(khat=0.7, ess=100.0, missed_mass=0.05, evidence_error=0.5, lost=0.25).reliable


def test_all_that_failed_is_told_and_the_gravest_first():
    verdict = judge(
        khat=0.9,
        ess=20.0,
        evidence_error=2.0,
        settled=False,
        lost=0.5,
        missed_mass=0.5,
    )
    assert [reason.cause for reason in verdict.computed.reasons] == [
        Cause.PREVIEW_ONLY,
        Cause.FEW_DRAWS,
        Cause.EVIDENCE_UNCERTAIN,
        Cause.UNSETTLED,
        Cause.DRAWS_LOST,
        Cause.MODES_MISSED,
    ]
    assert str(verdict) == f"unreliable: {Cause.PREVIEW_ONLY.clause}."


@pytest.mark.parametrize(
    ("fit", "reliable"), [(None, True), (FITS, True), (MISFIT, False)], ids=["none", "ok", "bad"]
)
def test_reliable_is_computed_ok_and_fit_not_bad(fit, reliable):
    assert judge(fit).reliable == reliable
    assert not judge(fit, khat=0.9).reliable


def test_a_reliable_verdict_says_what_was_confirmed_and_what_was_not_checked():
    verdict = judge(FITS)
    assert str(verdict) == (
        "reliable: the computation is confirmed, the data fit the model, and the prior has not been"
        " checked."
    )
    assert verdict.advice == ()
    assert verdict.details.splitlines()[1:] == [
        "fit ok: Posterior predictive p-value 0.4.",
        f"prior unknown: {Reason(Cause.NOT_CHECKED).sentence}",
    ]


def test_each_mark_answers_its_question():
    verdict = judge(MISFIT)
    assert verdict.statement("computed") == (
        "Is the answer computed well? Yes. Independent draws confirm these probabilities."
    )
    assert verdict.statement("fit").startswith("Do the data fit the model? No. The data do not")
    assert "Not known. The prior has not been checked" in verdict.statement("prior")


@pytest.mark.parametrize("standing", Standing)
def test_a_reliable_verdict_says_what_is_known_about_the_prior(standing):
    cause = next(cause for cause in Cause if cause.standing is standing)
    verdict = dataclasses.replace(judge(FITS), prior=Mark((Reason(cause),)))
    assert verdict.reliable
    words = {"ok": "did well", "unknown": "has not been checked", "bad": "did badly"}
    assert words[standing] in str(verdict)


def test_the_misfit_comes_before_other_reasons():
    verdict = judge(MISFIT, khat=0.9)
    assert str(verdict) == (
        f"unreliable: {Cause.MISFIT.clause}; besides, {Cause.PREVIEW_ONLY.clause}."
    )
    assert "p-value < 0.001" in verdict.details
    assert "trained on images like it" in verdict.advice[0]


def test_advice_is_given_once_and_ends_with_a_caution():
    advice = judge(evidence_error=2.0, ess=20.0, lost=0.5).advice
    assert len(set(advice)) == len(advice) == 3
    assert "thorough" in advice[0]
    assert "silu" in advice[1]
    assert "sketch" in advice[2]


def test_a_verdict_is_a_value():
    verdict = judge(khat=-math.inf)
    assert verdict == judge(khat=-math.inf) != judge(khat=0.1)
    assert hash(verdict) == hash(judge(khat=-math.inf))
    assert pickle.loads(pickle.dumps(verdict)) == verdict
    with pytest.raises(dataclasses.FrozenInstanceError):
        verdict.fit = FITS  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "reasons",
    [
        [],
        [{"cause": "CONFIRMED", "numbers": {}}],
        [{"cause": "NOTHING", "numbers": {}}],
        [{"cause": "NO_MODE", "numbers": {"starts": "many"}}],
    ],
)
def test_values_of_no_verdict_are_refused(reasons):
    with pytest.raises((KeyError, ValueError)):
        Verdict.from_json({"marks": {"computed": {"reasons": reasons}}})


@pytest.mark.parametrize(
    ("p_value", "shown"),
    [(0.0, "< 0.001"), (0.0123, "0.012"), (0.97, "0.97"), (0.994, "> 0.99"), (1.0, "> 0.99")],
)
def test_near_0_and_1_a_p_value_is_a_bound(p_value, shown):
    assert show_p_value(p_value) == shown
