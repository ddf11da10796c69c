import numpy as np
import pytest

from studies.memory import make_operator, make_values, measure


def test_operators_are_of_five_kinds_and_all_different():
    made = [make_operator(number).bind((28, 28)) for number in range(10)]
    assert len({type(operator) for operator in made}) == 5
    image = np.random.default_rng(0).uniform(size=(28, 28)).astype(np.float32)
    data = {np.asarray(operator(image)).tobytes() for operator in made}
    assert len(data) == 10


def test_the_series_ends_with_the_last_solve():
    told = []
    (record,) = measure(1, 1, lambda name, each: told.append(name))["series"]
    assert record["solved"] == 2
    assert record["maps"] > 100
    assert record["megabytes"] > 100
    assert told == ["2 solved"]


@pytest.mark.parametrize(
    ("maps", "last", "told"),
    [
        (29_999, 1150, ("holds (29999)", "holds (1.15)")),
        (30_000, 1160, ("is missed (30000)", "is missed (1.16)")),
    ],
)
def test_the_page_says_whether_the_bars_hold(maps, last, told):
    series = [
        {"solved": solved, "kind": "operators", "maps": maps, "megabytes": size, "seconds": 1.0}
        for solved, size in ((10, 500), (30, 1000), (40, last))
    ]
    values = make_values({"series": {"series": series}})
    assert (values["maps"], values["flat"]) == told
    assert make_values({"series": {"series": series[:1]}})["flat"].startswith("cannot be told")
