from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from densities import two_gaussians
from latentuq.inference.descent import Ends, Limits, descend, gauss_newton, newton
from latentuq.inference.target import Target

SCALE = 100.0
TOLERANCE = 1e-3


class Valley(eqx.Module):
    """Rosenbrock's residuals at bend 1, linear ones at bend 0; NaN left of the wall."""

    bend: jax.Array
    wall: jax.Array

    def residual(self, u):
        r = jnp.stack([10 * (u[1] - self.bend * u[0] ** 2), 1 - u[0]])
        return jnp.where(u[0] > self.wall, r, jnp.nan)

    def log_density(self, u):
        return -0.5 * jnp.sum(self.residual(u) ** 2) - 0.5 * jnp.sum((u / SCALE) ** 2)


def valley(bend=1.0, wall=-np.inf):
    density = Valley(jnp.asarray(bend), jnp.asarray(wall))
    return Target(density.log_density, 2, density.residual, SCALE)


def run(model_fn, target, starts, *, betas=1.0, lanes=4, steps=60, hopeless=np.inf) -> Ends:
    starts = jnp.asarray(starts, jnp.float32)
    betas = jnp.full(len(starts), betas, jnp.float32)
    return descend(model_fn, target, starts, betas, Limits(lanes, steps, TOLERANCE, hopeless))


STARTS = np.random.RandomState(0).randn(12, 2) * 2


@cache
def rosenbrock(lanes=4, betas=1.0):
    return run(gauss_newton, valley(), STARTS, lanes=lanes, betas=betas)


def test_models_agree_with_autodiff():
    u = jnp.array([0.3, -0.7])
    target = valley(0.0)
    psi = lambda u: -target.log_density_fn(u)  # noqa: E731
    for model in (gauss_newton(target, u), newton(target, u)):
        np.testing.assert_allclose(model.value, psi(u), rtol=1e-5)
        np.testing.assert_allclose(model.gradient, jax.grad(psi)(u), rtol=1e-5)
        # The residuals are linear: Gauss-Newton's curvature is the Hessian.
        np.testing.assert_allclose(model.curvature, jax.hessian(psi)(u), rtol=1e-5, atol=1e-5)
    bent = newton(valley(1.0), u)
    hessian = jax.hessian(lambda u: -valley(1.0).log_density_fn(u))(u)
    np.testing.assert_allclose(bent.curvature, hessian, rtol=1e-4)


def test_a_quadratic_takes_a_handful_of_evaluations():
    ends = run(gauss_newton, valley(0.0), STARTS[:1], lanes=4)
    # Damping 0.1, then 0.025, ... of the curvature: each step leaves at most that share of the
    # distance, so three steps leave 0.1 * 0.025 * 0.00625 of 4, far below the tolerance, and the
    # start itself is one evaluation.
    assert ends.evaluations <= 4
    expected = np.array([1 / (1 + SCALE**-2), 0])
    np.testing.assert_allclose(ends.points[0], expected, atol=np.sqrt(2 * TOLERANCE))
    np.testing.assert_allclose(ends.curvatures[0], np.diag([1, 100]) + np.eye(2) / SCALE**2)


def test_rosenbrock_from_everywhere():
    ends = rosenbrock()
    assert np.all(ends.values < 1e-4 + TOLERANCE)
    assert np.all(ends.decrements < TOLERANCE)
    # A decrement of 1e-3 nats is a Mahalanobis distance of 0.045 in the local metric, in which
    # the valley is about one unit per unit of u_0.
    np.testing.assert_allclose(ends.points, np.ones((12, 2)), atol=0.15)


@pytest.mark.parametrize("lanes", [3, 12])
def test_the_number_of_lanes_changes_nothing_but_the_waiting(lanes):
    ends, same = rosenbrock(lanes), rosenbrock()
    np.testing.assert_allclose(ends.points, same.points, atol=0.05)
    np.testing.assert_allclose(ends.values, same.values, atol=TOLERANCE)
    # Every round works on every lane; all starts have at least two rounds.
    assert ends.evaluations % lanes == 0
    assert ends.evaluations >= 24


def test_starts_that_only_pad_the_shape_cost_nothing():
    ends = descend(
        gauss_newton,
        valley(),
        jnp.asarray(STARTS, jnp.float32),
        jnp.ones(12),
        Limits(lanes=4, steps=60, tolerance=TOLERANCE, hopeless=np.inf),
        number=jnp.asarray(3),
    )
    assert np.all(ends.values[:3] < 1e-4 + TOLERANCE)
    assert ends.evaluations < 0.7 * rosenbrock().evaluations


def test_tempered_starts_end_at_the_posterior_minimum():
    ends = rosenbrock(betas=0.02)
    assert np.all(ends.decrements < TOLERANCE)
    np.testing.assert_allclose(ends.points, np.ones((12, 2)), atol=0.15)


def test_heating_starts_at_the_reference_and_ends_at_the_posterior():
    target = Target(two_gaussians(2, 4.0, (0.7, 0.3)).log_prob, 2)
    starts = np.array([[0.05, 0.5], [-0.05, -3.0], [0.5, 2.0], [2.0, 1.0]])
    # Cold, the first step minimises u.u / 2, but for the damping of 0.1: a share 0.1 / 1.1 is left.
    cold = run(newton, target, starts, betas=1e-6, steps=2)
    np.testing.assert_allclose(cold.points, starts / 11, atol=1e-4)
    ends = run(newton, target, starts, betas=0.05)
    assert np.all(ends.decrements < TOLERANCE)
    np.testing.assert_allclose(np.abs(ends.points), np.tile([2.0, 0.0], (4, 1)), atol=0.1)
    # log(20) / log(1.6) = 7 steps of heating and about as many to converge, in each of four lanes.
    assert ends.evaluations < 4 * 20


def test_a_wall_of_nan_is_no_end_and_no_trap():
    starts = np.array(STARTS)
    starts[:6, 0] = -3 - np.arange(6)
    starts[6:, 0] = np.linspace(-1.9, 1, 6)
    ends = run(gauss_newton, valley(wall=-2.0), starts)
    assert np.all(np.isinf(ends.values[:6]))
    np.testing.assert_array_equal(ends.points[:6], starts[:6].astype(np.float32))
    np.testing.assert_allclose(ends.points[6:], np.ones((6, 2)), atol=0.15)
    assert np.all(np.isfinite(ends.points))


@cache
def from_the_ridge():
    """Starts on and beside the ridge between two modes."""
    starts = [[0.0, 0.5], [0.05, 0.5], [-0.05, -3.0], [0.5, 2.0]]
    return run(newton, Target(two_gaussians(2, 4.0, (0.7, 0.3)).log_prob, 2), starts)


def test_newton_goes_downhill_where_the_curvature_is_negative():
    ends = from_the_ridge()
    assert np.all(ends.decrements < TOLERANCE)
    # Thirteen rounds of four lanes: without |B| the first steps would be far too long.
    assert ends.evaluations <= 4 * 13
    # Every end is a minimum, at 2 up to the neighbour's pull of exp(-8) and the tolerance.
    assert np.all(np.linalg.eigvalsh(ends.curvatures) > 0)
    distance = np.linalg.norm(np.abs(ends.points) - np.array([2.0, 0.0]), axis=1)
    assert np.all(distance < np.sqrt(2 * TOLERANCE) + 1e-2)
    heights = np.log(np.where(ends.points[:, 0] < 0, 0.7, 0.3)) - np.log(2 * np.pi)
    np.testing.assert_allclose(-ends.values, heights, atol=2 * TOLERANCE + np.exp(-8) / 0.3)


def test_hopeless_starts_are_given_up():
    # A valley so long that a start far out is still far above the best after a third of its steps.
    starts = np.tile([[1.0, 1.0]], (12, 1))
    starts[-1] = [-80.0, 6400.0]
    patient = run(gauss_newton, valley(), starts, steps=12)
    given_up = run(gauss_newton, valley(), starts, steps=12, hopeless=20.0)
    assert given_up.values[-1] > 20
    assert given_up.evaluations < patient.evaluations
    np.testing.assert_allclose(given_up.values[:-1], patient.values[:-1])
