"""Chains that are made of exact draws are weighed without error."""

import jax
import numpy as np
import pytest

from densities import quadratic, two_gaussians
from latentuq.inference.chains import Chains
from latentuq.inference.importance import expectation
from latentuq.inference.moves import Kernel
from latentuq.inference.proposals import weigh_chains
from latentuq.inference.regions import Regions
from latentuq.inference.settings import Settings
from latentuq.inference.target import Target, log_densities_at

SETTINGS = Settings()
LOG_Z = -2.0
MEAN, COVARIANCE = np.array([1.0, -2.0]), np.array([[1.0, 0.6], [0.6, 0.5]])
SHAPE = (SETTINGS.islands, SETTINGS.chains)


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
        found.append(weigh_chains(jax.random.key(seed), target, chains, SETTINGS))
    return found


def test_the_evidence_is_exact_to_its_error(weighed):
    pulls = [
        float(each.draws.log_evidence - LOG_Z) / float(each.draws.log_evidence_error)
        for each in weighed
    ]
    # Student's t with 7 degrees: variance 7 / 5 and kurtosis 5; four errors of 30 squares.
    assert abs(np.mean(np.square(pulls)) - 1.4) < 4 * 1.4 * np.sqrt(4 / 30)
    assert max(float(each.draws.log_evidence_error) for each in weighed) < 0.02


def test_weighted_draws_stand_for_the_density(weighed):
    pulls = []
    for draws, counts in weighed:
        assert counts.forwards == SETTINGS.fresh
        assert draws.draws.shape == (SETTINGS.fresh + np.prod(SHAPE) * 16, 2)
        assert np.bincount(draws.islands).tolist() == [SETTINGS.fresh // 8 + 32 * 16] * 8
        np.testing.assert_allclose(np.logaddexp.reduce(draws.log_weights), 0, atol=1e-4)
        # ln p - ln q of the mixture that they come from is the weight.
        mixed = draws.log_densities - draws.log_proposals - np.log(len(draws.draws))
        seen = draws.log_weights > -50
        gaps = mixed - float(draws.log_evidence) - draws.log_weights
        np.testing.assert_allclose(gaps[seen], 0, atol=1e-3)
        white = np.linalg.solve(np.linalg.cholesky(COVARIANCE), (draws.draws - MEAN).T).T
        mean, error = expectation(white, draws.log_weights, draws.islands)
        pulls.append(mean / error)
        square, _ = expectation(white**2, draws.log_weights, draws.islands)
        np.testing.assert_allclose(square, 1, atol=0.1)
        assert draws.ess > 4000
    assert abs(np.mean(np.square(pulls)) - 1.4) < 4 * 1.4 * np.sqrt(4 / 60)


def test_a_short_history_gives_a_wide_error(weighed):
    # A chain that is stuck counts as one draw, and the error knows it.
    target, chains = gaussian_chains(0, stops=1)
    stuck = chains._replace(
        points=np.repeat(chains.settled.points, 32, axis=2),
        log_densities=np.repeat(chains.settled.log_densities, 32, axis=2),
    )
    draws = weigh_chains(jax.random.key(0), target, stuck, SETTINGS).draws
    assert draws.ess < SETTINGS.fresh + 2 * np.prod(SHAPE)
    assert abs(float(draws.log_evidence) - LOG_Z) < 5 * float(draws.log_evidence_error)


def test_masses_of_two_modes_do_not_depend_on_where_chains_are():
    mixture = two_gaussians(2, 16.0, (0.8, 0.2))
    target = Target(mixture.log_prob, 2, scale=4.0)
    regions = Regions(np.log([0.5, 0.5]), np.asarray(mixture.means), np.tile(np.eye(2), (2, 1, 1)))
    pulls = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        settled = rng.standard_normal((*SHAPE, 16, 2))
        # Three of four chains are where a fifth of the mass is.
        settled[..., 0] += np.where(np.arange(SETTINGS.chains) % 4, 8.0, -8.0)[:, None]
        chains = chains_of(target, regions, settled)
        draws = weigh_chains(jax.random.key(seed), target, chains, SETTINGS).draws
        mass, error = expectation(draws.draws[:, 0] > 0, draws.log_weights, draws.islands)
        pulls.append((mass - 0.2) / error)
        assert abs(mass - 0.2) < 0.03
        assert abs(float(draws.log_evidence)) < 6 * float(draws.log_evidence_error)
    assert abs(np.mean(np.square(pulls)) - 1.4) < 4 * 1.4 * np.sqrt(4 / 20)
