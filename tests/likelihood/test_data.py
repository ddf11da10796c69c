"""Data of any units: the same problem in units of one, exactly."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentuq as lu
from latentuq.core.errors import UserError
from latentuq.forward.blur import Blur
from latentuq.forward.downsample import Downsample
from latentuq.forward.gain import Gain
from latentuq.forward.mask import RandomMask
from latentuq.forward.matrix import Matrix
from latentuq.forward.operator import Operator, to_matrix
from latentuq.forward.stacked import stack
from latentuq.likelihood.data import dense_memory
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior.model_error import ModelError
from latentuq.problem.inverse import InverseProblem
from studies.exact import exact_posterior, linear_prior

SHAPE, DIM = (6, 4), 3
U = jnp.array([0.3, -1.0, 0.7])
UNITS = [1e-30, 1e-18, 1.0, 1e30]
OPERATORS = {
    "mask": RandomMask(0.3, seed=1),
    "gain": Gain(np.geomspace(1e-6, 1, 24).reshape(SHAPE)),
    "blocks": Downsample(2),
    "blur": RandomMask(0.3, seed=1) @ Blur(1.0, size=3),
}
ERRORS = {
    "diagonal": None,
    "low rank": ModelError(
        jnp.full(SHAPE, 0.01), 0.1 * jax.random.normal(jax.random.key(1), (2, *SHAPE))
    ),
    "signal": ModelError(
        jnp.full(SHAPE, 0.01), jnp.zeros((0, *SHAPE)), jnp.linspace(0.5, 1, 9), 20.0
    ),
}


def make_problem(operator: Operator, unit: float, error: str = "low rank") -> InverseProblem:
    """A problem whose data, noise and operator are those of another one, times a unit."""
    prior = linear_prior(jax.random.key(0), DIM, SHAPE, 0.1)
    if error != "diagonal":
        prior = dataclasses.replace(prior, model_error=ERRORS[error])
    bound = operator.bind(SHAPE)
    reach = np.abs(to_matrix(bound)).sum(axis=1).reshape(bound.output_shape)
    y = reach * (0.2 + np.random.default_rng(0).uniform(size=reach.shape))
    noise = 0.1 * np.where(reach > 0, reach, 1)
    return InverseProblem(prior, Gain(unit) @ bound, GaussianNoise(unit * noise), unit * y)


def count(problem: InverseProblem) -> float:
    """How many data a power of the unit belongs to."""
    powers = getattr(problem.likelihood, "powers", problem.observed)
    return float(np.sum(powers))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS.keys())
@pytest.mark.parametrize("error", ERRORS)
def test_densities_differ_by_the_units_alone(error, operator, unit):
    problem, plain = make_problem(operator, unit, error), make_problem(operator, 1.0, error)
    shift = count(plain) * np.log(unit)
    # Rounding of the unit itself, in every datum, and of the sum in float32.
    tolerance = 1e-3 + 3e-7 * abs(shift)
    expected = float(plain.log_density(U)) - shift
    np.testing.assert_allclose(problem.log_density(U), expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(problem.residual(U), plain.residual(U), atol=1e-4)
    np.testing.assert_allclose(problem.chi_squared(U), plain.chi_squared(U), rtol=1e-4)
    key = jax.random.key(4)
    np.testing.assert_allclose(
        problem.conditional_images(key, U), plain.conditional_images(key, U), atol=1e-4
    )
    drawn, plainly = problem.simulate(key).y, plain.simulate(key).y
    np.testing.assert_allclose(np.asarray(drawn, np.float64) / unit, plainly, rtol=1e-4, atol=1e-6)
    moved = float(problem.with_data(drawn).log_density(U))
    expected = float(plain.with_data(plainly).log_density(U)) - shift
    np.testing.assert_allclose(moved, expected, rtol=0, atol=tolerance + 1e-3)


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("operator", ["mask", "blur"])
def test_the_density_is_the_closed_form_of_a_linear_gaussian_problem(operator, unit):
    problem = make_problem(OPERATORS[operator], unit)
    exact = exact_posterior(problem)
    normal = np.asarray(U, np.float64) - exact.mean
    form = -0.5 * normal @ np.linalg.solve(exact.covariance, normal)
    form -= 0.5 * np.linalg.slogdet(2 * np.pi * exact.covariance)[1]
    expected = exact.log_evidence + form
    np.testing.assert_allclose(problem.log_density(U), expected, rtol=1e-6, atol=1e-3)


def test_powers_of_two_change_nothing_but_the_constant():
    plain, problem = (make_problem(OPERATORS["gain"], unit) for unit in (1.0, 2.0**-90))
    leaves = zip(jax.tree.leaves(plain.density), jax.tree.leaves(problem.density), strict=True)
    differing = [(one, other) for one, other in leaves if not np.array_equal(one, other)]
    # What differs is the units, and the sum of their logarithms.
    assert len(differing) == 2
    assert problem.density.log_density(U) == plain.density.log_density(U)
    np.testing.assert_array_equal(problem.density.residual(U), plain.density.residual(U))


def test_parts_of_very_different_units_are_one_problem():
    prior = linear_prior(jax.random.key(0), DIM, SHAPE, 0.1)
    matrix = Matrix(np.random.default_rng(1).uniform(size=(5, 24)))
    y = np.random.default_rng(2).uniform(size=29)

    def log_density(unit: float) -> float:
        sizes = np.repeat([unit, 1.0], [24, 5])
        operator = stack(Gain(unit) @ RandomMask(0.5), matrix)
        problem = InverseProblem(prior, operator, GaussianNoise(0.1 * sizes), y * sizes)
        return float(problem.log_density(U))

    np.testing.assert_allclose(
        log_density(1e-18), log_density(1.0) - 12 * np.log(1e-18), rtol=0, atol=2e-3
    )


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_correlated_noise_of_any_unit(unit):
    prior = linear_prior(jax.random.key(0), DIM, SHAPE, 0.1)
    covariance = 0.01 * (np.eye(24) + 0.5)
    y = np.random.default_rng(0).uniform(size=SHAPE)

    def problem(unit: float) -> InverseProblem:
        noise = GaussianNoise(covariance=unit**2 * covariance)
        return InverseProblem(prior, Gain(unit), noise, unit * y)

    shift = 24 * np.log(unit)
    expected = float(problem(1.0).log_density(U)) - shift
    np.testing.assert_allclose(problem(unit).log_density(U), expected, rtol=0, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [2.0**-100, 2.0**100])
def test_posteriors_in_all_units_are_the_same(unit):
    plain, problem = (make_problem(OPERATORS["mask"], each) for each in (1.0, unit))
    one, other = (lu.solve(jax.random.key(0), each) for each in (plain, problem))
    np.testing.assert_array_equal(one.draws, other.draws)
    np.testing.assert_array_equal(one.log_weights, other.log_weights)
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.std, other.std)
    exact = exact_posterior(problem)
    # Float32 holds thousands of nats to some 1e-4.
    assert abs(other.log_evidence - exact.log_evidence) < 4 * other.log_evidence_error + 1e-3
    assert one.verdict.reliable == other.verdict.reliable
    assert other.log_prob(exact.mean) == pytest.approx(float(one.log_prob(exact.mean)), abs=2e-3)


def large_problem(side: int) -> InverseProblem:
    shape = (side, side)
    prior = lu.prior_from(lambda u: jnp.full(shape, u[0]), 1, shape, 0.1)
    return InverseProblem(prior, Blur(2.0, size=5), GaussianNoise(0.1), np.zeros(shape))


def test_a_blur_that_memory_cannot_hold_is_refused_at_once(monkeypatch):
    with pytest.raises(UserError, match=r"16384 data would take about 12 GB.*limit is 8 GB"):
        large_problem(128)
    monkeypatch.setenv("LATENTUQ_MEMORY", "0.06")
    with pytest.raises(UserError, match=r"limit is 0\.06 GB; crop"):
        large_problem(32)
    monkeypatch.setenv("LATENTUQ_MEMORY", "0.2")
    large_problem(32)
    monkeypatch.setenv("LATENTUQ_MEMORY", "much")
    with pytest.raises(UserError, match="a number of GB, not 'much'"):
        large_problem(8)


PEAK = """
import sys
sys.path.insert(0, TESTS)
from test_data import large_problem, resident
large_problem(8)
before = resident("VmRSS:")
large_problem(48)
print(resident("VmHWM:") - before)
"""


def resident(name: str) -> float:
    """The GB of memory of this process, as the kernel counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024e-9 for line in lines if line.startswith(name))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Asks the Linux kernel.")
def test_the_estimate_of_memory_is_what_it_takes():
    # In a process of its own: the peak of this one is that of other tests.
    script = PEAK.replace("TESTS", repr(str(Path(__file__).parent)))
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(run.stdout) == pytest.approx(dense_memory(48**2, 48**2, 48**2), rel=0.3)
