import jax
import numpy as np
import pytest

from latentuq.core.errors import UserError
from latentuq.prior.training.two_sample import two_sample_accuracy


def test_accuracy_of_equal_and_of_shifted_gaussians():
    a_key, b_key, test_key = jax.random.split(jax.random.key(0), 3)
    a, b = jax.random.normal(a_key, (1500, 2)), jax.random.normal(b_key, (1500, 2))
    # 3000 predictions: a standard error of 0.009 around one half.
    assert abs(two_sample_accuracy(test_key, a, b) - 0.5) < 0.04
    # Unit Gaussians two apart: the best classifier is right with probability Phi(1) = 0.841.
    shifted = b + np.array([2.0, 0.0])
    assert abs(two_sample_accuracy(test_key, a, shifted) - 0.841) < 0.03


def test_a_difference_that_is_not_in_the_mean_is_seen():
    a_key, b_key, test_key = jax.random.split(jax.random.key(1), 3)
    a = jax.random.normal(a_key, (1500, 2))
    b = 3 * jax.random.normal(b_key, (1500, 2))
    assert two_sample_accuracy(test_key, a, b) > 0.7


def test_too_few_or_unequal_points_are_refused():
    key = jax.random.key(0)
    with pytest.raises(UserError, match="30 draws"):
        two_sample_accuracy(key, np.ones((5, 2)), np.ones((5, 2)))
    with pytest.raises(UserError, match="different shapes"):
        two_sample_accuracy(key, np.ones((50, 2)), np.ones((50, 3)))
