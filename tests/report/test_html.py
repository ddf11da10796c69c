"""What the page of a report says about the answer."""

import dataclasses
import html
import re

import jax
import pytest

from exact_posteriors import make_problem, solve_exactly
from latentuq.inference.causes import Cause
from latentuq.inference.verdict import Mark, Reason
from latentuq.report.collect import collect
from latentuq.report.figures import true_minus
from latentuq.report.html import make_page

MISFIT = Mark((Reason(Cause.MISFIT, {"p_value": 1e-9, "limit": 0.02}),))


@pytest.fixture(scope="module")
def shown():
    post = solve_exactly(make_problem())
    return post, collect(jax.random.key(0), post, None)


def write(post, content):
    return html.unescape(
        make_page("title", post, content, {"latent": "<svg>", "search": "<svg>"}, {})
    )


def test_three_marks_stand_apart_in_plain_words(shown):
    page = write(*shown)
    assert '<div class="verdict reliable"><p><strong>reliable</strong>: the computation' in page
    assert shown[0].diagnostics.learned in page
    marks = re.findall(r'<li class="(\w+)"><b>(.*?)</b> <em>(.*?)</em><span>(.*?)</span>', page)
    assert [mark[0] for mark in marks] == ["ok", "ok", "unknown"]
    assert [mark[2] for mark in marks] == ["✓ yes", "✓ yes", "? not known"]
    for mark, verdict_mark in zip(marks, shown[0].verdict.marks.values(), strict=True):
        assert mark[3] == verdict_mark.sentence
    assert "What to try" not in page


def test_the_numbers_are_there_on_request(shown):
    post, content = shown
    page = write(post, content)
    numbers = re.search(r"<details>.*?</details>", page).group()
    for mark in post.verdict.marks.values():
        assert true_minus(mark.details) in numbers
    assert "k-hat" not in re.sub(r"<details>.*?</details>", "", page)
    assert post.diagnostics.course in page


def test_what_is_unreliable_comes_with_advice(shown):
    post, content = shown
    verdict = dataclasses.replace(post.verdict, fit=MISFIT)
    inference = dataclasses.replace(post.inference, verdict=verdict)
    page = write(dataclasses.replace(post, inference=inference), content)
    assert '<div class="verdict unreliable">' in page
    assert "✗ no" in page
    assert all(f"<li>{sentence}</li>" in page for sentence in verdict.advice)
    assert str(verdict).removeprefix("unreliable") in page
