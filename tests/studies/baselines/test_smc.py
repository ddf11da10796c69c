import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq.core.errors import UserError
from latentuq.forward.mask import RegionMask
from latentuq.likelihood.noise import GaussianNoise
from latentuq.problem.inverse import InverseProblem
from studies.baselines.result import pool_evidence
from studies.baselines.smc import Size, plan_smc, smc
from studies.exact import exact_posterior, linear_prior

pytestmark = pytest.mark.slow

SIZE = PARTICLES, MOVES, ESS = Size(256, 3, 0.5)
DIM = 10


TRACES = []


class Mixture(eqx.Module):
    """exp(shift) times two unit Gaussians at +offset and -offset; NaN where u[1] < cut."""

    weights: jax.Array
    offset: jax.Array
    shift: jax.Array
    cut: jax.Array

    def __call__(self, u):
        TRACES.append(1)
        centres = jnp.stack([self.offset, -self.offset])
        logs = jnp.sum(jax.scipy.stats.norm.logpdf(u - centres), 1)
        value = jax.scipy.special.logsumexp(logs + jnp.log(self.weights)) + self.shift
        return jnp.where(u[1] < self.cut, jnp.nan, value)


def mixture(separation=8.0, first=0.7, shift=0.0, cut=-jnp.inf):
    offset = jnp.zeros(DIM).at[0].set(separation / 2)
    return Mixture(jnp.asarray([first, 1 - first]), offset, jnp.asarray(shift), jnp.asarray(cut))


def run(seed, log_density_fn, dim=DIM, **settings):
    return smc(jax.random.key(seed), log_density_fn, dim, size=SIZE, **settings)


def evidence_std(result):
    """Standard deviation of ln Z if each temperature's particles were independent.

    A step that leaves an effective fraction f of n draws adds (1/f - 1) / n to the variance; the
    draws that the moves add on top of the particles only lower it.
    """
    return np.sqrt(len(result.history["temperatures"]) * (1 / ESS - 1) / PARTICLES)


@pytest.fixture(scope="module")
def linear():
    prior = linear_prior(jax.random.key(1), 4, (5, 4))
    y = np.random.default_rng(2).normal(0.5, 0.3, (5, 4))
    return InverseProblem(prior, RegionMask(columns=(2, 3)), GaussianNoise(0.2), y)


@pytest.fixture(scope="module")
def linear_result(linear):
    return run(0, linear.log_density, linear.dim)


@pytest.fixture(scope="module")
def mixture_result():
    return run(0, mixture(), scale=4.0)


@pytest.fixture(scope="module")
def plan():
    return plan_smc(jax.random.key(9), mixture(), DIM, size=SIZE, scale=4.0)


def test_linear_gaussian_evidence(linear, linear_result):
    exact = exact_posterior(linear)
    assert abs(linear_result.log_evidence - exact.log_evidence) < 4 * evidence_std(linear_result)


def test_linear_gaussian_draws(linear, linear_result):
    exact = exact_posterior(linear)
    std = np.sqrt(np.diag(exact.covariance))
    draws = linear_result.draws
    assert draws.shape == (PARTICLES * MOVES, linear.dim)
    # At least as good as one independent draw per particle.
    assert np.all(np.abs(draws.mean(0) - exact.mean) < 4 * std / np.sqrt(PARTICLES))
    np.testing.assert_allclose(draws.std(0), std, rtol=4 / np.sqrt(2 * PARTICLES))


def test_mixture_evidence_and_weights(mixture_result):
    assert abs(mixture_result.log_evidence) < 4 * evidence_std(mixture_result)
    share = np.mean(mixture_result.draws[:, 0] > 0)
    # Each resampling draws the share anew; systematic resampling makes this an upper bound.
    steps = len(mixture_result.history["temperatures"])
    assert abs(share - 0.7) < 4 * np.sqrt(steps * 0.7 * 0.3 / PARTICLES)


def test_evidence_scales_with_the_density(plan):
    plain, shifted = (run(0, mixture(shift=shift), scale=4.0, plan=plan) for shift in (0.0, 5.0))
    # Single precision: log densities of a few hundred, summed over a few temperatures.
    assert shifted.log_evidence == pytest.approx(plain.log_evidence + 5.0, abs=0.01)


def test_temperatures_rise_to_one(mixture_result):
    temperatures = mixture_result.history["temperatures"]
    assert temperatures[-1] == 1
    assert np.all(np.diff(temperatures, prepend=0) > 0)


def test_cost_is_counted(mixture_result):
    history = mixture_result.history
    steps = len(history["temperatures"])
    # One gradient starts each particle at each temperature, one more per leapfrog step.
    gradients = PARTICLES * (steps + history["leapfrogs"].sum())
    forwards = PARTICLES * MOVES * (steps + 1)
    # The plan has as many temperatures, and leapfrogs of its own.
    planning = mixture_result.gradients - gradients
    assert 0.5 < planning / gradients < 2
    assert mixture_result.forward_equivalents == 2 * forwards + 3 * mixture_result.gradients
    assert mixture_result.seconds > 0


def test_same_key_same_answer(mixture_result):
    again = run(0, mixture(), scale=4.0)
    assert again.log_evidence == mixture_result.log_evidence
    np.testing.assert_array_equal(again.draws, mixture_result.draws)


def test_another_density_of_the_same_shape_compiles_nothing(mixture_result):
    before = len(TRACES)
    run(1, mixture(separation=6.0, first=0.5), scale=3.0)
    assert len(TRACES) == before


def test_nan_has_no_mass():
    result = run(0, mixture(cut=0.0), scale=4.0)
    assert np.all(result.draws[:, 1] > 0)
    # The share of possible draws of the prior, one half, adds its binomial noise.
    tolerance = 4 * np.hypot(evidence_std(result), 1 / np.sqrt(PARTICLES * MOVES))
    assert result.log_evidence == pytest.approx(np.log(0.5), abs=tolerance)


def test_a_shared_plan_is_free_and_unbiased(plan, mixture_result):
    runs = [run(seed, mixture(), scale=4.0, plan=plan) for seed in range(40)]
    temperatures = [float(stage.temperature) for stage in plan.stages]
    np.testing.assert_allclose(runs[0].history["temperatures"], temperatures)
    assert runs[0].gradients < 0.75 * mixture_result.gradients
    # Adapting the temperatures on the particles that are weighted misses this by -0.1 nats.
    log_evidence, error = pool_evidence([result.log_evidence for result in runs])
    assert abs(log_evidence) < 3 * error
    assert error < 0.03


def test_nowhere_finite_is_said():
    with pytest.raises(UserError, match="not finite"):
        run(0, mixture(cut=jnp.inf), scale=4.0)


def test_pooling_averages_evidences():
    evidences = np.array([1.0, 2.0, 3.0, 2.0])
    log_evidence, error = pool_evidence(np.log(evidences) - 900)
    assert log_evidence == pytest.approx(np.log(2.0) - 900)
    assert error == pytest.approx(evidences.std(ddof=1) / 2 / 2.0)


def test_pooling_needs_two_runs():
    with pytest.raises(UserError, match="two runs"):
        pool_evidence([0.0])
