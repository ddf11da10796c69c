import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import latentuq as lu
from latentuq.core.errors import UserError
from studies import alarms
from studies.alarms import describe_alarms, run_alarms


@pytest.fixture(scope="module")
def prior():
    return lu.load_prior("mnist")


def flat(value):
    return lambda: itertools.repeat(np.full((28, 28), value, np.float32))


def doubt_what_is_bright(key, problem):
    bright = float(np.nanmean(np.asarray(problem.y))) > 0.5
    verdict = "unreliable" if bright else "reliable"
    diagnostics = SimpleNamespace(predictive_p_value=0.001 if bright else 0.5)
    return SimpleNamespace(verdict=verdict, diagnostics=diagnostics, log_evidence=-bright)


def test_alarms_are_counted_and_continued(prior, tmp_path):
    given = {
        "sets": {"digits": flat(0.0), "negatives": flat(1.0)},
        "infer": doubt_what_is_bright,
    }
    first = run_alarms(prior, 2, tmp_path, **given)
    seen = []
    cells = run_alarms(prior, 3, tmp_path, report=lambda name, row: seen.append(name), **given)
    assert seen == ["digits 2", "negatives 2"]
    assert cells | first == cells
    rows = [*cells.values()]
    facts = describe_alarms(rows)
    for alarm in ("verdict", "p-value", "evidence"):
        assert facts[alarm]["digits"][0] == 0
        assert facts[alarm]["negatives"] == (1, 3)
        assert facts[alarm]["others"] == 1


@pytest.mark.slow
def test_what_is_no_digit_raises_the_alarm(prior, tmp_path):
    """The study itself, on the digits that come along; the garments do not."""
    digits = np.asarray(lu.load_digits().images, np.float32)
    shuffled = np.random.default_rng(0).permuted(digits.reshape(-1, 784), axis=1)
    sets = {
        "digits": lambda: iter(digits),
        "negatives": lambda: iter(1 - digits),
        "checkerboards": alarms.SETS["checkerboards"],
        "shuffled": lambda: iter(shuffled.reshape(digits.shape)),
    }
    facts = describe_alarms([*run_alarms(prior, 2, tmp_path, sets=sets).values()])["verdict"]
    assert facts["digits"] == (0, 2)
    assert facts["others"] == 1


def test_an_inference_that_fails_is_an_alarm_of_the_verdict_alone():
    row = {"set": "digits", "verdict": "unreliable", "p_value": 0.5, "log_evidence": 1.0}
    facts = describe_alarms([row, row | {"set": "garments", "p_value": 0.001}])
    assert facts["verdict"]["digits"][0] == 1
    assert facts["p-value"]["digits"][0] == 0
    assert facts["p-value"]["garments"][0] == 1


def test_checkerboards_have_two_colours_and_many_shapes():
    boards = list(itertools.islice(alarms._checkerboards(), 20))
    assert all(set(np.unique(board)) == {0, 1} for board in boards)
    assert len({board.tobytes() for board in boards}) > 10


def test_a_prior_of_another_shape_is_refused(tmp_path):
    other = lu.prior_from(lambda u: u, 3, (3,), 0.1)
    with pytest.raises(UserError, match=r"needs a prior of \(28, 28\)"):
        run_alarms(other, 1, tmp_path)
