import dataclasses

import jax
import numpy as np
import pytest

import latentuq as lu
from latentuq.inference.causes import Cause, Standing
from latentuq.inference.verdict import Verdict
from latentuq.posterior.prior_mark import judge_prior, word_of
from latentuq.prior.check import PriorCheck

GOOD = PriorCheck(
    images=20, hidden=0.5, covered=0.95, covered_unsure=0.9, half_covered=0.5, sharpness=0.4
)


@pytest.mark.parametrize(
    ("changes", "causes", "word"),
    [
        ({}, [Cause.PRIOR_HOLDS], "good"),
        ({"covered_unsure": 0.84}, [Cause.PRIOR_NARROW], "usable"),
        ({"covered": 0.54}, [Cause.PRIOR_OVERCONFIDENT], "poor"),
        ({"half_covered": 0.8}, [Cause.PRIOR_WIDE], "usable"),
        ({"sharpness": 0.95}, [Cause.PRIOR_VAGUE], "usable"),
        ({"misfits": 4}, [Cause.PRIOR_ESTRANGED], "poor"),
        (
            {"sharpness": 0.95, "covered": 0.5},
            [Cause.PRIOR_OVERCONFIDENT, Cause.PRIOR_VAGUE],
            "poor",
        ),
    ],
)
def test_numbers_become_causes_and_a_word(changes, causes, word):
    mark = judge_prior(dataclasses.replace(GOOD, **changes))
    assert [reason.cause for reason in mark.reasons] == causes
    assert word_of(mark) == word
    assert (mark.standing is Standing.BAD) == (word == "poor")
    assert "{" not in mark.details


def test_what_is_known_is_said_with_its_numbers():
    assert "20 held-out images" in judge_prior(GOOD).details
    assert (
        "95% of the hidden pixels (50% of each image) lay in their 90 % intervals, and 90% of those"
        in judge_prior(GOOD).details
    )
    assert judge_prior(None).standing is Standing.UNKNOWN


@pytest.mark.slow
def test_every_verdict_says_what_is_known_about_its_prior():
    plain = lu.prior_from(lambda z: z[0] * np.ones((2, 2), np.float32), 1, (2, 2), 0.1)
    for check, standing in ((None, "unknown"), (dataclasses.replace(GOOD, covered=0.5), "bad")):
        card = dataclasses.replace(plain.card, check=check)
        prior = dataclasses.replace(plain, card=card)
        problem = lu.InverseProblem(prior, lu.Gain(1.0), lu.GaussianNoise(0.1), np.ones((2, 2)))
        verdict = lu.solve(jax.random.key(0), problem, budget="preview").verdict
        assert verdict.prior.standing == standing
        assert Verdict.from_json(verdict.to_json()) == verdict
    assert any("Train the prior" in advice for advice in verdict.advice)
