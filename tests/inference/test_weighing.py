"""Chains that are made of exact draws are weighed without error."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from densities import quadratic, two_gaussians
from latentuq.inference.chains import Chains
from latentuq.inference.importance import expectation
from latentuq.inference.mixture import Defensive, gaussian_mixture
from latentuq.inference.moves import Kernel
from latentuq.inference.regions import Regions
from latentuq.inference.settings import Settings
from latentuq.inference.target import Target, log_densities_at
from latentuq.inference.weighing import weigh_chains
from pulls import squares_of_pulls

SETTINGS = Settings()
LOG_Z = -2.0
MEAN, COVARIANCE = np.array([1.0, -2.0]), np.array([[1.0, 0.6], [0.6, 0.5]])
SHAPE = (SETTINGS.islands, SETTINGS.chains)
# What chains may jump to; they do not when they are weighed.
ROUND = Defensive(gaussian_mixture(jnp.ones(1), jnp.zeros((1, 2)), jnp.eye(2)[None]))


def assert_nearly_all(draws):
    """Nothing heavier than 1e-4 was left out; in float32 weights of e^-16 are known to 1e-6."""
    assert abs(np.logaddexp.reduce(draws.log_weights.astype(float))) < 2e-6
    # ln p - ln q of the mixture that all kept draws come from is the weight.
    gains = draws.log_densities.astype(float) - draws.log_proposals
    kept = np.logaddexp.reduce(gains) - np.log(len(gains))
    assert -2e-6 < float(draws.log_evidence) - kept < 1e-4 + 2e-6
    # Three numbers are in a gap, each about as large as ln p and known to 2^-24 of that.
    gaps = gains - np.log(len(gains)) - kept - draws.log_weights
    assert np.all(np.abs(gaps) < 1e-6 * (4 + np.abs(draws.log_densities)))


def chains_of(target, regions, settled):
    """Chains that have been at these places, and before that elsewhere."""
    settled = settled.astype(np.float32)
    values = log_densities_at(target.log_density, settled.reshape(-1, target.dim))
    values = values.reshape(settled.shape[:3]).astype(float)
    return Chains(
        regions,
        np.zeros(SHAPE, int),
        Kernel(np.array(regions.factors), np.zeros(len(regions.means))),
        np.concatenate([100 + settled, settled], axis=2),
        np.concatenate([values - 100, values], axis=2),
        (ROUND, ROUND),
        rounds=4,
    )


def gaussian_chains(seed, stops=16):
    target = Target(quadratic(MEAN, COVARIANCE, LOG_Z).log_density, 2)
    rng = np.random.default_rng(seed)
    settled = MEAN + rng.standard_normal((*SHAPE, stops, 2)) @ np.linalg.cholesky(COVARIANCE).T
    regions = Regions(np.zeros(1), np.zeros((1, 2)), np.eye(2)[None])
    return target, chains_of(target, regions, settled)


@pytest.fixture(scope="module")
def weighed():
    found = []
    for seed in range(30):
        target, chains = gaussian_chains(seed)
        found.append(
            weigh_chains(jax.random.key(seed), target, chains, SETTINGS.fresh, 1.0, SETTINGS)
        )
    return found


def test_the_evidence_is_exact_to_its_error(weighed):
    pulls = [
        float(each.draws.log_evidence - LOG_Z) / float(each.draws.log_evidence_error)
        for each in weighed
    ]
    expected, spread = squares_of_pulls(SETTINGS.islands)
    assert abs(np.mean(np.square(pulls)) - expected) < 4 * spread / np.sqrt(30)
    assert max(float(each.draws.log_evidence_error) for each in weighed) < 0.02


def test_weighted_draws_stand_for_the_density(weighed):
    pulls = []
    for draws, _, counts in weighed:
        assert counts.forwards == SETTINGS.fresh
        assert_nearly_all(draws)
        white = np.linalg.solve(np.linalg.cholesky(COVARIANCE), (draws.draws - MEAN).T).T
        mean, error = expectation(white, draws.log_weights, draws.groups)
        pulls.append(mean / error)
        square, _ = expectation(white**2, draws.log_weights, draws.groups)
        np.testing.assert_allclose(square, 1, atol=0.1)
        assert draws.ess > 4000
    expected, spread = squares_of_pulls(SETTINGS.islands)
    assert abs(np.mean(np.square(pulls)) - expected) < 4 * spread / np.sqrt(60)


def test_draws_without_weight_are_left_out():
    # The proposal is defensive: 5 % of its draws are of a reference that is mostly elsewhere.
    target, chains = gaussian_chains(0, stops=1)
    wide = Target(target.log_density_fn, 2, scale=100.0)
    for fresh, kept in ((512, 1), (16384, 4)):
        draws = weigh_chains(jax.random.key(0), wide, chains, fresh, 1.0, SETTINGS).draws
        number = fresh + np.prod(SHAPE)
        # A multiple of 4096, or all that there are.
        assert len(draws.draws) == min(kept * 4096, number)
        assert_nearly_all(draws)
    # In the order in which they were, and with what belongs to them.
    values = log_densities_at(target.log_density, draws.draws)
    np.testing.assert_allclose(draws.log_densities, values, atol=1e-4)
    for half in (0, 1):
        mine = draws.islands % 2 == half
        assert np.all(np.diff(np.flatnonzero(mine)) == 1)


def test_no_source_is_in_two_islands():
    target, chains = gaussian_chains(1)
    draws = weigh_chains(jax.random.key(1), target, chains, SETTINGS.fresh, 1.0, SETTINGS).draws
    islands = [set(draws.islands[draws.sources == source]) for source in set(draws.sources)]
    assert all(len(each) == 1 for each in islands)
    # A chain is one source and a draw of a proposal another; chains are all heavy.
    counts = np.bincount(draws.sources)
    assert np.count_nonzero(counts > 1) == np.prod(SHAPE)
    assert counts.max() == 16
    assert set(draws.islands.tolist()) == set(range(SETTINGS.islands))


def test_a_half_is_weighed_against_what_the_other_half_has_seen():
    target, chains = gaussian_chains(2)
    key = jax.random.key(2)
    proposals = weigh_chains(key, target, chains, SETTINGS.fresh, 1.0, SETTINGS).proposals
    changed = chains.points.copy()
    changed[::2] += 0.5
    moved = chains._replace(points=changed)
    others = weigh_chains(key, target, moved, SETTINGS.fresh, 1.0, SETTINGS).proposals
    for mine, theirs, same in zip(proposals, others, (True, False), strict=True):
        assert np.array_equal(mine.mixture.means, theirs.mixture.means) == same


def test_more_draws_of_proposals_make_the_error_smaller():
    target, chains = gaussian_chains(3, stops=2)
    errors = []
    for fresh in (1024, 16384):
        draws = [
            weigh_chains(jax.random.key(seed), target, chains, fresh, 1.0, SETTINGS).draws
            for seed in range(5)
        ]
        errors.append(np.mean([float(each.log_evidence_error) for each in draws]))
    # The proposal is the density but for its tails; what the chains add does not become less.
    assert errors[1] < errors[0]


def test_a_short_history_gives_a_wide_error(weighed):
    # A chain that is stuck counts as one draw, and the error knows it.
    target, chains = gaussian_chains(0, stops=1)
    stuck = chains._replace(
        points=np.repeat(chains.settled.points, 32, axis=2),
        log_densities=np.repeat(chains.settled.log_densities, 32, axis=2),
    )
    draws = weigh_chains(jax.random.key(0), target, stuck, SETTINGS.fresh, 1 / 16, SETTINGS).draws
    assert draws.ess < SETTINGS.fresh + 2 * np.prod(SHAPE)
    assert abs(float(draws.log_evidence) - LOG_Z) < 5 * float(draws.log_evidence_error)


def test_masses_of_two_modes_do_not_depend_on_where_chains_are():
    mixture = two_gaussians(2, 16.0, (0.8, 0.2))
    target = Target(mixture.log_prob, 2, scale=4.0)
    regions = Regions(np.log([0.5, 0.5]), np.asarray(mixture.means), np.tile(np.eye(2), (2, 1, 1)))
    gaps, errors = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        settled = rng.standard_normal((*SHAPE, 16, 2))
        # Three of four chains are where a fifth of the mass is.
        settled[..., 0] += np.where(np.arange(SETTINGS.chains) % 4, 8.0, -8.0)[:, None]
        chains = chains_of(target, regions, settled)
        draws = weigh_chains(
            jax.random.key(seed), target, chains, SETTINGS.fresh, 1.0, SETTINGS
        ).draws
        mass, error = expectation(draws.draws[:, 0] > 0, draws.log_weights, (draws.islands,))
        gaps.append(mass - 0.2)
        errors.append(error)
        assert abs(mass - 0.2) < 0.03
        assert abs(float(draws.log_evidence)) < 6 * float(draws.log_evidence_error)
        # Sources do not know how many chains a region has: they only ever add to the error.
        assert expectation(draws.draws[:, 0] > 0, draws.log_weights, draws.groups)[1] >= error
    # Each half of the islands scatters about its own mean, so that 6 numbers tell what 7 should:
    # the mean square error is 7 / 6 of the stated one. Four errors of 20 squares and 20 times 6.
    ratio = np.mean(np.square(gaps)) / np.mean(np.square(errors))
    assert abs(ratio / (7 / 6) - 1) < 4 * np.sqrt(2 / 20 + 2 / 120)


def test_a_density_that_is_nowhere_has_no_weight():
    _, chains = gaussian_chains(4)
    nowhere = Target(lambda u: jnp.nan * u[0], 2)
    chains = chains._replace(log_densities=np.full(chains.log_densities.shape, -np.inf))
    draws = weigh_chains(jax.random.key(0), nowhere, chains, SETTINGS.fresh, 1.0, SETTINGS).draws
    assert len(draws.draws) == 4096
    assert np.all(draws.log_weights == -np.inf)
    assert draws.log_evidence == -np.inf
    assert draws.log_evidence_error == np.inf
    assert draws.ess == 0
