import pytest

from latentuq.inference.causes import Cause, Standing


@pytest.mark.parametrize("cause", Cause)
def test_words_need_no_jargon_and_advice_follows_what_is_bad(cause):
    assert not any(word in cause.clause for word in ("k-hat", "importance", "p-value", "ESS"))
    # A prior may be usable, and could still be better.
    if not cause.name.startswith("PRIOR_"):
        assert bool(cause.advice) == (cause.standing is Standing.BAD)
    assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in cause.advice)
