import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from latentuq.inference.el2o import el2o_update, fit_el2o, spread_normal_draws

MEAN = np.array([0.5, -1.0])
PRECISION = np.array([[2.0, 0.6], [0.6, 1.0]])
LOG_Z = 3.0


def gaussian(u):
    """E^3 N(MEAN, PRECISION^-1)."""
    gap = u - jnp.asarray(MEAN, u.dtype)
    energy = 0.5 * gap @ jnp.asarray(PRECISION, u.dtype) @ gap
    return LOG_Z - energy + 0.5 * math.log(np.linalg.det(PRECISION)) - math.log(2 * math.pi)


def bent(u, bend=1.0):
    """Skewed and curved, yet with a fit for every alpha."""
    odd = jnp.exp(0.5 * u[1]) + 0.1 * u[0] ** 2 * u[1]
    return gaussian(u) - bend * (0.1 * u[0] ** 4 + odd)


def log_q(parameters, u):
    """Ln N(mean, (C C^T)^-1) with a lower triangular C of positive diagonal."""
    mean, log_diagonal, low = parameters[:2], parameters[2:4], parameters[4]
    C = jnp.array([[jnp.exp(log_diagonal[0]), 0.0], [low, jnp.exp(log_diagonal[1])]])
    return -0.5 * jnp.sum((C.T @ (u - mean)) ** 2) + jnp.sum(log_diagonal) - math.log(2 * math.pi)


@jax.jit
def order_sums(parameters, bend, draws):
    """The objective's sums of orders 0, 1, 2 and, over j <= i, 2; and their gradients."""

    def sums(parameters):
        def gap(u):
            return log_q(parameters, u) - bent(u, bend) + LOG_Z

        def squares(u):
            hessian = jax.hessian(gap)(u) ** 2
            orders = gap(u) ** 2, jax.grad(gap)(u) ** 2, hessian, jnp.tril(hessian)
            return jnp.stack([jnp.sum(order) for order in orders])

        return jnp.mean(jax.vmap(squares)(draws), axis=0)

    return sums(parameters), jax.jacfwd(sums)(parameters)


def minimise(bend, draws, alphas):
    """Mean and precision of the Gaussian at the numerical minimum of the objective, and that."""

    def loss(parameters):
        values, gradients = order_sums(parameters, bend, draws)
        return np.dot(alphas, values), np.dot(alphas, gradients)

    best = minimize(loss, np.zeros(5), jac=True, method="BFGS", options={"gtol": 1e-11})
    diagonal, low = np.exp(best.x[2:4]), best.x[4]
    C = np.array([[diagonal[0], 0.0], [low, diagonal[1]]])
    return best.x[:2], C @ C.T, best.fun


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def draws(double):
    return jnp.asarray(np.random.default_rng(0).normal(0.3, 1.0, (12, 2)))


@jax.jit
def derivatives(draws):
    """Gradients and mean Hessian of the bent target."""
    hessians = jax.vmap(jax.hessian(bent))(draws)
    return jax.vmap(jax.grad(bent))(draws), jnp.mean(hessians, axis=0)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 5.0])
def test_closed_form_is_the_minimum_of_the_objective(draws, alpha):
    mean, precision = el2o_update(draws, *derivatives(draws), alpha)
    expected_mean, expected_precision, _ = minimise(1.0, draws, (0, 1, alpha, 0))
    # The minimum is quadratic and BFGS gives up at the rounding of the objective: errors of the
    # square root of that, 1e-8, times the condition of the problem.
    np.testing.assert_allclose(mean, expected_mean, atol=1e-6)
    np.testing.assert_allclose(precision, expected_precision, atol=1e-6)


def test_infinite_alpha_is_the_papers_update_and_the_limit(draws):
    gradients, hessian = derivatives(draws)
    mean, precision = el2o_update(draws, gradients, hessian, math.inf)
    np.testing.assert_allclose(precision, -hessian, rtol=1e-12)
    expected = np.mean(draws + np.linalg.solve(-hessian, gradients.T).T, axis=0)
    np.testing.assert_allclose(mean, expected, rtol=1e-12)
    # Finite alpha differs by terms of relative order 1 / alpha.
    near_mean, near_precision = el2o_update(draws, gradients, hessian, 1e9)
    np.testing.assert_allclose(near_precision, precision, rtol=1e-7)
    np.testing.assert_allclose(near_mean, mean, rtol=1e-7)


@pytest.mark.parametrize("alphas", [(1, 0, 0, 0), (1, 1, 0, 0), (1, 0.5, 2, 0), (1, 1, 0, 1)])
def test_every_order_recovers_a_gaussian(draws, alphas):
    mean, precision, least = minimise(0.0, draws, alphas)
    assert least < 1e-14
    np.testing.assert_allclose(mean, MEAN, atol=1e-6)
    np.testing.assert_allclose(precision, PRECISION, atol=1e-6)


def test_weights_of_zero_leave_draws_out(draws):
    gradients, _ = derivatives(draws)
    weights = jnp.where(jnp.arange(12) < 8, 1 / 8, 0.0)
    for left, right in zip(
        el2o_update(draws, gradients, weights=weights),
        el2o_update(draws[:8], gradients[:8]),
        strict=True,
    ):
        np.testing.assert_allclose(left, right, rtol=1e-10)


def test_precision_is_projected_where_the_target_is_convex(draws):
    # ln p = u_0^2 / 2 - u_1^2 / 2: curvatures -1 and 1.
    _, precision = el2o_update(draws, draws * jnp.array([1.0, -1.0]))
    np.testing.assert_allclose(precision, np.diag([1e-5, 1.0]), atol=1e-10)
    with pytest.raises(ValueError, match="hessian_mean"):
        el2o_update(draws, draws, alpha=1.0)


@pytest.mark.parametrize(
    ("dim", "samples", "alpha"), [(1, 2, 0.0), (7, 8, 0.0), (100, 201, 0.0), (7, 3, math.inf)]
)
def test_one_step_is_exact_for_a_gaussian(double, dim, samples, alpha):
    rng = np.random.default_rng(dim)
    root = rng.normal(size=(dim, dim)) / math.sqrt(dim) + 2 * np.eye(dim)
    centre = rng.normal(size=dim)

    def target(u):
        return LOG_Z - 0.5 * jnp.sum((root.T @ (u - centre)) ** 2)

    fit = fit_el2o(
        jax.random.key(0),
        target,
        jnp.zeros(dim),
        0.5 * jnp.eye(dim),
        samples=samples,
        iterations=1,
        alpha=alpha,
    )
    covariance = np.linalg.inv(root @ root.T)
    log_mass = LOG_Z + 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    # Rounding of 1e-16, amplified by the condition of dim + 1 random draws.
    np.testing.assert_allclose(fit.mean, centre, atol=1e-8)
    np.testing.assert_allclose(fit.factor, np.linalg.cholesky(covariance), atol=1e-8)
    np.testing.assert_allclose(fit.log_mass, log_mass, atol=1e-8)
    assert fit.value < 1e-12


def test_fit_converges_to_the_stationary_point_of_the_merit(double):
    # In one dimension with ln p = a u - exp(u): <ln p>_q = a m - exp(m + v / 2), so the best
    # Gaussian has exp(m + v / 2) = a and v = 1 / a.
    a = 4.0
    variance, mean = 1 / a, math.log(a) - 1 / (2 * a)
    log_mass = a * mean - a + 0.5 * math.log(2 * math.pi * variance) + 0.5

    def fit(key):
        return fit_el2o(
            key,
            lambda u: a * u[0] - jnp.exp(u[0]),
            jnp.array([-1.0]),
            jnp.array([[2.0]]),
            samples=64,
            iterations=25,
        )

    fits = jax.vmap(fit)(jax.random.split(jax.random.key(1), 20))
    variances = np.asarray(fits.factor[:, 0, 0]) ** 2
    # At the optimum the gradient is 2 - 2 exp(z / 2 - 1/8) in z = (u - m) / v^(1/2). Over normal z,
    # averaged with its mirror image, it scatters by 0.354 and the precision by 0.280: 32 pairs give
    # 0.063 and 0.050. Steps that shrink as 2 / t leave 4 / (3 t) of a variance: a quarter of the
    # error after 20. Four standard errors; for the average of 20 fits, with the bias of second
    # order, 0.05^2 times a few.
    np.testing.assert_allclose(fits.mean[:, 0], mean, atol=0.065 * math.sqrt(variance))
    np.testing.assert_allclose(variances, variance, rtol=0.05)
    np.testing.assert_allclose(variances.mean(), variance, rtol=0.02)
    # ln p - ln q scatters by 0.051 over pairs: four times 0.051 / sqrt(32). It is below the log of
    # the mass, ln Gamma(4).
    np.testing.assert_allclose(fits.log_mass, log_mass, atol=0.036)
    assert np.mean(fits.log_mass) < math.log(6)


@jax.jit
def _fit_bent(key, mean, factor, bend, edge, beyond):
    def target(u):
        return jnp.where(u[0] < edge, bent(u, bend), beyond)

    return fit_el2o(key, target, mean, factor, samples=400, iterations=15)


def fit_bent(key, mean, factor, bend=0.0, edge=jnp.inf, beyond=0.0):
    """Fits the bent Gaussian, with the log density `beyond` where u_0 > edge."""
    # Equal types in every call: compiled once.
    return _fit_bent(key, *map(np.float32, (mean, factor, bend, edge, beyond)))


START = np.zeros(2), np.array([[1.0, 0.0], [0.5, 1.0]])


@pytest.mark.parametrize("beyond", [-jnp.inf, jnp.nan])
def test_draws_that_are_not_finite_are_left_out(beyond):
    # Below the edge every gradient is the Gaussian's, and so is the fit; its mass is the share of
    # the Gaussian below the edge, one standard deviation above the mean.
    covariance = np.linalg.inv(PRECISION)
    edge = MEAN[0] + math.sqrt(covariance[0, 0])
    fit = fit_bent(jax.random.key(3), *START, edge=edge, beyond=beyond)
    np.testing.assert_allclose(fit.mean, MEAN, atol=1e-4)
    np.testing.assert_allclose(fit.factor @ fit.factor.T, covariance, atol=1e-4)
    inside = stats.norm.cdf(1.0)
    # Four binomial standard errors of ln(share) with 400 draws.
    error = math.sqrt((1 - inside) / (inside * 400))
    assert abs(fit.log_mass - LOG_Z - math.log(inside)) < 4 * error


def test_a_density_that_is_never_finite_keeps_the_start():
    fit = fit_bent(jax.random.key(3), *START, edge=-jnp.inf, beyond=jnp.nan)
    np.testing.assert_array_equal(fit.mean, START[0])
    np.testing.assert_allclose(fit.factor, START[1], rtol=1e-6)
    assert fit.log_mass == -jnp.inf
    assert fit.value == jnp.inf


def test_fit_forgets_its_start():
    # From far away, where most draws see a positive curvature, and from a narrow one.
    keys = jax.random.split(jax.random.key(4), 2)
    far = fit_bent(keys[0], [3.0, -6.0], 1.5 * np.eye(2), bend=2.0)
    near = fit_bent(keys[1], np.zeros(2), 0.1 * np.eye(2), bend=2.0)
    # Noise of the merit is sd(ln p - ln q) / sqrt(400), and 3 * value bounds that variance.
    noise = math.sqrt(3 * max(far.value, near.value) / 400)
    assert abs(far.log_mass - near.log_mass) < 4 * math.sqrt(2) * noise
    # One update errs by about sqrt(value / 400) in units of the fit, the average of ten by less.
    np.testing.assert_allclose(
        np.linalg.solve(near.factor, far.mean - near.mean), 0, atol=4 * noise
    )
    ratio = np.linalg.solve(near.factor, far.factor)
    np.testing.assert_allclose(ratio, np.eye(2), atol=4 * noise)
    assert max(far.value, near.value) < 0.5


def test_gradients_alone_need_more_samples_than_dimensions():
    with pytest.raises(ValueError, match="more than 3 samples"):
        fit_el2o(jax.random.key(0), jnp.sum, jnp.zeros(3), jnp.eye(3), samples=3, iterations=1)


def test_spread_draws_are_normal_orthogonal_and_antithetic():
    keys = jax.random.split(jax.random.key(5), 1000)

    @partial(jax.jit, static_argnames="n")
    def draw(key, n):
        return spread_normal_draws(key, n, 3, jnp.float32)

    sets = np.asarray(jax.vmap(partial(draw, n=7))(keys))
    np.testing.assert_array_equal(sets[:, 4:], -sets[:, :3])
    products = np.einsum("sid,sjd->sij", sets[:, :3], sets[:, :3])
    np.testing.assert_allclose(products[:, [0, 0, 1], [1, 2, 2]], 0, atol=1e-4)
    # Independent across the sets, each number is N(0, 1) and each radius chi.
    for i in range(4):
        for j in range(3):
            assert stats.kstest(sets[:, i, j], "norm", method="asymp").pvalue > 1e-3
        squares = np.sum(sets[:, i] ** 2, axis=1)
        assert stats.kstest(squares, stats.chi2(3).cdf, method="asymp").pvalue > 1e-3
    few = np.asarray(draw(keys[0], n=5))
    assert np.linalg.matrix_rank(few - few.mean(axis=0)) == 3
