import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq.inference.importance import (
    WeightedDraws,
    effective_sample_size,
    expectation,
    importance_sample,
    khat_threshold,
    pareto_khat,
    systematic_index,
    weigh,
)
from latentuq.inference.mixture import Defensive, Mixture, gaussian_mixture, normal_draws

S = 2000
N = 4096


class Normal(NamedTuple):
    """N(0, scale^2 I) in two dimensions: a proposal that is nothing but its two methods."""

    scale: jax.Array

    def sample(self, key, n):
        return self.scale * normal_draws(key, (n, 2), self.scale.dtype)

    def log_prob(self, u):
        z = u / self.scale
        return -0.5 * z @ z - 2 * jnp.log(self.scale * math.sqrt(2 * math.pi))


def cut_normal(log_mass, edge, beyond, u):
    """E^log_mass N(0, I) where u_0 > edge."""
    return jnp.where(u[0] > edge, log_mass + Normal(jnp.ones(())).log_prob(u), beyond)


def sample_cut_normal(seed, scale, log_mass=0.0, edge=-jnp.inf, beyond=0.0) -> WeightedDraws:
    """All cases share one compiled program."""
    arguments = (jnp.asarray(value, jnp.float32) for value in (log_mass, edge, beyond))
    proposal = Normal(jnp.asarray(scale, jnp.float32))
    density = jax.tree_util.Partial(cut_normal, *arguments)
    return importance_sample(jax.random.key(seed), density, proposal, N)


def reference_psis(log_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Pareto smoothing from the formulas of the papers, one loop at a time, in float64."""
    lw = np.array(log_weights, np.float64)
    top = lw.max()
    weights = np.exp(lw - top)
    order = np.argsort(weights)
    size = math.ceil(min(0.2 * len(lw), 3 * math.sqrt(len(lw))))
    cutoff = weights[order[-size - 1]]
    x = weights[order[-size:]] - cutoff
    points = 30 + int(math.sqrt(size))
    quartile = x[int(size / 4 + 0.5) - 1]
    thetas, log_likelihoods = [], []
    for j in range(1, points + 1):
        theta = 1 / x[-1] + (1 - math.sqrt(points / (j - 0.5))) / (3 * quartile)
        k = np.mean(np.log1p(-theta * x))
        thetas.append(theta)
        log_likelihoods.append(size * (math.log(-theta / k) - k - 1))
    share = [1 / sum(math.exp(other - own) for other in log_likelihoods) for own in log_likelihoods]
    theta = sum(t * s for t, s in zip(thetas, share, strict=True))
    k = np.mean(np.log1p(-theta * x))
    scale = -k / theta
    k = k * size / (size + 10) + 0.5 * 10 / (size + 10)
    for i in range(size):
        p = (i + 0.5) / size
        quantile = cutoff + scale / k * ((1 - p) ** -k - 1)
        lw[order[-size + i]] = top + min(0.0, math.log(quantile))
    return lw, k


def pareto_log_weights(k: float, seed: int, n: int = S) -> np.ndarray:
    p = np.random.default_rng(seed).uniform(size=n)
    return np.log(((1 - p) ** -k - 1) / k)


def weigh_alone(log_weights: np.ndarray) -> WeightedDraws:
    """Weighs draws of which only the ratios ln p - ln q matter."""
    n = len(log_weights)
    return weigh(np.zeros((n, 1)), log_weights, np.zeros(n))


def normalised(log_weights: np.ndarray) -> np.ndarray:
    return log_weights - np.logaddexp.reduce(log_weights)


@pytest.mark.parametrize("k", [-0.3, 0.2, 0.5, 0.9, 3.0])
def test_smoothing_follows_the_papers(k):
    log_weights = pareto_log_weights(k, seed=1)
    expected, expected_khat = reference_psis(log_weights)
    # float32 weights carry relative errors of 1e-6 (log weights up to about 20).
    single = weigh_alone(log_weights.astype(np.float32))
    assert abs(single.khat - expected_khat) < 1e-4
    np.testing.assert_allclose(single.log_weights, normalised(expected), atol=3e-4)
    double = weigh_alone(log_weights)
    assert abs(double.khat - expected_khat) < 1e-10
    np.testing.assert_allclose(double.log_weights, normalised(expected), atol=1e-9)


@pytest.mark.parametrize("k", [0.2, 0.5, 0.9])
def test_khat_finds_the_shape_of_pareto_draws(k):
    khats = [pareto_khat(pareto_log_weights(k, seed)) for seed in range(20)]
    # The tail of a generalised Pareto law is one of the same shape. 135 exceedances: maximum
    # likelihood has standard error (1 + k) / sqrt(135), the mean of 20 sqrt(20) times less, and
    # ten pseudo-observations pull it by 10 / 145 of the way to 1/2.
    expected = (135 * k + 10 * 0.5) / 145
    assert abs(np.mean(khats) - expected) < 4 * (1 + k) / math.sqrt(135 * 20)


@pytest.mark.parametrize("k", [0.5, 0.6])
def test_evidence_counts_what_the_tail_holds_beyond_the_largest_weight(k):
    found, smoothed = [], []
    for seed in range(100):
        log_weights = pareto_log_weights(k, seed)
        draws = weigh_alone(log_weights)
        exact = -math.log(1 - k)
        found.append((float(draws.log_evidence) - exact) / float(draws.log_evidence_error))
        # The least weight is not smoothed, and tells the sum by which all are divided.
        least = np.argmin(log_weights)
        total = log_weights[least] - draws.log_weights[least]
        smoothed.append(total - math.log(S) - exact)
    errors = np.array(found)
    # The error bars hold; and about half of the runs are below the truth (12 is 2.4 standard
    # deviations of a fair coin's 50), while most of those without the unseen part are.
    assert 0.8 < np.sqrt(np.mean(errors**2)) < 1.2
    assert 38 <= np.sum(errors < 0) <= 62
    assert np.sum(np.array(smoothed) < 0) > 62


def test_the_heavier_the_tail_the_larger_the_error():
    p = (np.arange(S) + 0.5) / S
    errors = []
    for k in (0.3, 0.5, 0.65, 0.7, 0.75, 0.8, 1.0, 1.5):
        log_weights = np.log(((1 - p) ** -k - 1) / k)
        draws = weigh_alone(log_weights)
        errors.append(float(draws.log_evidence_error))
    assert np.all(np.diff(errors) > 0)


def test_one_draw_that_outweighs_all_others_is_no_error():
    log_weights = 60 * np.random.default_rng(0).standard_normal(S)
    draws = weigh_alone(log_weights)
    assert float(draws.khat) > 5
    # The evidence is that of the largest weight, or twice as much if the tail is believed.
    assert 0 <= float(draws.log_evidence) - (log_weights.max() - math.log(S)) < 1
    assert float(draws.ess) < 3


def test_khat_of_weights_without_a_tail_or_without_enough_of_it():
    equal = weigh_alone(np.full(S, -7.0))
    assert equal.khat == -np.inf
    np.testing.assert_allclose(equal.log_weights, -math.log(S), rtol=1e-12)
    nothing = np.full(S, -np.inf)
    draws = weigh_alone(nothing)
    assert draws.khat == np.inf
    np.testing.assert_array_equal(draws.log_weights, nothing)
    lonely, few = nothing.copy(), nothing.copy()
    lonely[3] = 2.0
    few[:50] = np.linspace(-1.0, 1.0, 50)
    for log_weights in (lonely, few):
        draws = weigh_alone(log_weights)
        assert draws.khat == np.inf
        np.testing.assert_allclose(draws.log_weights, normalised(log_weights), rtol=1e-12)
    # A perfect proposal: what differs is the rounding of log densities of about 1000.
    assert pareto_khat(1e-4 * np.random.default_rng(0).integers(-2, 3, S)) == -np.inf
    assert pareto_khat(np.arange(20.0)) == np.inf
    assert np.isfinite(pareto_khat(np.arange(21.0)))


def test_zero_weights_below_the_tail_change_nothing_but_its_length():
    log_weights = pareto_log_weights(0.4, seed=3)
    log_weights[::3] = -np.inf
    draws = weigh_alone(log_weights)
    expected, expected_khat = reference_psis(log_weights)
    assert abs(draws.khat - expected_khat) < 1e-10
    np.testing.assert_allclose(draws.log_weights, normalised(expected), atol=1e-9)


def test_draws_are_chosen_as_often_as_their_weights_say():
    weights = np.array([0.0, 0.5, 0.0, 0.3, 0.2, 0.0])
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights) - 800
    for seed in range(20):
        index = systematic_index(np.random.default_rng(seed), log_weights, 7)
        times = np.bincount(index, minlength=6)
        assert np.all((times == np.floor(7 * weights)) | (times == np.ceil(7 * weights)))
    assert len(systematic_index(np.random.default_rng(0), log_weights, 0)) == 0


def test_threshold_and_effective_sample_size():
    assert khat_threshold(100) == 0.5
    assert khat_threshold(10**6) == 0.7
    # (1 + 1 + 2)^2 / (1 + 1 + 4) = 8/3, whatever the scale.
    log_weights = jnp.log(jnp.array([1.0, 1.0, 2.0, 0.0]))
    np.testing.assert_allclose(effective_sample_size(log_weights + 500), 8 / 3, rtol=1e-5)
    assert effective_sample_size(jnp.full(4, -jnp.inf)) == 0


def assert_standard_normal(pulls):
    """64 independent numbers: mean 0 +- 1/8, standard deviation 1 +- 0.09; four of each."""
    assert np.all(np.abs(np.mean(pulls, axis=0)) < 4 / 8)
    assert np.all(np.abs(np.std(pulls, axis=0) - 1) < 4 * 0.09)


@pytest.mark.slow
def test_evidence_and_its_error_for_a_gaussian():
    # p = e^2 N(0, I), q = N(0, s^2 I): Z = e^2, E[w^2] = Z^2 (s^4 / (2 s^2 - 1))^(dim / 2), so
    # n var(ln Z) = s^4 / (2 s^2 - 1) - 1.
    s = 1.5
    runs = [sample_cut_normal(seed, s, log_mass=2.0) for seed in range(64)]
    ratio = s**4 / (2 * s**2 - 1)
    error = math.sqrt((ratio - 1) / N)
    # The weights are bounded: the estimated errors scatter by a few per cent.
    np.testing.assert_allclose([run.log_evidence_error for run in runs], error, rtol=0.1)
    np.testing.assert_allclose([run.ess for run in runs], N / ratio, rtol=0.1)
    assert_standard_normal([(run.log_evidence - 2.0) / error for run in runs])
    assert all(run.khat < khat_threshold(N) for run in runs)
    # The second moment of the target is 1.
    estimates = [expectation(run.draws[:, 0] ** 2, run.log_weights) for run in runs]
    assert_standard_normal([(mean - 1) / spread for mean, spread in estimates])
    first = runs[0]
    squares = np.sum(np.asarray(first.draws) ** 2, axis=1)
    log_two_pi = math.log(2 * math.pi)
    np.testing.assert_allclose(first.log_densities, 2 - squares / 2 - log_two_pi, atol=1e-5)
    expected = -squares / (2 * s**2) - log_two_pi - 2 * math.log(s)
    np.testing.assert_allclose(first.log_proposals, expected, atol=1e-5)
    np.testing.assert_allclose(np.exp(first.log_weights).sum(), 1, rtol=1e-4)


def test_a_perfect_proposal_and_a_narrow_one_are_told_apart():
    perfect = sample_cut_normal(1, 1.0)
    assert perfect.khat == -jnp.inf
    np.testing.assert_allclose(perfect.ess, N, rtol=1e-5)
    np.testing.assert_allclose(perfect.log_evidence, 0, atol=1e-5)
    assert perfect.log_evidence_error < 1e-3
    # Under N(0, s^2 I) the moments of the weights exist below order 1 / (1 - s^2): k = 1 - s^2.
    assert sample_cut_normal(1, 0.3).khat > khat_threshold(N)


@pytest.mark.parametrize("beyond", [-jnp.inf, jnp.nan, jnp.inf])
def test_densities_that_are_not_finite_weigh_nothing(beyond):
    # Half of the normal. E[w^2] = (1/2) s^4 / (2 s^2 - 1) = 0.551, Z = 1/2: n var(ln Z) = 1.21.
    result = sample_cut_normal(2, 1.2, edge=0.0, beyond=beyond)
    assert abs(result.log_evidence - math.log(0.5)) < 4 * math.sqrt(1.21 / N)
    np.testing.assert_allclose(result.log_evidence_error, math.sqrt(1.21 / N), rtol=0.1)
    outside = np.asarray(result.draws[:, 0]) <= 0
    np.testing.assert_array_equal(np.asarray(result.log_weights) == -np.inf, outside)
    values = jnp.asarray(np.where(outside, np.nan, 1.0))
    np.testing.assert_allclose(expectation(values, result.log_weights)[0], 1, rtol=1e-5)
    nowhere = sample_cut_normal(2, 1.2, edge=jnp.inf, beyond=beyond)
    assert nowhere.khat == jnp.inf
    assert nowhere.log_evidence == -jnp.inf
    assert nowhere.log_evidence_error == jnp.inf
    assert nowhere.ess == 0
    assert jnp.all(nowhere.log_weights == -jnp.inf)


@pytest.mark.slow
def test_mode_weights_of_two_gaussians():
    # The proposal has the right components with the wrong weights and heavier tails.
    means = jnp.array([[-4.0, 0.0], [4.0, 0.0]])
    identities = jnp.tile(jnp.eye(2), (2, 1, 1))
    target = gaussian_mixture(jnp.array([0.8, 0.2]), means, identities)
    fitted = Mixture(jnp.log(jnp.array([0.5, 0.5])), means, identities, degrees=5.0)
    proposal = Defensive(fitted, share=0.05, scale=3.0)

    found = []
    for key in jax.random.split(jax.random.key(3), 64):
        draws = importance_sample(key, target.log_prob, proposal, 2048)
        shares = jax.vmap(fitted.responsibilities)(draws.draws)
        found.append(expectation(shares, draws.log_weights))
    weights, errors = map(np.array, zip(*found, strict=True))
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    # Eight standard deviations apart: the wrong mode's share of a draw is negligible.
    assert_standard_normal((weights - jnp.array([0.8, 0.2])) / errors)


def test_expectation_by_hand():
    log_weights = jnp.log(jnp.array([1.0, 3.0])) + 7
    mean, error = expectation(jnp.array([[0.0, 2.0], [4.0, 2.0]]), log_weights)
    # W = (1/4, 3/4): mean 3, error sqrt((3/4)^2 + (3/4)^2).
    np.testing.assert_allclose(mean, [3.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(error, [0.75 * math.sqrt(2), 0.0], rtol=1e-6, atol=1e-7)


def test_the_error_of_correlated_islands_comes_from_their_scatter():
    # Island i holds 50 copies of one number: 8 independent draws, not 400.
    rng, islands = np.random.default_rng(0), np.repeat(np.arange(8), 50)
    pulls, naive = [], []
    for _ in range(400):
        values = np.repeat(rng.standard_normal(8), 50)
        mean, error = expectation(values, np.full(400, -7.0), (islands,))
        pulls.append(mean / error)
        naive.append(mean / expectation(values, np.full(400, -7.0))[1])
    # mean / error of 8 normal numbers is Student's t with 7 degrees: variance 7 / 5, kurtosis 5, so
    # that its mean square over 400 is known to sqrt(4 / 400) of itself; four of these.
    assert abs(np.mean(np.square(pulls)) / (7 / 5) - 1) < 4 * math.sqrt(4 / 400)
    assert np.mean(np.square(naive)) > 30


def test_islands_of_one_draw_each_are_independent_draws():
    log_weights = pareto_log_weights(-0.3, seed=5)
    values = np.random.default_rng(1).standard_normal((S, 3))
    mean, error = expectation(values, log_weights)
    by_island = expectation(values, log_weights, (np.arange(S),))
    np.testing.assert_allclose(by_island[0], mean)
    # N - 1 in place of N; and which island comes first does not matter.
    np.testing.assert_allclose(by_island[1], error * math.sqrt(S / (S - 1)))
    np.testing.assert_allclose(
        expectation(values, log_weights, (np.arange(S)[::-1],))[1], by_island[1]
    )


def test_the_division_that_shows_the_largest_error_counts():
    # Chains of 50 equal draws, two in each island; the first number shows it, and islands hide the
    # second, because chains of an island cancel.
    rng, islands, sources = np.random.default_rng(0), np.arange(800) // 100, np.arange(800) // 50
    first, second = rng.standard_normal(8), rng.standard_normal(8)
    values = np.stack([np.repeat(first, 2), np.stack([second, -second], 1).ravel()], axis=1)
    values = np.repeat(values, 50, axis=0)
    weights = np.zeros(800)
    _, by_island = expectation(values, weights, (islands,))
    _, by_source = expectation(values, weights, (sources,))
    mean, both = expectation(values, weights, (islands, sources))
    assert by_island[0] > by_source[0]
    assert by_island[1] == pytest.approx(0, abs=1e-12)
    np.testing.assert_array_equal(both, [by_island[0], by_source[1]])
    np.testing.assert_array_equal(mean, expectation(values, weights)[0])


def test_draws_of_a_proposal_are_islands_of_their_own():
    draws = weigh_alone(np.zeros(7))
    for groups in draws.groups:
        np.testing.assert_array_equal(groups, np.arange(7))
    assert draws.groups == (draws.islands, draws.sources)


def test_weighted_draws_hold_the_dtype_of_the_draws():
    with jax.enable_x64(True):
        proposal = Normal(jnp.asarray(1.5))
        draws = importance_sample(jax.random.key(0), proposal.log_prob, proposal, 64)
    assert {draws.islands.dtype.kind, draws.sources.dtype.kind} == {"i"}
    rest = eqx.tree_at(lambda draws: draws.groups, draws, (None, None))
    assert {leaf.dtype for leaf in jax.tree.leaves(rest)} == {jnp.dtype("float64")}
