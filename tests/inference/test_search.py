import jax
import jax.numpy as jnp
import numpy as np
import pytest

from densities import two_gaussians
from latentuq.inference.mixture import gaussian_mixture
from latentuq.inference.modes import Mode, empty_search, make_mode
from latentuq.inference.search import (
    ROUND_STARTS,
    descend_from,
    is_settled,
    relevant_modes,
    search,
)
from latentuq.inference.settings import Settings
from latentuq.inference.target import Target

EMPTY = empty_search()
SETTINGS = Settings()
QUIET = SETTINGS.quiet_starts
MEANS = np.array([[-3.0, 0.0], [3.0, 0.0], [0.0, 4.0]])
WEIGHTS = np.array([0.5, 0.3, 0.2])
WIDTHS = np.array([0.8, 1.0, 0.6])
# A converged descent is within sqrt(2 * 1e-3) widths of its minimum, which the other components
# pull by less than that again.
CLOSE = 0.1


def three_gaussians():
    covariances = [width**2 * np.eye(2) for width in WIDTHS]
    return gaussian_mixture(
        jnp.asarray(WEIGHTS, jnp.float32),
        jnp.asarray(MEANS, jnp.float32),
        jnp.asarray(np.array(covariances), jnp.float32),
    )


@pytest.fixture(scope="module")
def found():
    target = Target(three_gaussians().log_prob, 2, scale=3.0)
    states = [EMPTY]
    while not is_settled(states[-1], SETTINGS) and len(states) <= SETTINGS.search_rounds:
        states.append(search(jax.random.key(len(states)), target, states[-1]))
    return states[-1], states[1:]


def test_every_mode_is_found_once(found):
    state, _ = found
    points = np.array([mode.point for mode in state.modes])
    nearest = [int(np.argmin(np.linalg.norm(MEANS - point, axis=1))) for point in points]
    assert sorted(nearest) == [0, 1, 2]
    np.testing.assert_allclose(points, MEANS[nearest], atol=CLOSE)
    # Laplace's mass of a component of a normalised mixture is its weight; the neighbours, at
    # least 4.3 widths away, change that by a few times exp(-4.3^2 / 2) = 1e-4.
    masses = np.exp([mode.log_mass for mode in state.modes])
    np.testing.assert_allclose(masses, WEIGHTS[nearest], atol=0.01)
    for mode, which in zip(state.modes, nearest, strict=True):
        np.testing.assert_allclose(mode.hessian * WIDTHS[which] ** 2, np.eye(2), atol=0.02)


def test_the_record_of_starts(found):
    state, reports = found
    rounds = len(reports)
    assert len(state.values) == len(state.basins) == len(state.independent) == rounds * ROUND_STARTS
    np.testing.assert_array_equal(state.independent, np.arange(rounds * ROUND_STARTS) % 2 == 0)
    # The density has no other minima: every start ends in one of the three.
    assert np.all(state.basins >= 0)
    for index, first in enumerate(state.found_at):
        members = np.flatnonzero(state.basins == index)
        assert members[0] == first
        np.testing.assert_allclose(state.values[members], state.modes[index].value, atol=0.02)
    assert is_settled(state, SETTINGS)
    assert not any(is_settled(report, SETTINGS) for report in reports[:-1])
    assert state.counts.forwards >= 4096
    # Two evaluations of each start at the least.
    assert state.counts.hessians >= 2 * len(state.values)


def from_starts(mixture, starts):
    """The state after one round from given starts."""
    return round_from(EMPTY, Target(mixture.log_prob, 2), starts)


def round_from(state, target, starts):
    starts = np.resize(np.asarray(starts, np.float32), (ROUND_STARTS, target.dim))
    return descend_from(state, target, starts, independent=np.ones(ROUND_STARTS, bool))


def test_a_saddle_is_escaped_both_ways():
    # Nothing but rounding leads away from the plane between two equal Gaussians.
    mixture = two_gaussians(2, 4.0)
    state = from_starts(mixture, [[0.0, 0.5]])
    saddle = -float(mixture.log_prob(jnp.zeros(2)))
    assert np.all(np.abs(state.values - saddle) < 0.01)
    points = np.array(sorted(mode.point[0] for mode in state.modes))
    np.testing.assert_allclose(points, [-2, 2], atol=CLOSE)
    assert all(np.linalg.eigvalsh(mode.hessian)[0] > 0 for mode in state.modes)


# At mid-way the density is exp(-gap^2 / 8), at the modes 1/2 and a little: the barrier is 1.3 nats
# at a gap of 4 widths and 0.15 at 2.5.
@pytest.mark.parametrize(("gap", "count"), [(4.0, 2), (2.5, 1)])
def test_two_minima_without_a_barrier_are_one_mode(gap, count):
    state = from_starts(two_gaussians(2, gap), [[gap, 0.3], [-gap, 0.1], [1.0, -1.0]])
    assert len(state.modes) == count
    assert set(state.basins) == set(range(count))


@pytest.mark.parametrize("slope", [1.5, 20.0])
def test_a_minimum_at_a_kink_is_a_mode(slope):
    def log_density(u):
        return -0.5 * jnp.sum(u**2) - slope * jnp.abs(u[0] - 1)

    state = search(jax.random.key(0), Target(log_density, 2), EMPTY)
    assert len(state.modes) == 1
    assert state.modes[0].kinked
    # psi = 1/2 at the kink, and a descent ends within its rounding of that.
    np.testing.assert_allclose(state.modes[0].value, 0.5, atol=0.02)
    np.testing.assert_allclose(state.modes[0].point, [1, 0], atol=0.15)
    # Some stall farther along the kink.
    assert np.mean(state.basins == 0) > 0.5


def test_where_psi_still_falls_there_is_no_mode():
    state = search(jax.random.key(0), Target(lambda u: 3 * u[0] - u[1] ** 2, 2), EMPTY)
    assert not state.modes


def test_a_later_round_recognises_what_is_known():
    mixture = two_gaussians(2, 4.0)
    target = Target(mixture.log_prob, 2)
    first = from_starts(mixture, [[2.5, 0.3]])
    assert len(first.modes) == 1
    second = round_from(first, target, [[1.5, 0.0], [-1.5, 0.2]])
    assert len(second.modes) == 2
    assert second.found_at == (0, ROUND_STARTS + 1)
    np.testing.assert_array_equal(second.basins[:ROUND_STARTS], 0)
    np.testing.assert_array_equal(second.basins[ROUND_STARTS:], np.arange(ROUND_STARTS) % 2)


def test_a_deeper_minimum_below_a_known_shoulder_is_found():
    def log_density(u):
        shoulder = 1.4 * jnp.exp(-0.5 * ((u[0] - 6) / 0.25) ** 2)
        return shoulder - u[0] ** 2 / 4 - u[1] ** 2 / 2

    target = Target(log_density, 2)
    first = round_from(EMPTY, target, [[6.0, 0.1]])
    assert [round(mode.value, 1) for mode in first.modes] == [7.4]
    second = round_from(first, target, [[0.5, 0.3]])
    assert min(mode.value for mode in second.modes) == pytest.approx(0, abs=1e-2)


@pytest.mark.parametrize("squares", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_a_saddle_beside_a_known_mode_is_left_both_ways(squares, together):
    def residual(u):  # Two wells at (-1, 0) and (1, 0), and a ridge of 4.5 nats.
        return jnp.array([3 * (u[0] ** 2 - 1), u[1]])

    def log_density(u):
        return -0.5 * jnp.sum(residual(u) ** 2) - u @ u / 2e4

    target = Target(log_density, 2, residual if squares else None, scale=100.0)
    well, ridge = [[1.2, 0.1]], [[0.0, 0.5]]
    if together:
        state = round_from(EMPTY, target, well + ridge)
    else:
        state = round_from(round_from(EMPTY, target, well), target, ridge)
    points = np.array(sorted(mode.point[0] for mode in state.modes))
    np.testing.assert_allclose(points, [-1, 1], atol=CLOSE)


def test_ends_that_have_reached_a_mode_are_not_polished(monkeypatch):
    def residual(u):  # A curved valley: descents end along it.
        return jnp.array([0.5 * u[0], 5 * (u[1] - u[0] ** 2)])

    def log_density(u):
        return -0.5 * jnp.sum(residual(u) ** 2) - u @ u / 2

    target = Target(log_density, 2, residual)
    state = search(jax.random.key(0), target, EMPTY)
    assert len(state.modes) == 1
    monkeypatch.setattr("latentuq.inference.search.polish", lambda *_: pytest.fail("polished"))
    starts = np.random.default_rng(0).normal(size=(ROUND_STARTS, 2))
    again = round_from(state, target, starts)
    assert np.all(again.basins == 0)


def state_with(log_masses, found_at, starts, hits=None):
    """A search with these modes; each was found by many starts, or as often as `hits` says."""
    modes = tuple(Mode(np.zeros(1), 0.0, np.eye(1), log_mass) for log_mass in log_masses)
    hits = [starts] * len(modes) if hits is None else hits
    return EMPTY._replace(
        modes=modes,
        found_at=tuple(found_at),
        values=np.zeros(starts),
        basins=np.repeat(np.arange(len(modes)), hits),
    )


# The square of their number.
FOR_TWO = 4 * SETTINGS.starts_per_mode


@pytest.mark.parametrize(
    ("log_masses", "found_at", "starts", "settled"),
    [
        ([0.0], [0], QUIET, False),
        ([0.0], [SETTINGS.starts_per_mode], SETTINGS.starts_per_mode + QUIET, False),
        ([0.0], [SETTINGS.starts_per_mode], SETTINGS.starts_per_mode + QUIET + 1, True),
        ([0.0, -1.0], [0, FOR_TWO], FOR_TWO + QUIET, False),
        ([0.0, -1.0], [0, FOR_TWO], FOR_TWO + QUIET + 1, True),
        # Less than `relevant` of the heaviest's mass does not count.
        ([0.0, -5.0], [0, FOR_TWO], FOR_TWO + 1, True),
        # The more modes, the more starts.
        ([0.0, -1.0], [0, 1], FOR_TWO - 1, False),
        ([0.0, -1.0], [0, 1], FOR_TWO, True),
        ([0.0, -5.0], [0, 1], FOR_TWO - 1, True),
    ],
)
def test_the_search_ends_when_no_mode_of_relevant_mass_is_new(
    log_masses, found_at, starts, settled
):
    assert not is_settled(EMPTY, SETTINGS)
    assert is_settled(state_with(log_masses, found_at, starts), SETTINGS) == settled


@pytest.mark.parametrize("share", [0.01, 0.03])
@pytest.mark.parametrize("hits", [SETTINGS.lonely, SETTINGS.lonely + 1])
def test_the_search_goes_on_while_lonely_modes_hold_mass(share, hits):
    # Found long ago, but only `hits` starts ended there: what none has found may hold as much.
    state = state_with(np.log([1 - share, share]), [0, 1], 500, [400, hits])
    lonely = hits <= SETTINGS.lonely and share > SETTINGS.lonely_mass
    assert is_settled(state, SETTINGS) != lonely


def test_relevant_modes_are_the_heaviest_and_the_deepest():
    state = state_with([0.0, -1.0, -8.9, -9.1, -50.0], [0] * 5, 100)
    assert relevant_modes(state, SETTINGS) == [0, 1, 2]
    modes = (*state.modes[:4], state.modes[4]._replace(value=-1.0))
    assert relevant_modes(state._replace(modes=modes), SETTINGS) == [0, 1, 2, 4]
    few = Settings(most_modes=2)
    assert relevant_modes(state._replace(modes=modes), few) == [0, 4]
    assert relevant_modes(EMPTY, SETTINGS) == []


def test_places_where_the_density_is_are_starts_in_their_order():
    # No start of the reference comes near the needle at (30, 0).
    needle = gaussian_mixture(
        jnp.array([0.5, 0.5]), jnp.array([[0.0, 0.0], [30.0, 0.0]]), jnp.tile(jnp.eye(2), (2, 1, 1))
    )
    target = Target(needle.log_prob, 2)
    likely = np.zeros((96, 2))
    likely[40] = 30.0, 0.5
    first = search(jax.random.key(0), target, EMPTY, likely, 0)
    second = search(jax.random.key(1), target, first, likely, 1)
    # Half of each round: the forty-first place is in the second one, at an odd position.
    assert len(first.modes) == 1
    assert len(second.modes) == 2
    assert second.found_at[1] == ROUND_STARTS + 2 * (40 - ROUND_STARTS // 2) + 1
    # No bank of draws of the reference was needed.
    assert second.counts.forwards < 4096
    # Starts that a sweep has made count for nothing in that order.
    swept = first._replace(
        values=np.zeros(999), basins=np.zeros(999, int), independent=np.ones(999, bool)
    )
    assert len(search(jax.random.key(1), target, swept, likely, 1).modes) == 2


def test_good_turing_counts_the_basins_of_independent_starts():
    basins = np.array([0, 1, 0, 2, 0, 1, 3, -1])
    independent = np.array([1, 1, 1, 1, 1, 1, 0, 1], bool)
    # Independent starts: basin 0 three times, 1 twice, 2 once, none once; 3 is not theirs.
    state = EMPTY._replace(basins=basins, independent=independent)
    assert state.new_basin_chance == pytest.approx(1 / 7)
    assert np.isnan(EMPTY.new_basin_chance)


def test_a_flat_direction_counts_as_ten_scales():
    target = Target(lambda u: -0.5 * u[0] ** 2, 2, scale=2.0)
    mode = make_mode(target, np.zeros(2), 0.0, np.diag([4.0, 0.0]))
    np.testing.assert_allclose(mode.hessian, np.diag([4.0, 20.0**-2]))
    assert mode.log_mass == pytest.approx(np.log(2 * np.pi) + np.log(0.5) + np.log(20))
