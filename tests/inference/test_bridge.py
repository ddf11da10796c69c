"""Bridge sampling of densities whose integrals, region by region, are known."""

import numpy as np
import pytest
from scipy import stats

from latentuq.inference.bridge import Bridged, Seen, bridge
from latentuq.inference.importance import expectation
from pulls import squares_of_pulls

LOG_Z = 3.0


def gaussian_case(rng, islands, chained, fresh, dim=2, shift=0.7, width=0.7, copies=1):
    """E^3 N(0, I) and a proposal that is off and too narrow; chains are exact draws of it.

    Each draw of a chain is there `copies` times, as it is where chains refuse to move.
    """
    chains = np.repeat(rng.standard_normal((chained // copies, dim)), copies, axis=0)
    draws = shift + width * rng.standard_normal((fresh, dim))
    points = np.concatenate([draws, chains])
    log_p = LOG_Z + stats.norm.logpdf(points).sum(axis=1)
    log_q = stats.norm.logpdf(points, shift, width).sum(axis=1)
    where = np.concatenate([np.arange(fresh) % islands, np.arange(chained) * islands // chained])
    sources = np.concatenate([np.arange(fresh), fresh + np.arange(chained) // copies])
    is_chain = np.arange(len(points)) >= fresh
    return Seen(points, log_p, log_q, where, sources, np.zeros(len(points), int), is_chain)


# The chains of 1-in-4 draws are worth a quarter of their number, and bridge is told so.
@pytest.mark.parametrize(("islands", "copies"), [(8, 1), (32, 1), (32, 4)])
def test_the_evidence_is_right_to_its_stated_error(islands, copies):
    rng, pulls, errors, repetitions = np.random.default_rng(islands), [], [], 200
    for _ in range(repetitions):
        seen = gaussian_case(rng, islands, 1024, 512, copies=copies)
        found = bridge(seen, islands, 1 / copies)
        pulls.append((found.log_evidence - LOG_Z) / found.error)
        errors.append(found.error)
    expected, spread = squares_of_pulls(islands)
    assert abs(np.mean(np.square(pulls)) - expected) < 4 * spread / np.sqrt(repetitions)
    assert abs(np.mean(pulls)) < 4 * np.sqrt(expected / repetitions) + np.mean(errors)
    # No pull is larger than the normal number in it: one chance in a thousand for all of them.
    assert np.max(np.abs(pulls)) < stats.norm.isf(0.5e-3 / repetitions)
    assert np.mean(errors) < 0.1


def test_overlap_suffices_where_importance_sampling_fails():
    seen = gaussian_case(np.random.default_rng(0), 8, 4096, 4096, dim=20, shift=0.3, width=0.6)
    found = bridge(seen, 8, 1.0)
    assert found.error < 0.15
    assert abs(found.log_evidence - LOG_Z) < 4 * found.error
    gains = (seen.log_densities - seen.log_proposals)[~seen.chained]
    plain = np.logaddexp.reduce(gains) - np.log(len(gains))
    assert abs(plain - LOG_Z) > 4 * found.error


def test_weights_stand_for_the_density_and_none_is_large():
    seen = gaussian_case(np.random.default_rng(1), 8, 2048, 1024)
    found = bridge(seen, 8, 0.5)
    assert np.logaddexp.reduce(found.log_weights) == pytest.approx(found.log_evidence, abs=1e-5)
    # Z / n_p bounds those of the proposal's draws, the efficiency times that those of chains; and
    # islands count for more or less by as much as they disagree, which is a few per cent here.
    bound = found.log_evidence - np.log(0.5 * 2048) + 0.1
    assert np.max(found.log_weights[~seen.chained]) <= bound
    assert np.max(found.log_weights[seen.chained]) <= bound + np.log(0.5)
    gains = seen.log_densities - seen.log_proposals
    assert np.max(gains) - np.log(1024) > bound + 3
    mean, error = expectation(seen.points**2, found.log_weights, (seen.islands, seen.sources))
    assert np.all(np.abs(mean - 1) < 5 * error)
    assert np.all(error < 0.1)
    # All draws of chains, at half of their number, and some of the proposal's.
    assert 0.5 * 2048 < found.ess < 0.5 * 2048 + 1024


def two_regions(rng, chains, mass=0.7, share=0.5, islands=8, fresh=2048):
    """`mass` at -10 and the rest at 10, with chains of 16 draws: so many in each of the islands.

    Args:
        rng: The random numbers.
        chains: The number of chains at -10 of each island, which has 32 in all.
        mass: The mass at -10.
        share: The proposal's share there.
        islands: The number of islands.
        fresh: The number of draws of the proposal.
    """
    sides = [np.where(np.arange(32) < count, -10.0, 10.0) for count in chains]
    centres = np.repeat(np.array(sides), 16)
    drawn = np.where(rng.uniform(size=fresh) < share, -10.0, 10.0)
    points = np.concatenate(
        [drawn + 1.3 * rng.standard_normal(fresh), centres + rng.standard_normal(centres.size)]
    )
    log_p = LOG_Z + np.log(
        mass * stats.norm.pdf(points, -10) + (1 - mass) * stats.norm.pdf(points, 10)
    )
    log_q = np.log(
        share * stats.norm.pdf(points, -10, 1.3) + (1 - share) * stats.norm.pdf(points, 10, 1.3)
    )
    where = np.concatenate([np.arange(fresh) % islands, np.repeat(np.arange(islands), 32 * 16)])
    sources = np.concatenate([np.arange(fresh), fresh + np.arange(centres.size) // 16])
    is_chain = np.arange(len(points)) >= fresh
    regions = (points > 0).astype(int)
    return Seen(points[:, None], log_p, log_q, where, sources, regions, is_chain)


@pytest.mark.parametrize("chains", [[16] * 8, [3] * 8, [30, 2, 20, 8, 25, 5, 16, 10]])
def test_how_many_chains_a_region_has_is_of_no_consequence(chains):
    rng, gaps, errors, evidences = np.random.default_rng(2), [], [], []
    for _ in range(100):
        seen = two_regions(rng, chains)
        found = bridge(seen, 8, 1.0)
        left = (seen.points[:, 0] < 0).astype(float)
        mass, error = expectation(left, found.log_weights, (seen.islands,))
        assert abs(mass - 0.7) < 0.05
        assert error < 0.05
        gaps.append(mass - 0.7)
        errors.append(error)
        evidences.append((found.log_evidence - LOG_Z) / found.error)
    # The numbers of chains are not in the stated errors, either; but the error of the bridge is,
    # which the terms of the chains alone would not tell. Islands alone tell that of the mass. Each
    # half of them scatters about its own mean, so that 6 numbers tell what 7 should: the mean
    # square error is 7 / 6 of the stated one. Four errors of 100 squares and 100 times 6.
    ratio = np.mean(np.square(gaps)) / np.mean(np.square(errors))
    assert abs(ratio / (7 / 6) - 1) < 4 * np.sqrt(2 / 100 + 2 / 600)
    expected, spread = squares_of_pulls(8)
    assert abs(np.mean(np.square(evidences)) - expected) < 4 * spread / np.sqrt(100)


def test_islands_count_alike_where_their_chains_are_many_or_few():
    seen = two_regions(np.random.default_rng(3), [16, 16, 16, 16, 16, 16, 8, 24])
    found = bridge(seen, 8, 1.0)
    here = seen.regions == 0
    sums = np.bincount(seen.islands[here], np.exp(found.log_weights[here] - LOG_Z), 8)
    # Unlevelled, the last two would differ by a factor of three; their estimates of the mass of the
    # region differ by a few per cent.
    np.testing.assert_allclose(sums / sums.mean(), 1, atol=0.15)


def test_without_chains_it_is_importance_sampling():
    seen = gaussian_case(np.random.default_rng(4), 8, 0, 4096, width=1.3)
    found = bridge(seen, 8, 1.0)
    gains = seen.log_densities - seen.log_proposals
    assert found.log_evidence == pytest.approx(np.logaddexp.reduce(gains) - np.log(4096))
    # Islands count by what they alone would say, which differs by a few per cent.
    np.testing.assert_allclose(found.log_weights, gains - np.log(4096), atol=0.1)
    assert np.logaddexp.reduce(found.log_weights) == pytest.approx(found.log_evidence)
    shares = np.exp(gains - np.logaddexp.reduce(gains))
    assert found.ess == pytest.approx(1 / np.sum(shares**2))
    # The sources tell the delta method's error, and the scatter of eight islands knows it to a
    # quarter; the larger one counts.
    exact = np.sqrt(1 / found.ess - 1 / 4096)
    assert 0.99 * exact < found.error < 2 * exact
    assert abs(found.log_evidence - LOG_Z) < 5 * found.error


def test_a_region_without_chains_is_weighed_by_the_proposal_alone():
    seen = two_regions(np.random.default_rng(5), [32] * 8)
    found = bridge(seen, 8, 1.0)
    assert abs(found.log_evidence - LOG_Z) < 5 * found.error
    mass, error = expectation(seen.points[:, 0] < 0, found.log_weights, (seen.islands,))
    assert abs(mass - 0.7) < 5 * error


def test_a_region_without_fresh_draws_cannot_be_weighed():
    seen = two_regions(np.random.default_rng(6), [16] * 8, share=1.0)
    found = bridge(seen, 8, 1.0)
    assert abs(found.log_evidence - (LOG_Z + np.log(0.7))) < 5 * found.error + 1e-6
    assert np.logaddexp.reduce(found.log_weights[seen.regions == 1]) < LOG_Z - 20


def test_values_that_are_not_finite_weigh_nothing():
    seen = gaussian_case(np.random.default_rng(7), 8, 512, 512)
    values = seen.log_densities.copy()
    values[::50] = -np.inf
    values[1::50] = np.nan
    found = bridge(seen._replace(log_densities=values), 8, 1.0)
    assert np.isfinite(found.log_evidence)
    assert np.all(found.log_weights[~np.isfinite(values)] == -np.inf)
    assert np.all(np.isfinite(found.log_weights[np.isfinite(values)]))


def test_a_density_that_is_nowhere_has_no_evidence():
    seen = gaussian_case(np.random.default_rng(8), 8, 64, 64)
    found = bridge(seen._replace(log_densities=np.full(128, -np.inf)), 8, 1.0)
    assert found[1:] == Bridged(found.log_weights, -np.inf, np.inf, 0.0)[1:]
    assert np.all(found.log_weights == -np.inf)
