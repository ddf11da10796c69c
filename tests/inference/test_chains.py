import jax
import jax.numpy as jnp
import numpy as np
import pytest

from densities import quadratic, two_gaussians
from latentuq.inference.chains import Chains, advance, begin, drift, efficiencies
from latentuq.inference.mixture import Defensive, gaussian_mixture
from latentuq.inference.moves import Kernel
from latentuq.inference.regions import Regions
from latentuq.inference.settings import Settings
from latentuq.inference.target import Counts, Target

ISLANDS, SIZE, STOPS, DIM = 8, 32, 128, 2
# Two regions far apart, and one that is all of space.
APART = Regions(
    np.log([0.5, 0.5]), np.array([[-9.0, 0.0], [9.0, 0.0]]), np.tile(np.eye(2), (2, 1, 1))
)
COVARIANCE = np.array([[1.0, 0.95], [0.95, 1.0]])
WHOLE = Regions(np.zeros(1), np.zeros((1, 2)), np.eye(2)[None])
ROUND = Defensive(gaussian_mixture(jnp.ones(1), jnp.zeros((1, 2)), jnp.eye(2)[None]))
# Chains begin where the particles are.
COLD = Settings(hot_rounds=0)


def history(points, log_densities=None, regions=WHOLE):
    """Made-up chains; ln p is that of a standard normal unless it is given.

    Of twice as many stops the first half, which is not looked at, is nonsense.
    """
    if log_densities is None:
        centres = regions.means[regions.of(points.reshape(-1, DIM))].reshape(points.shape)
        log_densities = -0.5 * np.sum((points - centres) ** 2, axis=-1)
    kernel = Kernel(np.array(regions.factors), np.zeros(len(regions.means)))
    begun = np.zeros(points.shape[:2], int)
    return Chains(
        regions,
        begun,
        kernel,
        np.concatenate([1e6 * np.ones_like(points), points], axis=2),
        np.concatenate([1e6 * np.ones_like(log_densities), log_densities], axis=2),
        (ROUND, ROUND),
        rounds=16,
    )


def normal(seed, correlation=0.0, stops=STOPS):
    """Chains of a standard normal whose next place has this correlation with the last."""
    noise = np.random.default_rng(seed).standard_normal((ISLANDS, SIZE, stops, DIM))
    for stop in range(1, stops):
        fresh = np.sqrt(1 - correlation**2) * noise[:, :, stop]
        noise[:, :, stop] = correlation * noise[:, :, stop - 1] + fresh
    return noise


def test_half_of_what_chains_have_seen_is_settled():
    chains = history(normal(0))
    np.testing.assert_array_equal(chains.settled.points, chains.points[:, :, STOPS:])
    np.testing.assert_array_equal(chains.settled.log_densities, chains.log_densities[:, :, STOPS:])


@pytest.mark.parametrize(("burn_in", "first"), [(0.25, 64), (0.5, 128), (0.7, 179)])
def test_the_share_that_does_not_count_is_at_the_beginning(burn_in, first):
    chains = history(normal(0))._replace(burn_in=burn_in)
    np.testing.assert_array_equal(chains.settled.points, chains.points[:, :, first:])
    np.testing.assert_array_equal(chains.settled.log_densities, chains.log_densities[:, :, first:])


# The mean of n draws in place of chains varies by 2 / 255 or sqrt of that, 0.09.
FOUR_ERRORS = 4 * np.sqrt(2 / (ISLANDS * SIZE - 1))


def test_independent_draws_are_worth_their_number():
    found = efficiencies(history(normal(1)))
    assert found.shape == (2 * DIM + 1,)
    assert np.all(found > 1 - FOUR_ERRORS)
    assert np.all(found <= 1)


@pytest.mark.parametrize("value", [0.0, -np.log(4), 1e4 / 3])
def test_what_does_not_vary_is_known(value):
    # ln p of a uniform density says nothing of how far chains have come; their places do.
    points = normal(1)
    found = efficiencies(history(points, np.full(points.shape[:3], value)))
    assert found[2] == 1
    np.testing.assert_array_equal(np.delete(found, 2), np.delete(efficiencies(history(points)), 2))


@pytest.mark.parametrize("correlation", [0.5, 0.9])
def test_correlated_draws_are_worth_what_theory_says(correlation):
    found = efficiencies(history(normal(2, correlation)))
    # The means of long chains vary (1 + c) / (1 - c) times as much; those of squares, and of ln p,
    # as if c were c^2. In a chain of 128 stops that is 6 % too much for c = 0.9.
    correlations = [correlation] * DIM + [correlation**2] * (1 + DIM)
    expected = [(1 - c) / (1 + c) for c in correlations]
    np.testing.assert_allclose(found / expected, 1, atol=FOUR_ERRORS + 0.1)


def test_a_chain_that_is_stuck_makes_one_draw():
    points = np.repeat(normal(3, stops=1), STOPS, axis=2)
    np.testing.assert_allclose(efficiencies(history(points)), 1 / STOPS)
    # One slow coordinate suffices, and ln p is another.
    points[..., 1] = normal(4)[..., 1]
    found = efficiencies(history(points))
    np.testing.assert_allclose(found[[0, 3]], 1 / STOPS)
    assert np.all(found[[1, 4]] > 1 - FOUR_ERRORS)
    values = np.broadcast_to(np.arange(SIZE)[:, None], (ISLANDS, SIZE, STOPS)).astype(float)
    assert efficiencies(history(normal(5), values))[2] == pytest.approx(1 / STOPS)


def test_a_chain_that_changes_sides_and_stays_as_far_out_makes_one_draw():
    signs = np.random.default_rng(4).choice([-1.0, 1.0], (ISLANDS, SIZE, STOPS, DIM))
    points = np.repeat(normal(3, stops=1), STOPS, axis=2)
    points[..., 0] = np.abs(points[..., 0]) * signs[..., 0]
    points[..., 1] = normal(4)[..., 1]
    found = efficiencies(history(points))
    assert np.all(found[[0, 1, 4]] > 1 - FOUR_ERRORS)
    # Squares are about the mean of the coordinate, which is 0 only as far as the draws tell.
    assert found[3] == pytest.approx(1 / STOPS, rel=0.01)


def test_which_region_a_chain_is_in_does_not_matter():
    # Half of the chains stay in one region, half in the other, and each makes independent draws.
    sides = np.where(np.arange(SIZE) % 2, 9.0, -9.0)[:, None]
    points = normal(6)
    points[..., 0] += sides
    assert np.all(efficiencies(history(points, regions=APART)) > 1 - FOUR_ERRORS)
    values = np.zeros(points.shape[:3])
    stuck = efficiencies(history(points, values, regions=WHOLE))
    assert stuck[0] < 2 / STOPS


def test_chains_where_the_density_is_not_are_left_out():
    points = normal(7)
    values = -0.5 * np.sum(points**2, axis=-1)
    lost, rest = values.copy(), np.arange(SIZE) != 5
    # They never move; an island may have none left that does.
    lost[:, 5] = -np.inf
    points[:, 5] = 50.0
    chains, others = history(points, lost), history(points[:, rest], values[:, rest])
    np.testing.assert_allclose(efficiencies(chains), efficiencies(others))
    np.testing.assert_allclose(drift(chains), drift(others))
    lost[3] = -np.inf
    assert np.all(np.isfinite(efficiencies(history(points, lost))))
    assert np.all(np.isfinite(drift(history(points, lost))))
    nowhere = history(points, np.full(values.shape, -np.inf))
    np.testing.assert_array_equal(efficiencies(nowhere), 1 / STOPS)
    assert drift(nowhere) == (np.inf, np.inf)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_chains_that_have_arrived_do_not_drift(correlation):
    settings = Settings()
    for seed in range(20):
        shift, errors = drift(history(normal(seed, correlation)))
        assert not (shift > settings.drift and errors > settings.drift_errors)
    # The means of two halves of 256 chains differ by no more than this.
    assert shift < 0.1


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_chains_on_their_way_drift(sign):
    values = -0.5 * np.sum(normal(8) ** 2, axis=-1)
    spread = values.std()
    values += sign * 0.8 * spread * np.linspace(0, 1, STOPS)
    shift, errors = drift(history(normal(8), values))
    # Half of a ramp lies 0.4 spreads above the other half; the ramp adds to the spread.
    assert shift == pytest.approx(0.4 / np.hypot(1, 0.8 / np.sqrt(12)), abs=0.05)
    assert errors > Settings().drift_errors


def test_an_island_alone_that_drifts_is_not_significant():
    values = -0.5 * np.sum(normal(9) ** 2, axis=-1)
    values[2] += 10 * np.linspace(0, 1, STOPS)
    assert drift(history(normal(9), values))[1] < 2


# Nobody asks for the density of the places where cold chains begin.
NOWHERE = Target(lambda u: jnp.nan * u[0], 2)


def test_every_region_gets_chains_in_every_island():
    points = np.random.default_rng(0).standard_normal((ISLANDS, SIZE, DIM)) - [9.0, 0.0]
    chains, counts = begin(jax.random.key(0), NOWHERE, APART, points, -1.0, ROUND, COLD)
    assert counts == Counts()
    assert chains.proposals == (ROUND, ROUND)
    assert chains.burn_in == COLD.burn_in
    np.testing.assert_array_equal(np.sum(chains.begun == 1, axis=1), 2)
    begun = chains.points[:, :, -1]
    np.testing.assert_array_equal(APART.of(begun.reshape(-1, DIM)), chains.begun.ravel())
    # Those who need not move stay where they are.
    stayed = chains.begun == 0
    np.testing.assert_array_equal(begun[stayed], points[stayed])
    assert chains.rounds == 0
    np.testing.assert_array_equal(chains.kernel.log_steps, -1.0)


def test_chains_begin_in_the_region_where_they_are():
    sides = np.where(np.arange(SIZE) < 20, -9.0, 9.0)
    points = np.random.default_rng(0).standard_normal((ISLANDS, SIZE, DIM))
    points[..., 0] += sides
    chains, _ = begin(jax.random.key(0), NOWHERE, APART, points, -1.0, ROUND, COLD)
    np.testing.assert_array_equal(chains.begun, np.tile(sides > 0, (ISLANDS, 1)))
    np.testing.assert_array_equal(chains.points[:, :, -1], points)


def test_there_are_enough_chains_for_all_regions():
    number = SIZE // 2 + 1
    means = np.stack([20.0 * np.arange(number), np.zeros(number)], axis=1)
    regions = Regions(np.zeros(number), means, np.tile(np.eye(2), (number, 1, 1)))
    points = np.random.default_rng(0).standard_normal((ISLANDS, SIZE, DIM))
    chains, _ = begin(jax.random.key(0), NOWHERE, regions, points, -1.0, ROUND, COLD)
    assert chains.begun.shape == (ISLANDS, 2 * SIZE)
    for begun in chains.begun:
        assert np.all(np.bincount(begun, minlength=number) >= 2)
    place = chains.points[:, :, -1].reshape(-1, DIM)
    np.testing.assert_array_equal(regions.of(place), chains.begun.ravel())


@pytest.mark.slow
def test_half_of_the_chains_begin_beyond_the_tails():
    target, settings = Target(quadratic(np.zeros(2), np.eye(2)).log_density, 2), Settings()
    points = np.random.default_rng(2).standard_normal((ISLANDS, SIZE, DIM))
    given = points.copy()
    chains, counts = begin(jax.random.key(0), target, WHOLE, points, np.log(0.3), ROUND, settings)
    begun = chains.points[:, :, 0]
    np.testing.assert_array_equal(points, given)
    np.testing.assert_array_equal(begun[:, 1::2], points[:, 1::2])
    # p^hot has the variance 1 / hot; of 128 chains and two coordinates, four errors.
    variance = np.mean(begun[:, ::2] ** 2)
    assert abs(settings.hot * variance - 1) < 4 * np.sqrt(2 / (ISLANDS * SIZE // 2 * DIM))
    # They may jump to what those that spread have seen, each half to what the other has.
    assert not any(proposal is ROUND for proposal in chains.proposals)
    assert chains.proposals[0] is not chains.proposals[1]
    assert counts.gradients > 0


def test_chains_learn_the_shape_of_the_density_and_stay_on_it():
    target, settings = Target(quadratic(np.zeros(2), COVARIANCE).log_density, 2), Settings()
    root = np.linalg.cholesky(COVARIANCE)
    points = np.random.default_rng(1).standard_normal((ISLANDS, SIZE, DIM)) @ root.T
    start = np.log(0.3)
    chains, counts = begin(jax.random.key(0), target, WHOLE, points, start, ROUND, COLD)
    for number in range(4):
        chains, more = advance(jax.random.key(number), target, chains, settings)
        counts += more
    stops = settings.moves * settings.stops
    assert chains.rounds == 4
    assert chains.points.shape == (ISLANDS, SIZE, 4 * stops, DIM)
    assert chains.log_densities.shape == (ISLANDS, SIZE, 4 * stops)
    assert counts.gradients >= ISLANDS * SIZE * 4 * settings.moves * settings.stops * 2
    assert counts.forwards == ISLANDS * SIZE * 4 * settings.offers
    learnt = chains.kernel.factors[0] @ chains.kernel.factors[0].T
    # Shrunk to the diagonal by 2 / 258 or so, from 256 chains.
    np.testing.assert_allclose(learnt, COVARIANCE, atol=4 * np.sqrt(2 / 256))
    flat = chains.points.reshape(-1, DIM)
    values = jax.vmap(target.log_density)(jnp.asarray(flat))
    np.testing.assert_allclose(chains.log_densities.ravel(), values, atol=1e-3)
    whitened = np.linalg.solve(root, chains.settled.points.reshape(-1, DIM).T)
    # 256 chains, each worth one draw at the least.
    np.testing.assert_allclose(np.cov(whitened), np.eye(2), atol=4 * np.sqrt(2 / 256))


@pytest.mark.slow
def test_chains_jump_at_the_end_of_a_round():
    # Two modes that no move leads between; the proposal knows both, the regions do not.
    mixture = two_gaussians(2, 20.0)
    target = Target(mixture.log_prob, 2, scale=10.0)
    proposal = Defensive(mixture, scale=10.0)
    points = np.random.default_rng(3).standard_normal((ISLANDS, SIZE, DIM))
    points[..., 0] += 10
    chains, _ = begin(jax.random.key(0), target, WHOLE, points, np.log(0.3), proposal, COLD)
    chains, _ = advance(jax.random.key(1), target, chains, Settings())
    right = chains.points[..., 0] > 0
    assert np.all(right[:, :, :-1])
    # A chain is offered eight draws, and nearly each is as good as where it is: it is on either
    # side with the probability of that, as far as 256 chains tell.
    assert abs(np.mean(right[:, :, -1]) - 0.5) < 4 * np.sqrt(0.25 / (ISLANDS * SIZE))
    # The next round sets out from there.
    chains, _ = advance(jax.random.key(2), target, chains, Settings())
    after = chains.points[:, :, 4:-1, 0] > 0
    np.testing.assert_array_equal(after, np.broadcast_to(right[:, :, -1:], after.shape))
