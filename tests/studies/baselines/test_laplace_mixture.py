import jax
import jax.numpy as jnp
import numpy as np
import pytest

from densities import odd, two_gaussians
from latentuq.core.errors import UserError
from latentuq.inference.target import Target
from studies.baselines.laplace_mixture import distinct_minima, fit_points, laplace_mixture

pytestmark = pytest.mark.slow

DIM, GAP, WEIGHTS, WIDTHS = 3, 16.0, (0.3, 0.7), (1.0, 0.5)
MIXTURE = two_gaussians(DIM, GAP, WEIGHTS, WIDTHS)
DRAWS = 4000


def shifted(u):
    """ln of e^5 times the mixture."""
    return MIXTURE.log_prob(u) + 5.0


@pytest.fixture(scope="module")
def result():
    return laplace_mixture(jax.random.key(0), shifted, MIXTURE.means, draws=DRAWS)


def test_distant_gaussians_are_exact(result):
    # Sixteen standard deviations apart, the other Gaussian is e^-128 of this one: rounding alone.
    np.testing.assert_allclose(result.history["weights"], WEIGHTS, rtol=1e-5)
    assert result.log_evidence == pytest.approx(5.0, abs=1e-4)
    assert result.log_evidence_error is None


def test_draws_follow_the_mixture(result):
    first = result.draws[:, 0] < 0
    assert result.draws.shape == (DRAWS, DIM)
    assert abs(first.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / DRAWS)
    for side, mean, width in ((first, -GAP / 2, 1.0), (~first, GAP / 2, 0.5)):
        n = side.sum()
        centre = [mean, 0, 0]
        np.testing.assert_allclose(result.draws[side].mean(0), centre, atol=4 * width / np.sqrt(n))
        np.testing.assert_allclose(result.draws[side].std(0), width, rtol=4 / np.sqrt(2 * n))


def test_a_mode_given_twice_counts_twice():
    modes = jnp.stack([MIXTURE.means[0], MIXTURE.means[0]])
    again = laplace_mixture(jax.random.key(0), shifted, modes, draws=DRAWS)
    assert again.log_evidence == pytest.approx(5.0 + np.log(0.6), abs=1e-4)


def test_cost_is_counted(result):
    assert result.gradients == 0
    # Per mode a forward evaluation and a Hessian, which is a gradient and dim of its derivatives.
    assert result.forward_equivalents == 2 * (1 + 3 * (DIM + 1))
    assert result.seconds > 0
    assert result.compile_seconds > 0


def test_same_key_same_answer(result):
    again = laplace_mixture(jax.random.key(0), shifted, MIXTURE.means, draws=DRAWS)
    np.testing.assert_array_equal(again.draws, result.draws)


def test_copies_and_saddles_are_left_out():
    target = Target(MIXTURE.log_prob, DIM)
    centre, other = MIXTURE.means
    near = centre + jnp.array([0.5, 0.0, 0.0])
    far = centre + jnp.array([3.0, 0.0, 0.0])
    points = jnp.stack([near, centre, far, other])
    kept = distinct_minima(*fit_points(target, points))
    # Deepest first: ln(0.7 / 0.5^3) against ln 0.3, then the far point, three widths off.
    assert kept.tolist() == [3, 1, 2]
    # Half way between two equal Gaussians there is a saddle.
    even = Target(two_gaussians(DIM, 6.0).log_prob, DIM)
    assert distinct_minima(*fit_points(even, jnp.zeros((4, DIM)))).size == 0


def test_a_mode_outside_the_density_is_refused():
    density = odd(low=(0.0, 0.0)).log_density
    with pytest.raises(UserError, match="mode 1"):
        laplace_mixture(jax.random.key(0), density, jnp.array([[1.0, 1.0], [-1.0, 1.0]]))
