import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from densities import odd, quadratic, two_gaussians
from studies.baselines.svi import Settings
from studies.reproduce.gaussians import (
    EL2O,
    HESSIANS,
    LAPLACE,
    Gaussian,
    continue_el2o,
    describe_fit,
    distance,
    fit_gaussians,
    gaussian_kl,
    measure_slices,
    measure_step_noise,
    read_gaussian,
)
from studies.reproduce.recipe import are_minima, chance_of_all, run_recipe
from studies.reproduce.variational import (
    measure_stability,
    measure_svi,
    steps_to_converge,
)

MEAN = np.array([0.5, -1.0, 0.2])
COVARIANCE = np.array([[0.5, 0.3, 0.0], [0.3, 0.4, 0.1], [0.0, 0.1, 0.3]])
EXACT = Gaussian(MEAN, np.linalg.cholesky(COVARIANCE))
TARGET = quadratic(MEAN, COVARIANCE, 2.0)


def test_divergence_of_gaussians():
    assert gaussian_kl(EXACT, EXACT) == pytest.approx(0, abs=1e-12)
    # N(0, 4) against N(1, 1): (4 + 1 - 1) / 2 - ln 2.
    wide, off = (
        Gaussian(np.array([mean]), np.array([[std]])) for mean, std in ((0.0, 2.0), (1.0, 1.0))
    )
    assert gaussian_kl(wide, off) == pytest.approx(2 - np.log(2))
    assert distance(MEAN + 2 * EXACT.std, MEAN, EXACT.std) == pytest.approx(2)
    np.testing.assert_allclose(EXACT.precision, np.linalg.inv(COVARIANCE))
    us = MEAN + np.eye(3)
    np.testing.assert_allclose(EXACT.log_prob(us), multivariate_normal(MEAN, COVARIANCE).logpdf(us))


@pytest.mark.slow
def test_the_bound_is_low_by_the_divergence():
    found = describe_fit(jax.random.key(0), TARGET.log_density, *EXACT, n=256)
    assert found["elbo"] == pytest.approx(2.0, abs=1e-4)
    assert found["elbo_error"] < 1e-4
    wider = Gaussian(MEAN, 1.2 * EXACT.factor)
    found = describe_fit(jax.random.key(0), TARGET.log_density, *wider, n=4096)
    gap = found["elbo"] - (2.0 - gaussian_kl(wider, EXACT))
    assert abs(gap) < 4 * found["elbo_error"]


@pytest.mark.slow
def test_a_gaussian_target_leaves_el2o_no_noise():
    found = measure_step_noise(jax.random.key(0), TARGET.log_density, EXACT, samples=16)
    # The mean of 16 standard normal numbers, over 64 repeats and 3 dimensions.
    assert found["plain"] == pytest.approx(0.25, rel=4 / np.sqrt(2 * 64 * 3))
    assert found["el2o"] < 1e-5
    assert 0 <= found["el2o_kl"] + 1e-9 < 1e-6


@pytest.mark.slow
def test_all_fits_of_a_gaussian_are_exact():
    fits = fit_gaussians(jax.random.key(0), TARGET.log_density, MEAN)["fits"]
    assert set(fits) == {LAPLACE, EL2O, HESSIANS}
    for fit in fits.values():
        assert gaussian_kl(read_gaussian(fit), EXACT) < 1e-6
        assert fit["elbo"] == pytest.approx(2.0, abs=1e-4)
    assert fits[LAPLACE]["forward_equivalents"] < fits[EL2O]["forward_equivalents"]


@pytest.mark.slow
def test_el2o_and_svi_meet_away_from_the_mode():
    skewed = odd(bend=0.5)
    fits = fit_gaussians(jax.random.key(0), skewed.log_density, np.zeros(2))["fits"]
    settings = Settings(64, (1500, 1500), (1e-2, 1e-3))
    svi = measure_svi(jax.random.key(1), skewed.log_density, 2, "full-rank", settings)
    assert gaussian_kl(read_gaussian(fits[EL2O]), read_gaussian(svi)) < 0.02
    assert gaussian_kl(read_gaussian(fits[HESSIANS]), read_gaussian(svi)) < 0.02
    # Laplace stays at the mode, with a lower bound.
    assert gaussian_kl(read_gaussian(fits[LAPLACE]), read_gaussian(svi)) > 0.05
    assert fits[LAPLACE]["elbo"] < svi["elbo"]
    # On many draws EL2O stays where SVI has arrived.
    limit = continue_el2o(jax.random.key(2), skewed.log_density, read_gaussian(svi))
    assert gaussian_kl(read_gaussian(limit), read_gaussian(svi)) < 0.01
    assert abs(limit["elbo"] - svi["elbo"]) < 4 * np.hypot(limit["elbo_error"], svi["elbo_error"])
    assert svi["finite"]
    assert svi["steps"] == 3000
    assert 100 <= svi["converged"] < 2900


@pytest.mark.slow
def test_slices_of_a_gaussian_and_of_its_fit_are_one():
    off = Gaussian(MEAN + 0.3, EXACT.factor)
    fits = {"exact": EXACT, "off": off}
    (curve,) = measure_slices(TARGET.log_density, MEAN, EXACT.std, fits, [1])
    np.testing.assert_allclose(curve["exact"], curve["fits"]["exact"], atol=2e-3)
    # The other starts from -ln p at its own mean.
    anchor = 0.5 * np.full(3, 0.3) @ EXACT.precision @ np.full(3, 0.3)
    assert min(curve["fits"]["off"]) == pytest.approx(anchor, abs=0.05)


def test_convergence_is_when_the_bound_stays():
    rising = np.concatenate([np.linspace(-100, 0, 1000), np.zeros(1000)])
    # The mean over 100 steps is -0.1 where the last is; a step is worth 0.1.
    assert 1000 <= steps_to_converge(rising) <= 1110
    assert steps_to_converge(np.linspace(-100, 0, 2000)) is None
    assert steps_to_converge(np.full(500, np.nan)) is None


@pytest.mark.slow
def test_instability_is_counted():
    calm = measure_stability(
        jax.random.key(0), TARGET.log_density, 3, "softplus", 1e-2, steps=300, repeats=2
    )
    assert (calm["broken"], calm["fallen"], calm["runs"]) == (0, 0, 2)
    box = odd(low=(-3.0, -3.0), high=(3.0, 3.0), outside=-np.inf)
    broken = measure_stability(
        jax.random.key(0), box.log_density, 2, "exponential", 1e-2, steps=300, repeats=2
    )
    assert broken["broken"] == 2


@pytest.mark.slow
def test_the_recipe_tells_minima_and_weighs_them():
    mixture = two_gaussians(2, 6.0, (0.25, 0.75), (0.5, 0.5))
    cell = run_recipe(
        jax.random.key(0), mixture.log_prob, 2, annealed=False, steps=(400, 200, 100), starts=12
    )
    assert cell["minima"] == 2
    np.testing.assert_allclose(cell["weights"], [0.75, 0.25], atol=1e-2)
    assert all(are_minima(cell))
    assert set(cell["basins"]) == {0, 1}
    assert cell["log_evidence"] == pytest.approx(0, abs=0.02)
    heights = -np.asarray(jax.vmap(mixture.log_prob)(mixture.means))
    assert all(np.min(np.abs(end - heights)) < 0.01 for end in cell["ends"])
    # Nothing but a saddle: no start ends in a minimum, and there is nothing to weigh.
    saddle = quadratic(np.zeros(2), np.diag([1.0, -1.0]))
    cell = run_recipe(
        jax.random.key(0), saddle.log_density, 2, annealed=True, steps=(50, 20, 10), starts=4
    )
    assert (cell["minima"], cell["weights"], cell["draws"]) == (0, [], [])
    assert not any(are_minima(cell))
    # Descents that had no time to arrive are at no minimum, however curved it is there.
    cell = run_recipe(
        jax.random.key(0), TARGET.log_density, 3, annealed=False, steps=(1, 1, 1), starts=4
    )
    assert all(cell["definite"])
    assert not any(are_minima(cell))
    # What a Newton step gains on a parabola is all that there is to gain.
    left = np.array(cell["ends"]) + float(TARGET.log_density(jnp.asarray(MEAN)))
    np.testing.assert_allclose(cell["gains"], left, atol=2e-3)


def test_the_chance_of_finding_all_minima():
    # Both of two starts: certain. One of two, once in twenty starts: ten find it half of the time.
    assert chance_of_all([0, 1], [0.6, 0.4], 2) == 1
    rare = chance_of_all([0] * 19 + [1], [0.9, 0.1], 10)
    assert rare == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(4000))
    assert chance_of_all([0] * 19 + [1], [0.999, 0.001], 10) == 1
    assert chance_of_all([-1, -1], [], 10) is None
