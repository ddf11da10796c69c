import numpy as np
import pytest
import scipy.ndimage

import latentuq as lu
from latentuq import prior_from
from latentuq.core.errors import UserError
from latentuq.problem.experiments import EXPERIMENTS, corrupt, make_problem

IMAGES = [lu.load_digits().digit(index) for index in (6, 12)]


def seen(name):
    return np.asarray(corrupt(name, IMAGES[0]).operator.mask)


def test_the_paper_names_and_examples():
    images = {name: experiment.image for name, experiment in EXPERIMENTS.items()}
    assert images == {"sparse95": 1, "masknoise05": 6, "blur": 12, "solidmask": 6}
    assert all(name == experiment.name for name, experiment in EXPERIMENTS.items())


def test_sparse95_hides_the_published_pixels():
    hidden = np.random.RandomState(779).choice(784, 744, replace=False)
    np.testing.assert_array_equal(np.flatnonzero(~seen("sparse95").ravel()), np.sort(hidden))


@pytest.mark.parametrize(
    ("name", "columns"), [("masknoise05", range(14, 28)), ("solidmask", range(10, 24))]
)
def test_whole_columns_are_hidden(name, columns):
    expected = np.ones((28, 28), bool)
    expected[:, list(columns)] = False
    np.testing.assert_array_equal(seen(name), expected)


@pytest.mark.parametrize("name", ["sparse95", "masknoise05", "solidmask"])
@pytest.mark.parametrize("image", IMAGES)
def test_masked_data_are_pixels_plus_the_published_noise(name, image):
    _, noise, y = corrupt(name, image)
    std = {"masknoise05": 0.5}.get(name, 0.0)
    assert float(noise.std) == std
    vector = std * np.random.RandomState(779).randn(784).reshape(28, 28)
    np.testing.assert_array_equal(y, np.where(seen(name), image + vector, np.nan))


@pytest.mark.parametrize("image", IMAGES)
def test_blur_pads_with_zeros_and_adds_noise(image):
    _, noise, y = corrupt("blur", image)
    assert float(noise.std) == pytest.approx(0.05)
    offsets = np.arange(11) - 5
    kernel = np.exp(-(offsets[:, None] ** 2 + offsets**2) / 18)
    blurred = scipy.ndimage.convolve(image.astype(float), kernel / kernel.sum(), mode="constant")
    expected = blurred + 0.05 * np.random.RandomState(779).randn(784).reshape(28, 28)
    # Single precision: about 1e-7 for each of 121 terms that sum to at most 1.
    np.testing.assert_allclose(y, expected, atol=1e-6)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_problem_holds_the_corruption(name):
    prior = prior_from(lambda u: u.sum() * np.ones((28, 28)), 2, (28, 28), 0.1)
    problem = make_problem(prior, name, IMAGES[0])
    operator, noise, y = corrupt(name, IMAGES[0])
    np.testing.assert_allclose(problem.y, y, rtol=1e-6)
    assert float(problem.noise.std) == float(noise.std)
    np.testing.assert_array_equal(problem.operator(IMAGES[1]), operator(IMAGES[1]))


def test_an_unknown_name_lists_the_names():
    with pytest.raises(UserError, match="sparse95, masknoise05, blur, solidmask"):
        corrupt("sparse", IMAGES[0])


def test_other_shapes_are_refused():
    with pytest.raises(UserError, match="28 x 28"):
        corrupt("blur", np.zeros((27, 28)))
