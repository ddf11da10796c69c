import re

import pytest

from studies.page import make_values, measure
from studies.pages import fill_page


@pytest.mark.slow
def test_a_stroke_is_timed_in_a_browser():
    cell = measure(1)
    assert {len(each) for each in cell.values()} == {1}
    assert 0 < cell["first"][0] < cell["weights"][0]
    assert cell["solve"][0] > 0


@pytest.mark.parametrize(
    ("first", "weights", "told"),
    [([0.7], [2.4], ("holds (0.70 s)", "holds (1.20 times)")),
     ([0.8, 0.8], [2.6, 2.6], ("is missed (0.80 s)", "is missed (1.30 times)"))],
)  # fmt: skip
def test_the_page_says_whether_the_bars_hold(first, weights, told):
    cell = {"first": first, "weights": weights, "solve": [2.0] * len(first)}
    values = make_values({"strokes": cell})
    assert (values["first"], values["weights"]) == told
    text = fill_page("page", {"commits": "of no commit", **values})
    assert not re.search(r"[{}]", text)
