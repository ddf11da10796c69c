import numpy as np
from scipy import stats

from latentuq.inference.regions import Regions

ROOT = np.array([[1.0, 0.0], [0.8, 0.6]])


def regions(weights=(0.5, 0.5), widths=(1.0, 1.0), gap=6.0):
    means = np.array([[-gap / 2, 0.0], [gap / 2, 0.0]])
    return Regions(np.log(weights), means, np.array([width * ROOT for width in widths]))


def test_each_point_belongs_to_the_highest_density():
    points = np.random.default_rng(0).normal(scale=5.0, size=(500, 2))
    shapes = regions((0.2, 0.8), (1.0, 3.0))
    terms = [
        np.log(weight) + stats.multivariate_t(mean, factor @ factor.T, df=10).logpdf(points)
        for weight, mean, factor in zip((0.2, 0.8), shapes.means, shapes.factors, strict=True)
    ]
    found = shapes.of(points)
    np.testing.assert_array_equal(found, np.argmax(terms, axis=0))
    assert set(found) == {0, 1}


def test_equal_shapes_are_divided_half_way():
    along = np.linspace(-9, 9, 101)[:, None] * [1.0, 0.0]
    along = along[np.abs(along[:, 0]) > 0.1]
    np.testing.assert_array_equal(regions().of(along), along[:, 0] > 0)


def test_a_weight_moves_the_border():
    origin = np.zeros((1, 2))
    assert regions((0.6, 0.4)).of(origin) == 0
    assert regions((0.4, 0.6)).of(origin) == 1


def test_one_region_is_all_of_space():
    shapes = Regions(np.zeros(1), np.zeros((1, 2)), np.eye(2)[None])
    points = 1e6 * np.random.default_rng(1).normal(size=(20, 2))
    np.testing.assert_array_equal(shapes.of(points), 0)


def test_draws_are_those_of_the_region():
    shapes, rng, n = regions(widths=(1.0, 3.0)), np.random.default_rng(2), 2000
    draws = np.array([shapes.sample(rng, 1) for _ in range(n)])
    whitened = np.linalg.solve(3 * ROOT, (draws - shapes.means[1]).T)
    np.testing.assert_allclose(whitened.mean(axis=1), 0, atol=4 / np.sqrt(n))
    np.testing.assert_allclose(np.cov(whitened), np.eye(2), atol=4 * np.sqrt(2 / n))
