from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from latentuq.inference.result import ProbeRecord
from latentuq.report.words import explain_verdict, give_advice


def answer(verdict, p_value=0.5, ends=()):
    """As much of a posterior as the words need."""
    probes = ProbeRecord(jnp.zeros((len(ends), 2)), jnp.array(ends, int))
    return SimpleNamespace(
        verdict=verdict,
        diagnostics=SimpleNamespace(predictive_p_value=p_value),
        inference=SimpleNamespace(probes=probes),
    )


@pytest.mark.parametrize("word", ["reliable", "refined"])
def test_a_good_answer_needs_no_advice(word):
    assert not give_advice(answer(f"{word}: because."))


@pytest.mark.parametrize(
    ("post", "words"),
    [
        (answer("unreliable: misfit.", p_value=0.001), "corruption as it was"),
        (answer("unreliable: lost.", ends=[0, 0, -1, -1]), "silu"),
        (answer("unreliable: lost.", ends=[0, 0, -1, -1]), "--budget"),
        (answer("unreliable: a heavy tail.", ends=[0, 0, 1, -1]), "--budget"),
    ],
)
def test_advice_fits_the_reason(post, words):
    advice = give_advice(post)
    assert words in " ".join(advice[:-1])
    assert "sketch" in advice[-1]


def test_what_is_unreliable_is_told_apart():
    assert "data do not fit" in explain_verdict(answer("unreliable: misfit.", p_value=0.001))
    assert "Independent draws" in explain_verdict(answer("unreliable: a heavy tail."))
    assert "Gaussians" in explain_verdict(answer("reliable: because."))
