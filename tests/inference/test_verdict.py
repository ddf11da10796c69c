import pytest

from latentuq.inference.verdict import Evidence, give_verdict

GOOD = Evidence(
    khat=0.3,
    threshold=0.7,
    ess=5000.0,
    evidence_error=0.01,
    starts=32,
    minimum=True,
    missed_mass=0.01,
    lost=0.0,
    climbs=0,
    preview=False,
)
NAN = float("nan")


@pytest.mark.parametrize(
    ("changes", "start", "reason"),
    [
        ({}, "reliable", "k-hat 0.30"),
        ({"khat": -float("inf")}, "reliable", "worth 5000"),
        ({"climbs": 2}, "refined", "after 2 refinements"),
        ({"ess": 0.0}, "unreliable", "zero or not a number"),
        ({"ess": NAN}, "unreliable", "zero or not a number"),
        ({"evidence_error": 0.6}, "unreliable", "uncertain by 0.6"),
        ({"minimum": False}, "unreliable", "none of 32 starts"),
        ({"khat": 0.71}, "unreliable", "k-hat 0.71, limit 0.70"),
        ({"khat": NAN}, "unreliable", "heavy tail"),
        ({"khat": 0.9, "climbs": 4}, "unreliable", "4 refinements did not help"),
        ({"khat": 0.9, "preview": True}, "unreliable", "preview without refinement"),
        ({"ess": 99.0}, "unreliable", "only 99 independent"),
        ({"missed_mass": 0.06}, "unreliable", "6% of the mass"),
        ({"lost": 0.3}, "unreliable", "30% of the posterior draws"),
        ({"missed_mass": 0.06, "climbs": 1}, "unreliable", "6% of the mass"),
    ],
)
def test_every_failure_is_said_in_words(changes, start, reason):
    verdict = give_verdict(GOOD._replace(**changes))
    assert verdict.startswith(f"{start}: ")
    assert reason in verdict
    assert verdict.endswith(".")


def test_limits_themselves_pass():
    assert give_verdict(GOOD._replace(khat=0.7, ess=100.0, missed_mass=0.05)).startswith("reliable")
