import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from latentuq.inference.mixture import Defensive, Mixture, gaussian_mixture, lower_factor

WEIGHTS = np.array([0.5, 0.3, 0.2, 0.0])
MEANS = np.array([[0.0, 0.0, 0.0], [2.0, -1.0, 0.5], [-1.0, 3.0, 1.0], [9.0, 9.0, 9.0]])
U = np.array([0.7, -0.4, 2.0])


def covariances() -> np.ndarray:
    roots = np.random.default_rng(0).normal(size=(4, 3, 3)) + 2 * np.eye(3)
    return roots @ roots.swapaxes(1, 2)


def make_mixture(degrees: float) -> Mixture:
    """Three components and one of weight zero."""
    with np.errstate(divide="ignore"):
        parts = np.log(WEIGHTS), MEANS, np.linalg.cholesky(covariances())
    return Mixture(*map(jnp.asarray, parts), degrees)


def scipy_log_probs(degrees: float) -> np.ndarray:
    return np.array(
        [
            stats.multivariate_normal(mean, scale).logpdf(U)
            if math.isinf(degrees)
            else stats.multivariate_t(mean, scale, df=degrees).logpdf(U)
            for mean, scale in zip(MEANS, covariances(), strict=True)
        ]
    )


@jax.jit
def evaluate(mixture: Mixture, u):
    return {
        "components": mixture.component_log_probs(u),
        "log_prob": mixture.log_prob(u),
        "responsibilities": mixture.responsibilities(u),
        "terms": mixture.component_terms(u[None]),
    }


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("degrees", [math.inf, 4.0])
def test_densities_are_those_of_scipy(double, degrees):
    mixture = make_mixture(degrees)
    if math.isinf(degrees):
        built = gaussian_mixture(10 * WEIGHTS, MEANS, covariances())
        jax.tree.map(partial(np.testing.assert_allclose, atol=1e-14), built, mixture)
    assert (mixture.dim, mixture.components) == (3, 4)
    found = evaluate(mixture, U)
    expected = scipy_log_probs(degrees)
    total = np.log(WEIGHTS @ np.exp(expected))
    np.testing.assert_allclose(found["components"], expected, rtol=1e-12)
    np.testing.assert_allclose(found["log_prob"], total, rtol=1e-12)
    shares = WEIGHTS * np.exp(expected - total)
    np.testing.assert_allclose(found["responsibilities"], shares, rtol=1e-10)
    # The same by one matrix product, with the distances; and their part of it on the host.
    terms, distances = found["terms"]
    np.testing.assert_allclose(terms[0], expected, rtol=1e-12)
    gaps = U - MEANS
    exact = np.einsum("ki,kij,kj->k", gaps, np.linalg.inv(covariances()), gaps)
    np.testing.assert_allclose(distances[0], exact, rtol=1e-10)
    np.testing.assert_allclose(mixture.energies(exact), mixture.energies(distances[0]), rtol=1e-10)


def test_many_degrees_of_freedom_tend_to_a_gaussian_in_single_precision():
    # The two differ by about (m^2 / 4 + dim m + dim^2) / nu < 1e-5; float32 log-gammas of
    # nu / 2 = 5e6 would be wrong by 1e-7 * 7e7 = 7.
    u = jnp.asarray(U)
    log_probs = [jax.jit(Mixture.log_prob)(make_mixture(nu), u) for nu in (1e7, math.inf)]
    np.testing.assert_allclose(*log_probs, rtol=1e-5)


@pytest.mark.parametrize("degrees", [math.inf, 4.0])
def test_responsibilities_are_finite_far_out(degrees):
    mixture = make_mixture(degrees)
    # At 1e30 the squared distance overflows in float32 and no component can be told apart.
    points = jnp.asarray(np.tile([[1e3], [1e6], [1e30]], 3))
    rho = np.asarray(jax.jit(jax.vmap(Mixture.responsibilities, (None, 0)))(mixture, points))
    np.testing.assert_array_equal(rho[:, 3], 0)
    np.testing.assert_allclose(np.sum(rho, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(rho[2], WEIGHTS, rtol=1e-5)


# A chi-squared number of 4 degrees is a sum of squares, one of 4.5 is not.
@pytest.mark.parametrize("degrees", [math.inf, 4.0, 4.5])
def test_draws_have_the_distances_and_weights_of_the_mixture(degrees):
    mixture, n = make_mixture(degrees), 4000
    apart = Mixture(mixture.log_weights, jnp.asarray(1e4 * MEANS), mixture.factors, degrees)
    draws = np.asarray(eqx.filter_jit(apart.sample)(jax.random.key(1), n))
    owner = np.argmin(np.linalg.norm(draws[:, None] - 1e4 * MEANS, axis=2), axis=1)
    counts = np.bincount(owner, minlength=4)
    # Multinomial: four standard errors.
    assert np.all(np.abs(counts / n - WEIGHTS) <= 4 * np.sqrt(WEIGHTS * (1 - WEIGHTS) / n))
    # Squared Mahalanobis distances are chi-squared, or dim times F(dim, nu).
    law = stats.chi2(3) if math.isinf(degrees) else stats.f(3, degrees, scale=3)
    for k, scale in enumerate(covariances()[:3]):
        gaps = draws[owner == k] - 1e4 * MEANS[k]
        squares = np.einsum("ni,ij,nj->n", gaps, np.linalg.inv(scale), gaps)
        assert stats.kstest(squares, law.cdf, method="asymp").pvalue > 1e-3
        # Whitened directions are isotropic: the mean of n unit vectors has norm about n^-1/2, and
        # exceeds three times that with probability exp(-3 * 9 / 2) * (a few).
        whitened = gaps @ np.linalg.inv(np.linalg.cholesky(scale)).T
        units = whitened / np.linalg.norm(whitened, axis=1, keepdims=True)
        assert np.linalg.norm(units.mean(axis=0)) < 3 / np.sqrt(len(units))
        # Each entry of <3 n n^T> has variance 9 (1/15 or 1/5 - 1/9) / n < 1 / n.
        isotropy = 3 * units.T @ units / len(units) - np.eye(3)
        assert np.max(np.abs(isotropy)) < 4 / np.sqrt(len(units))


def test_defensive_proposal_adds_a_wide_normal(double):
    mixture, u = make_mixture(math.inf), jnp.asarray(U)
    proposal = Defensive(mixture, share=0.2, scale=10.0)
    wide = stats.multivariate_normal(np.zeros(3), 100 * np.eye(3)).pdf(u)
    expected = np.log(0.8 * WEIGHTS @ np.exp(scipy_log_probs(math.inf)) + 0.2 * wide)
    np.testing.assert_allclose(eqx.filter_jit(proposal.log_prob)(u), expected, rtol=1e-12)
    far = Mixture(mixture.log_weights, jnp.asarray(MEANS + 1e4), mixture.factors)
    sample = eqx.filter_jit(Defensive(far, share=0.2, scale=10.0).sample)
    draws = np.asarray(sample(jax.random.key(2), 4000))
    inner = np.linalg.norm(draws, axis=1) < 5e3
    # Binomial, four standard errors of 0.0063.
    assert abs(inner.mean() - 0.2) < 0.026
    assert stats.kstest(draws[inner].ravel() / 10, "norm", method="asymp").pvalue > 1e-3


def test_mixture_is_a_pytree_that_compiles_once_for_all_values():
    traces = []

    @jax.jit
    def log_probs(mixture, u):
        traces.append(0)
        return jax.vmap(mixture.log_prob)(u)

    mixture = make_mixture(5)
    shifted = Mixture(
        mixture.log_weights, jnp.asarray(MEANS + 1), mixture.factors, jnp.asarray(5.0)
    )
    u = jnp.zeros((7, 3))
    np.testing.assert_allclose(log_probs(mixture, u), log_probs(shifted, u + 1), rtol=1e-5)
    assert len(traces) == 1


def test_lower_factor_survives_a_product_that_rounding_would_make_indefinite():
    root = jnp.array([[1.0, 0.0], [1.0, 1e-5]])
    assert jnp.any(jnp.isnan(jnp.linalg.cholesky(root @ root.T)))
    np.testing.assert_allclose(lower_factor(root), root, rtol=1e-2, atol=1e-7)
