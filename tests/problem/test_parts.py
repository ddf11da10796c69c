"""Data and noise of stacks as lists."""

import numpy as np
import pytest

import latentuq as lu

SHAPE = (6, 8)
COARSE = lu.Downsample(2)
MASK = np.ones(SHAPE)
MASK[:, 4:] = 0
IMAGE = np.linspace(0, 1, 48).reshape(SHAPE)
BOTH = lu.stack(lu.Mask(MASK), COARSE)
SEEN = [IMAGE, np.asarray(COARSE(IMAGE))]


@pytest.fixture(scope="module")
def prior():
    basis = np.random.default_rng(0).normal(size=(2, *SHAPE)).astype(np.float32)
    return lu.prior_from(lambda u: u[0] * basis[0] + u[1] * basis[1], 2, SHAPE, 0.1)


MAP = np.linspace(0.1, 0.2, 12).reshape(3, 4)


@pytest.mark.parametrize(
    ("noise", "levels"),
    [
        (lu.GaussianNoise(0.1), np.full(60, 0.1)),
        ([0.1, 0.2], np.repeat([0.1, 0.2], [48, 12])),
        ((lu.GaussianNoise(0.1), lu.GaussianNoise(variance=0.04)), np.repeat([0.1, 0.2], [48, 12])),
        ([0.1, MAP], np.concatenate([np.full(48, 0.1), MAP.ravel()])),
    ],
)
@pytest.mark.parametrize("kind", [list, tuple])
def test_lists_mean_the_same_as_one_vector(prior, noise, levels, kind):
    given = lu.InverseProblem(prior, BOTH, noise, kind(SEEN))
    joined = np.concatenate([np.ravel(each) for each in SEEN])
    expected = lu.InverseProblem(prior, BOTH, lu.GaussianNoise(levels), joined)
    np.testing.assert_array_equal(given.y, expected.y)
    u = np.array([0.3, -0.4], np.float32)
    assert float(given.log_density(u)) == pytest.approx(float(expected.log_density(u)), rel=1e-6)


def test_a_stack_behind_another_operator(prior):
    problem = lu.InverseProblem(prior, BOTH @ lu.Gain(2.0), [0.1, 0.2], SEEN)
    assert problem.y.shape == (60,)


def test_a_list_of_numbers_is_one_vector(prior):
    vector = [float(each) for part in SEEN for each in np.ravel(part)]
    problem = lu.InverseProblem(prior, BOTH, lu.GaussianNoise(0.1), vector)
    np.testing.assert_array_equal(
        problem.y, lu.InverseProblem(prior, BOTH, lu.GaussianNoise(0.1), SEEN).y
    )


COVARIANCE = lu.GaussianNoise(covariance=np.eye(48))


@pytest.mark.parametrize(
    ("noise", "y", "words"),
    [
        ([0.1, 0.2], [IMAGE], "has 2 parts, but 1 were given"),
        ([0.1], SEEN, "has 2 parts, but 1 were given"),
        ([0.1, 0.2], SEEN[::-1], r"makes data of shape \(6, 8\), not \(3, 4\)"),
        ([0.1, MAP.T], SEEN, r"makes data of shape \(3, 4\), not \(4, 3\)"),
        ([0.1, 0.2], [IMAGE, [[1.0], [1.0, 2.0]]], "real numbers"),
        ([COVARIANCE, 0.1], SEEN, "one covariance for all data"),
        ([0.1, -0.2], SEEN, "negative"),
        (0.1, SEEN, "must be of type GaussianNoise, not 0.1"),
    ],
)
def test_what_does_not_fit_is_one_sentence(prior, noise, y, words):
    with pytest.raises(lu.UserError, match=words):
        lu.InverseProblem(prior, BOTH, noise, y)


def test_lists_need_a_stack(prior):
    with pytest.raises(lu.UserError, match="must be of type GaussianNoise, not"):
        lu.InverseProblem(prior, lu.Mask(MASK), [0.1, 0.2], IMAGE)
