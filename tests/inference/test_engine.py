import itertools
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentuq as lu
from densities import odd, two_gaussians
from latentuq.core.errors import UserError
from latentuq.inference import engine
from latentuq.inference.causes import Cause
from latentuq.inference.chains import Chains
from latentuq.inference.mixture import gaussian_mixture
from latentuq.inference.moves import Kernel
from latentuq.inference.policy import Info, Step
from latentuq.inference.regions import Regions
from latentuq.inference.result import COMPILING
from latentuq.inference.search import search
from latentuq.inference.settings import BUDGETS
from latentuq.inference.target import Counts, Target
from latentuq.inference.weighing import Weighed
from pulls import squares_of_pulls
from studies.exact import exact_posterior, linear_prior

# One scale for all mixtures, because it is compiled in.
SCALE = 1.5
DIM = 10


class Linear(eqx.Module):
    """A linear-Gaussian problem: ln p = -|A u - y|^2 / 2 - u.u / 2."""

    A: jax.Array
    y: jax.Array

    def residual(self, u):
        return self.A @ u - self.y

    def log_density(self, u):
        return -0.5 * jnp.sum(self.residual(u) ** 2) - 0.5 * jnp.sum(u**2)


def assert_gaussian(post, mean, covariance, log_evidence):
    """Moments and evidence within five and four of their own Monte Carlo errors."""
    assert post.verdict.reliable
    assert post.log_evidence_error < 0.02
    # Rounding of ln p in float32 adds up to about 1e-5 of its size.
    rounding = 1e-3 + 1e-5 * abs(log_evidence)
    assert abs(post.log_evidence - log_evidence) < 4 * post.log_evidence_error + rounding
    whiten = jnp.asarray(np.linalg.inv(np.linalg.cholesky(covariance)), jnp.float32)
    centre = jnp.asarray(mean, jnp.float32)

    def moments(u):
        v = whiten @ (u - centre)
        return jnp.stack([v, v**2 - 1, v * jnp.roll(v, 1)])

    values, errors = post.expect(moments)
    if len(mean) == 1:
        values, errors = values[:2], errors[:2]
    np.testing.assert_array_less(np.abs(values), 5 * errors)
    # The fit to the mode needs no weights: a Gaussian target makes it exact.
    fit = np.asarray(post.inference.factors[0])
    np.testing.assert_allclose(whiten @ fit @ fit.T @ whiten.T, np.eye(len(mean)), atol=2e-3)
    np.testing.assert_allclose(whiten @ (post.inference.means[0] - centre), 0, atol=2e-3)
    assert post.diagnostics.el2o[0] < 1e-4


@pytest.mark.slow
def test_a_gaussian_in_two_dimensions():
    mean, precision = np.array([0.5, -0.3]), np.array([4.0, 0.5])
    density = odd(mean=mean, precision=precision)
    post = lu.solve_density(jax.random.key(0), density.log_density, 2)
    expected = np.log(2 * np.pi) - 0.5 * np.log(precision).sum()
    assert_gaussian(post, mean, np.diag(1 / precision), expected)


@pytest.mark.slow
def test_a_linear_problem_in_fifty_dimensions():
    rng = np.random.RandomState(0)
    A, y = rng.randn(30, 50) / 2, rng.randn(30)
    problem = Linear(jnp.asarray(A, jnp.float32), jnp.asarray(y, jnp.float32))
    post = lu.solve_density(jax.random.key(0), problem.log_density, 50, problem.residual)
    covariance = np.linalg.inv(A.T @ A + np.eye(50))
    mean = covariance @ A.T @ y
    # The integral of exp(-psi): psi at its minimum, and the determinant.
    lowest = 0.5 * np.sum((A @ mean - y) ** 2) + 0.5 * np.sum(mean**2)
    expected = -lowest + 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    assert_gaussian(post, mean, covariance, expected)
    assert post.diagnostics.counts.jacobians > 0


SHAPE = (6, 8)


def image_problem(seed):
    prior = linear_prior(jax.random.key(0), DIM, SHAPE, 0.1)
    rng = np.random.RandomState(seed)
    x = np.asarray(prior.sample(jax.random.key(seed), 1)[0])
    y = x + 0.2 * rng.randn(*SHAPE)
    return lu.InverseProblem(prior, lu.Mask(rng.rand(*SHAPE) < 0.6), lu.GaussianNoise(0.2), y)


@pytest.mark.slow
def test_a_linear_image_problem_and_another_without_compiling_again():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    first, second = image_problem(1), image_problem(2)
    posts = [lu.solve(jax.random.key(0), first)]
    count = len(compiled)
    assert count > 0
    posts.append(lu.solve(jax.random.key(1), second))
    assert len(compiled) == count
    for post, problem in zip(posts, (first, second), strict=True):
        exact = exact_posterior(problem)
        assert_gaussian(post, exact.mean, exact.covariance, exact.log_evidence)
        assert len(post.modes) == 1
        assert post.diagnostics.rounds == 0


MIXTURES = {
    "separated": two_gaussians(DIM, 6.0, widths=(0.5, 0.5)),
    "overlapping": two_gaussians(DIM, 3.0),
    "unequal widths": two_gaussians(DIM, 4.0, widths=(0.5, 1.5)),
    "unequal weights": two_gaussians(DIM, 4.0, (0.7, 0.3), (0.5, 0.5)),
    "both": two_gaussians(DIM, 4.0, (0.3, 0.7), (0.5, 1.5)),
}


def mass_of(mixture, post):
    """Mass of each component, by the known responsibilities of posterior draws."""
    draws = post.sample(jax.random.key(100), 20000)
    return np.asarray(jnp.mean(jax.vmap(mixture.responsibilities)(draws), axis=0))


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_of_known_gaussians(name):
    mixture = MIXTURES[name]
    post = lu.solve_density(jax.random.key(0), mixture.log_prob, DIM, scale=SCALE)
    # Draws worth 10^4 independent ones know a mass to 0.005 and the evidence to 0.01.
    assert post.verdict.reliable
    np.testing.assert_allclose(mass_of(mixture, post), np.exp(mixture.log_weights), atol=0.02)
    assert abs(post.log_evidence) < 0.05
    assert len(post.modes) == 2
    assert np.all(np.diff(post.weights) <= 0)
    assert post.weights.sum() == pytest.approx(1, abs=1e-4)
    assert post.map_index == int(np.argmax(post.inference.log_densities))
    found = np.sort(post.modes[:, 0])
    np.testing.assert_allclose(found, np.sort(mixture.means[:, 0]), atol=0.15)


def hide_lighter(state):
    """The search without the mode at u_0 > 0 and without the starts that found it."""
    kept = [index for index, mode in enumerate(state.modes) if mode.point[0] < 0]
    starts = np.flatnonzero(np.isin(state.basins, kept))
    return state._replace(
        modes=tuple(state.modes[index] for index in kept),
        found_at=tuple(int(np.searchsorted(starts, state.found_at[index])) for index in kept),
        values=state.values[starts],
        basins=np.searchsorted(kept, state.basins[starts]),
        independent=state.independent[starts],
    )


# Particles that have come from the reference are in both basins, and chains stay where they began.
# Where chains cross, the answer is right; where they do not, it is right as far as the population
# was, because one region has chains in both, and the verdict says that they do not come round.
@pytest.mark.parametrize(("width", "off"), [(1.0, 0.04), (0.5, 0.1)])
@pytest.mark.slow
def test_a_hidden_mode_keeps_its_mass_or_the_answer_is_unreliable(monkeypatch, width, off):
    monkeypatch.setattr(engine, "search", lambda *arguments: hide_lighter(search(*arguments)))
    mixture = two_gaussians(DIM, 4.0, (0.7, 0.3), (width, width))
    for seed in range(10):
        post = lu.solve_density(jax.random.key(seed), mixture.log_prob, DIM, scale=SCALE)
        gap = abs(mass_of(mixture, post)[1] - 0.3)
        assert gap < off
        assert gap < 0.04 or not post.verdict.reliable
        # The chance of another basin is zero without the hidden mode: it cannot tell.
        assert post.diagnostics.new_basin_chance == 0
        assert post.diagnostics.rounds > 0


@pytest.fixture(scope="module")
def banana():
    """Default and preview of one curved density, and what was reported on the way."""
    density = odd(bend=1.0, precision=(1.0, 4.0))
    posts, stages = {}, {}
    for budget in ("default", "preview"):
        stages[budget] = []
        posts[budget] = lu.solve_density(
            jax.random.key(0),
            density.log_density,
            2,
            budget=budget,
            progress=stages[budget].append,
        )
    return posts, stages


def test_progress_comes_in_stages(banana):
    posts, stages = banana
    for budget, told in stages.items():
        # A cold start also says that it compiles.
        reports = [report for report in told if report.stage != COMPILING]
        names = [report.stage for report in reports]
        order = ["map", "modes", "fitted", "certified"]
        assert list(dict.fromkeys(names)) == order
        assert names == sorted(names, key=order.index)
        seconds = [report.seconds for report in reports]
        assert all(first < second for first, second in itertools.pairwise(seconds))
        assert all(report.modes.shape[1] == 2 and report.message for report in reports)
        assert reports[-1].message == posts[budget].verdict.computed.sentence
        np.testing.assert_array_equal(reports[-1].weights, posts[budget].weights)
        np.testing.assert_array_equal(reports[-1].modes, posts[budget].modes)


def test_a_preview_costs_a_quarter_at_most_and_moves_nothing(banana):
    posts, _ = banana
    default, preview = (posts[name].diagnostics for name in ("default", "preview"))
    assert preview.rounds == 0
    assert default.rounds in BUDGETS["default"].rounds
    assert posts["default"].verdict.reliable
    assert "chains ran" in default.course
    assert "no chains were needed" in preview.course
    assert preview.khat_limit == BUDGETS["preview"].gaussian_khat
    assert default.khat_limit == np.inf
    assert preview.turns == np.inf
    assert BUDGETS["default"].turns <= default.turns < np.inf
    assert preview.forward_equivalents <= default.forward_equivalents / 4


def test_chains_know_the_evidence_and_the_tails(banana):
    post = banana[0]["default"]
    # ln p = -u0^2 / 2 - 2 (u1 - u0^2)^2: the integral is 2 pi / 2, and u0 is normal.
    assert abs(post.log_evidence - np.log(np.pi)) < 5 * post.log_evidence_error
    tail, error = post.expect(lambda u: jnp.abs(u[0]) > 2)
    assert abs(tail - 0.0455) < 5 * error
    assert error < 0.01
    draws = post.inference.draws
    assert set(np.asarray(draws.islands).tolist()) == set(range(BUDGETS["default"].islands))
    assert draws.islands.shape == draws.log_weights.shape


def test_costs_add_up(banana):
    diagnostics = banana[0]["preview"].diagnostics
    counts = diagnostics.counts
    # Bank and draws; 64 samples and 8 evaluations of the one mode; Hessians of the search.
    assert counts.gradients == 64 * 8
    assert counts.jacobians == 0
    assert 4096 + 4096 <= counts.forwards < 4096 + 4096 + 200
    expected = counts.forwards + 3 * counts.gradients + 3 * 3 * counts.hessians
    assert diagnostics.forward_equivalents == expected


SETTINGS = BUDGETS["default"]


@pytest.fixture
def weigh(monkeypatch):
    """Weighs made-up chains as often as asked; what comes of it is given, with an error of 0.1."""
    regions = Regions(np.zeros(1), np.zeros((1, 2)), np.eye(2)[None])
    kernel, places = Kernel(np.eye(2)[None], np.zeros(1)), np.zeros((8, 2, 40, 2))
    chains = Chains(regions, np.zeros((8, 2), int), kernel, places, places[..., 0], ("a", "a"))
    target = Target(lambda u: -0.5 * u @ u, 2)
    known = {"state": engine.State(np.zeros((0, 2)), {}, chains=chains), "info": Info()}

    def once(rounds, log_evidence=0.0, turns=SETTINGS.turns, fresh=None):
        used = []

        def made_up(key, target, chains, fresh, efficiency, settings):
            used.append((fresh, efficiency))
            numbers = {"khat": 0.5, "ess": 1e4, "log_evidence": log_evidence}
            draws = SimpleNamespace(**numbers, log_evidence_error=0.1)
            return Weighed(draws, ("b", "c"), Counts(forwards=fresh))

        monkeypatch.setattr(engine, "weigh_chains", made_up)
        stops = chains.settled.points.shape[2]
        monkeypatch.setattr(engine, "efficiencies", lambda _: np.array([1.0, 0.7, turns / stops]))
        monkeypatch.setattr(engine, "drift", lambda _: (0.02, 0.3))
        info = known["info"]._replace(rounds=rounds)
        arguments = jax.random.key(0), target, known["state"], info, SETTINGS
        known["state"], known["info"] = engine._STEPS[Step.WEIGH](*arguments)
        assert known["info"].weighed == rounds
        # A place of a chain is worth what the middle one of the numbers says.
        assert used == [(known["info"].fresh, 0.7)]
        return known["state"], known["info"]

    return once


def test_evidence_is_held_against_that_after_a_quarter_to_a_half_of_the_rounds(weigh):
    found = {2: 0.0, 3: 0.1, 4: 0.3, 5: 0.3, 6: 0.4, 8: 0.5}
    changes = [weigh(rounds, value)[1].change for rounds, value in found.items()]
    # The error of a difference is sqrt(2) times 0.1; that to the first rounds is the largest.
    expected = np.array([0.3, 0.3, 0.4, 0.5]) / np.hypot(0.1, 0.1)
    assert changes[:2] == [np.inf, np.inf]
    np.testing.assert_allclose(changes[2:], expected)
    state, _ = weigh(8, 0.6)
    assert [evidence.rounds for evidence in state.evidences] == [2, 3, 4, 5, 6, 8, 8]
    assert [evidence.value for evidence in state.evidences] == [*found.values(), 0.6]
    # What was weighed twice after the same rounds is there twice; the first rounds are long ago.
    assert weigh(16, 0.8)[1].change == pytest.approx(0.5 / np.hypot(0.1, 0.1))
    assert weigh(16, 0.3)[1].change == pytest.approx(0.3 / np.hypot(0.1, 0.1))


def test_chains_are_weighed_again_with_more_draws(weigh):
    numbers = [weigh(rounds)[1].fresh for rounds in (2, 2, 2, 3, 3)]
    first, most = SETTINGS.fresh, SETTINGS.most_fresh
    assert numbers == [first, 4 * first, most, first, 4 * first]
    assert weigh(4)[0].counts.forwards == sum(numbers) + first


def test_moves_grow_as_long_as_chains_do_not_come_round(weigh):
    reaches = [weigh(rounds, turns=1.0)[0].chains.reach for rounds in (2, 3, 4)]
    assert reaches == [2.0, SETTINGS.longest, SETTINGS.longest]
    state, info = weigh(5)
    assert state.chains.reach == SETTINGS.longest
    # The slowest number tells, and chains may jump to what they were weighed against last.
    assert info.turns == pytest.approx(SETTINGS.turns)
    assert state.chains.proposals == ("b", "c")
    assert (info.khat, info.ess, info.error) == (0.5, 1e4, 0.1)
    assert (info.shift, info.shift_errors) == (0.02, 0.3)


def test_an_unknown_budget_is_refused():
    with pytest.raises(UserError, match="preview, default, thorough, not 'cheap'"):
        lu.solve_density(jax.random.key(0), lambda u: -jnp.sum(u**2), 2, budget="cheap")


def test_a_preview_of_a_curved_density_is_not_called_reliable():
    post = lu.solve_density(jax.random.key(1), odd(bend=0.8).log_density, 2, budget="preview")
    assert post.diagnostics.khat > 0.3
    assert [reason.cause for reason in post.verdict.computed.reasons] == [Cause.PREVIEW_ONLY]
    assert str(post.verdict).startswith("unreliable: this is a preview")


def two_bananas(u):
    return -((u[0] ** 2 - 4) ** 2) / 8 - 50 * (u[1] - u[0] ** 2 / 2) ** 2 + 0.3 * u[0]


@pytest.mark.slow
def test_draws_are_followed_to_the_mode_whose_basin_they_lie_in():
    post = lu.solve_density(jax.random.key(0), two_bananas, 2)
    assert post.diagnostics.rounds
    probes = post.inference.probes
    basins = np.asarray(probes.modes)
    assert set(basins.tolist()) == {0, 1}
    # The barrier is near u[0] = 0; where a descent from close to it ends is anyone's guess.
    sides = np.sign(np.asarray(post.modes)[basins, 0])
    began = np.asarray(probes.points)[:, 0]
    far = np.abs(began) > 0.7
    assert far.mean() > 0.8
    assert np.mean(sides[far] == np.sign(began[far])) > 0.97
    assert abs(np.mean(basins == 0) - post.weights[0]) < 0.05


@pytest.mark.slow
def test_draws_that_end_in_no_mode_make_weights_uncertain(monkeypatch):
    def lose(*args):
        probes = engine_probe(*args)
        return probes._replace(basins=np.full_like(probes.basins, -1))

    engine_probe = engine.probe
    monkeypatch.setattr(engine, "probe", lose)
    post = lu.solve_density(jax.random.key(0), two_bananas, 2)
    assert post.diagnostics.rounds
    (reason,) = post.verdict.computed.reasons
    assert reason.cause is Cause.DRAWS_LOST
    assert reason.numbers["lost"] == 1
    assert post.weight_errors[0] > 0.25


def test_progress_must_be_a_function():
    with pytest.raises(UserError, match="progress must be a function, not 'bar'"):
        lu.solve_density(jax.random.key(0), lambda u: -jnp.sum(u**2), 2, progress="bar")


def needle(u):
    """A standard normal, and a Gaussian of width 0.05 that has nine tenths of the mass."""
    wide = -0.5 * u @ u - np.log(2 * np.pi)
    narrow = -0.5 * jnp.sum((u - NEEDLE) ** 2) / 0.05**2 - np.log(2 * np.pi * 0.05**2)
    return jnp.logaddexp(np.log(0.1) + wide, np.log(0.9) + narrow)


NEEDLE = np.array([7.0, 6.0])


def test_starts_of_ones_own_find_what_the_reference_never_reaches():
    starts = np.random.default_rng(0).normal(NEEDLE, 0.02, (3, 2))
    without = lu.solve_density(jax.random.key(0), needle, 2)
    assert abs(without.log_evidence - np.log(0.1)) < 0.05
    post = lu.solve_density(jax.random.key(0), needle, 2, starts=starts)
    assert len(post.modes) == 2
    np.testing.assert_allclose(post.modes[0], NEEDLE, atol=0.01)
    assert abs(post.weights[0] - 0.9) < 5 * post.weight_errors[0] + 1e-3
    assert abs(post.log_evidence) < 5 * post.log_evidence_error + 1e-3


def test_all_starts_are_used_however_many():
    # More than two rounds have room for, and the last one alone leads to the needle.
    starts = np.random.default_rng(0).normal(size=(70, 2))
    starts[-1] = NEEDLE
    post = lu.solve_density(jax.random.key(0), needle, 2, starts=starts, budget="preview")
    assert np.min(np.linalg.norm(post.modes - NEEDLE, axis=1)) < 0.01


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        (np.zeros((4, 3)), r"starts must be of shape \(n, 2\), not \(4, 3\)"),
        (np.zeros(2), r"starts must be of shape \(n, 2\), not \(2,\)"),
        ([[0.0, np.nan]], "starts"),
        ([["a", "b"]], "starts"),
    ],
)
def test_starts_that_do_not_fit_are_one_sentence(starts, message):
    with pytest.raises(UserError, match=message) as caught:
        lu.solve_density(jax.random.key(0), needle, 2, starts=starts)
    assert str(caught.value).count("\n") == 0
    assert str(caught.value).endswith(".")


def curved_beside_a_wall(u):
    banana = -0.5 * u[0] ** 2 - 0.5 * ((u[1] - u[0] ** 2) / 0.3) ** 2
    return jnp.where(u[0] > 0.5, jnp.nan, banana)


def flat(u):
    return -0.5 * u[0] ** 2


def rising(u):
    return 3 * u[0] - u[1] ** 2


def nowhere(u):
    return jnp.nan * u[0]


@pytest.mark.parametrize(
    ("density", "causes"),
    [
        (curved_beside_a_wall, {Cause.AGREED}),
        (flat, {Cause.UNSETTLED}),
        (rising, {Cause.NO_MODE}),
        (nowhere, {Cause.DENSITY_ZERO}),
    ],
)
@pytest.mark.slow
def test_every_density_gets_a_verdict(density, causes):
    post = lu.solve_density(jax.random.key(0), density, 2)
    assert {reason.cause for reason in post.verdict.computed.reasons} == causes
    if density is curved_beside_a_wall:
        exact = np.log(2 * np.pi * 0.3 * 0.6914625)  # The normal distribution up to 0.5.
        assert abs(post.log_evidence - exact) < 5 * post.log_evidence_error + 0.01
        assert np.all(post.sample(jax.random.key(1), 1000)[:, 0] <= 0.5)


def banana_of(bend, width):
    """A normalised banana: u_0 is N(0, 1), u_1 is N(bend (u_0^2 - 1), width)."""

    def log_density(u):
        gap = (u[1] - bend * (u[0] ** 2 - 1)) / width
        return -0.5 * u[0] ** 2 - 0.5 * gap**2 - np.log(2 * np.pi * width)

    return log_density


@pytest.mark.slow
def test_a_banana_is_known_to_its_tails():
    for seed in range(4):
        post = lu.solve_density(jax.random.key(seed), banana_of(1.0, 0.3), 2)
        assert post.verdict.reliable
        assert abs(post.log_evidence) < 5 * post.log_evidence_error + 0.03
        tail, error = post.expect(lambda u: jnp.abs(u[0]) > 2)
        assert abs(tail - 0.0455) < 5 * error + 0.003


@pytest.mark.slow
def test_the_tail_of_a_banana_is_right_to_its_stated_error():
    bend, width = 2.0, 0.3

    def log_density(u):
        rest = -0.5 * jnp.sum(u[2:] ** 2) - 0.5 * len(u[2:]) * np.log(2 * np.pi)
        return banana_of(bend, width)(u) + rest

    pulls = []
    for seed in range(4):
        post = lu.solve_density(jax.random.key(seed), log_density, 4)
        assert post.verdict.reliable
        tail, error = post.expect(lambda u: jnp.abs(u[0]) > 2)
        assert error < 0.01
        pulls.append([(tail - 0.0455) / error, post.log_evidence / post.log_evidence_error])
    # Four errors of a mean of four squares, of the tail and of ln evidence.
    expected, spread = squares_of_pulls(SETTINGS.islands)
    assert np.all(np.mean(np.square(pulls), axis=0) < expected + 4 * spread / np.sqrt(4))


class ChainsMoveError(Exception):
    """The Gaussians did not suffice."""


@pytest.mark.parametrize("degrees", [3.0, 5.0])
@pytest.mark.slow
def test_gaussians_alone_do_not_certify_heavy_tails(monkeypatch, degrees):
    """At 32 dimensions no draw of theirs reaches the tails, which k-hat does not see either."""
    dim = 32

    def log_density(u):
        return -0.5 * (degrees + dim) * jnp.log1p(u @ u / degrees)

    def stop(*_):
        raise ChainsMoveError

    monkeypatch.setitem(engine._STEPS, Step.MOVE, stop)
    for seed in range(3):
        with pytest.raises(ChainsMoveError):
            lu.solve_density(jax.random.key(seed), log_density, dim)


@pytest.mark.parametrize("dim", [64, 256])
@pytest.mark.slow
def test_linear_problems_of_many_dimensions_are_right_to_their_errors(dim):
    rng = np.random.RandomState(dim)
    A, y = rng.randn(dim // 2, dim) / np.sqrt(dim / 8), rng.randn(dim // 2)
    problem = Linear(jnp.asarray(A, jnp.float32), jnp.asarray(y, jnp.float32))
    post = lu.solve_density(jax.random.key(0), problem.log_density, dim, problem.residual)
    covariance = np.linalg.inv(A.T @ A + np.eye(dim))
    mean = covariance @ A.T @ y
    lowest = 0.5 * np.sum((A @ mean - y) ** 2) + 0.5 * np.sum(mean**2)
    expected = -lowest + 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    # Rounding of ln p in float32 adds up to about 1e-5 of its size.
    rounding = 1e-3 + 1e-5 * abs(expected)
    assert abs(post.log_evidence - expected) < 4 * post.log_evidence_error + rounding
    values, errors = post.expect(lambda u: u)
    np.testing.assert_array_less(np.abs(values - mean), 5 * errors + 1e-3)
    assert post.verdict.reliable


@pytest.mark.slow
def test_many_modes_are_not_lost_in_silence():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        number, dim = 5 + seed, 2 + seed % 4
        means = 1.5 * rng.standard_normal((number, dim))
        weights = rng.dirichlet(np.full(number, 5.0))
        covariances = np.tile(0.15**2 * np.eye(dim), (number, 1, 1))
        mixture = gaussian_mixture(*map(jnp.asarray, (weights, means, covariances)))
        post = lu.solve_density(jax.random.key(seed), mixture.log_prob, dim, scale=1.5)
        right = mass_of(mixture, post)
        # The study's bar: more than 2 % of the mass is missing.
        found = np.abs(right - weights) < 0.5 * weights
        missing = float(np.sum(weights[~found]))
        assert missing < 0.02 or not post.verdict.reliable
        if post.verdict.reliable:
            assert abs(post.log_evidence) < 5 * post.log_evidence_error + 0.02


@pytest.mark.slow
def test_double_precision_holds_from_end_to_end():
    with jax.enable_x64(True):
        straight = odd(mean=(0.5, -0.3), precision=(4.0, 0.5))
        post = lu.solve_density(jax.random.key(0), straight.log_density, 2)
        curved = lu.solve_density(jax.random.key(0), banana_of(1.0, 0.3), 2)
    expected = np.log(2 * np.pi) - 0.5 * np.log(2.0)
    assert post.diagnostics.rounds == 0
    assert curved.diagnostics.rounds > 0
    for answer, truth in ((post, expected), (curved, 0.0)):
        assert answer.verdict.reliable
        assert answer.inference.draws.draws.dtype == np.float64
        assert answer.inference.draws.log_weights.dtype == np.float64
        assert answer.inference.modes.dtype == np.float64
        assert abs(answer.log_evidence - truth) < 5 * answer.log_evidence_error + 0.01
