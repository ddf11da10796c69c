"""A linear prior, whose posterior is known: are right intervals called good, wrong ones poor?"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import latentuq as lu
from latentuq.calibration.check import ROWS, Plan, check_prior, half_hidden
from latentuq.calibration.examples import EXAMPLES, read_examples
from latentuq.core.errors import UserError
from latentuq.inference.causes import Cause

ERROR = 0.2
SHAPE = (4, 6)
# Every image has much of this, so that none is too faint to be told from the generator's error.
PATTERN = np.random.default_rng(4).uniform(0, 6, SHAPE).astype(np.float32)
WEIGHTS = np.random.default_rng(3).normal(size=(2, *SHAPE)).astype(np.float32)
IMAGES = 24


def linear(error):
    return lu.prior_from(lambda u: PATTERN + jnp.tensordot(u, WEIGHTS, 1), 2, SHAPE, error)


@pytest.fixture(scope="module")
def images():
    """What the prior with the true error makes."""
    return np.asarray(linear(ERROR).sample(jax.random.key(8), IMAGES))


@pytest.fixture(scope="module")
def plan():
    return half_hidden(linear(ERROR))


@pytest.fixture(scope="module")
def checked(images, plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("right")
    return folder, check_prior(linear(ERROR), images, plan, folder)


@pytest.mark.slow
def test_a_prior_that_is_right_is_called_good(checked):
    check, facts = checked[1].check, checked[1].facts
    assert check.word == "good"
    assert check.hidden == 0.5
    for group in ("hidden", "seen", "unsure"):
        for level in (0.5, 0.9):
            value, error = facts["coverage"][group][f"{level:.0%}"]
            assert abs(value - level) < 4 * error
    # Pixels of images given 12 noisy ones: the error of the generator is left of their variance.
    prior_std = np.sqrt(np.sum(WEIGHTS[:, :, 3:] ** 2, axis=0) + ERROR**2).mean()
    assert check.sharpness == pytest.approx(ERROR / prior_std, rel=0.2)
    assert check.misfits <= 2
    assert check.lowest == min(facts["coverage_of_each_image"])


@pytest.mark.slow
def test_a_prior_that_knows_too_much_is_called_poor(images, plan, tmp_path):
    """Half the true error: 90 % intervals hold about 2 Phi(1.645 / 2) - 1 = 59 % of the pixels."""
    found = check_prior(linear(ERROR / 2), images, plan, tmp_path)
    expected = 2 * norm.cdf(norm.ppf(0.95) / 2) - 1
    assert found.check.covered == pytest.approx(expected, abs=0.06)
    assert found.check.word == "poor"
    assert Cause.PRIOR_OVERCONFIDENT in [reason.cause for reason in found.mark.reasons]
    assert any("Train the prior" in each for each in found.facts["advice"])


@pytest.mark.slow
def test_rows_are_continued_and_others_are_refused(checked, images, plan):
    folder, first = checked
    prior, again = linear(ERROR), []
    found = check_prior(prior, images[:10], plan, folder, lambda name, row: again.append(name))
    assert not again
    assert found.rows == first.rows[:10]
    assert len(json.loads((folder / ROWS).read_text())["cells"]) == IMAGES
    for other in (plan._replace(seed=1), plan._replace(noise=lu.GaussianNoise(0.06))):
        with pytest.raises(UserError, match="another model, seed or setting"):
            check_prior(prior, images, other, folder)
    with pytest.raises(UserError, match="another model, seed or setting"):
        check_prior(prior, images[1:], plan, folder)


@pytest.mark.slow
def test_examples_show_data_answer_and_truth(checked, images):
    examples = read_examples(checked[0], SHAPE[1])
    assert len(examples) == EXAMPLES
    names = ["data", "posterior mean", "a sample", "standard deviation", "truth"]
    assert [*examples[0]] == names
    expected = np.rint(255 * np.clip(images[0], 0, 1))
    np.testing.assert_array_equal(examples[0]["truth"][..., 0], expected)


@pytest.mark.slow
def test_data_need_not_be_an_image(images, tmp_path):
    prior = linear(ERROR)
    matrix = lu.Matrix(np.random.default_rng(0).normal(size=(7, 24))).bind(SHAPE)
    found = check_prior(prior, images[:5], Plan(matrix, lu.GaussianNoise(0.1), "sums"), tmp_path)
    assert found.check.hidden == 1
    assert found.facts["coverage"]["seen"]["90%"] is None
    assert "data" not in read_examples(tmp_path, SHAPE[1])[0]


def test_few_images_are_refused(images, plan, tmp_path):
    with pytest.raises(UserError, match="4 held-out images; a check needs at least 5"):
        check_prior(linear(ERROR), images[:4], plan, tmp_path)
