from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from latentuq.app.demo import _compare_with_paper, _in_words
from latentuq.data.digits import load_digits

# Places in the test set of a 4, a 9 and a 2.
FOUR, NINE, TWO = 6, 12, 1


def test_probabilities_of_digits_in_words():
    digits = [0.0, 0.0, 0.021, 0.0, 0.96, 0.0, 0.0, 0.012, 0.004, 0.0]
    assert _in_words(digits) == "4 (96 %), 2 (2 %), 7 (1 %)"


@pytest.mark.parametrize(
    ("modes", "weights", "words"),
    [
        ((FOUR, NINE), (0.6, 0.4), None),
        ((FOUR, TWO), (0.6, 0.4), "read as a 9:"),
        ((TWO, FOUR), (0.995, 0.005), "read as a 4 or a 9:"),
    ],
)
def test_a_digit_of_the_paper_without_a_mode_is_said(modes, weights, words):
    images = jnp.stack([load_digits().digit(each) for each in modes])
    said = _compare_with_paper(SimpleNamespace(weights=jnp.array(weights), mode_images=images))
    assert len(said) == (words is not None)
    assert words is None or words in said[0]
