"""A small calibration study, and the same with planted bugs that it has to notice."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentuq as lu
from latentuq.calibration import studies
from latentuq.calibration.measure import DRAWS, Truth, measure_draws
from latentuq.calibration.summary import check_uniformity, coverage, mode_reliability

# Exact posteriors on a grid for the planted bugs, which takes many problems, the more so for widths
# that are wrong by a quarter; few for the engine.
PROBLEMS, MANY, SOLVED = 300, 1000, 24
SIDE = np.linspace(-4.5, 4.5, 121)
GRID = np.stack(np.meshgrid(SIDE, SIDE, indexing="ij"), axis=-1).reshape(-1, 2)
CELL = SIDE[1] - SIDE[0]


def bend(u):
    """Two sides of different steepness: two modes of different widths for every positive datum."""
    first = jnp.where(u[0] > 0, 0.5 * u[0] ** 2, 2 * u[0] ** 2)
    return jnp.stack([first, u[1], first + u[1], 0.3 * u[0]])


@pytest.fixture(scope="module")
def base():
    prior = lu.prior_from(bend, 2, (4,), 0.05)
    mask = lu.Mask(np.array([1, 1, 1, 0]))
    return lu.InverseProblem(prior, mask, lu.GaussianNoise(0.2), np.zeros(4))


@pytest.fixture(scope="module")
def simulations(base):
    keys = jax.random.split(jax.random.key(5), MANY)
    return eqx.filter_jit(lambda problem: jax.vmap(lambda key: problem.simulate(key))(keys))(base)


def truth_of(simulations, number):
    return Truth(np.asarray(simulations.x[number]), np.asarray(simulations.u[number]))


@eqx.filter_jit
def on_grid(problem, y):
    return jax.vmap(problem.with_data(y).log_density)(jnp.asarray(GRID, jnp.float32))


def study(base, simulations, log_posterior, problems=PROBLEMS):
    """Rows of a method that knows its log posterior on the grid."""
    rows, generator = [], np.random.default_rng(1)
    for number in range(problems):
        y = simulations.y[number]
        values = np.asarray(log_posterior(y), np.float64)
        shares = np.exp(values - values.max())
        chosen = generator.choice(len(GRID), 200, p=shares / shares.sum())
        draws = GRID[chosen] + CELL * generator.uniform(-0.5, 0.5, (200, 2))
        key = jax.random.key(number)
        problem = base.with_data(y)
        truth = truth_of(simulations, number)
        rows.append(measure_draws(key, problem, jnp.asarray(draws, jnp.float32), truth))
    return rows


def least_p_value(rows):
    return check_uniformity(rows).least


def test_exact_posteriors_are_calibrated(base, simulations):
    rows = study(base, simulations, lambda y: on_grid(base, y))
    assert least_p_value(rows) > 0.01
    for level, rate in coverage(rows, "hidden").items():
        assert abs(rate.value - level) < 3 * rate.error


def test_a_factor_of_two_in_the_noise_variance_is_noticed(base, simulations):
    noise = lu.GaussianNoise(0.2 / np.sqrt(2))
    wrong = lu.InverseProblem(base.prior, base.operator, noise, np.zeros(4))
    assert least_p_value(study(base, simulations, lambda y: on_grid(wrong, y), MANY)) < 0.01


def test_a_dropped_mode_is_noticed(base, simulations):
    right = GRID[:, 0] > 0

    def drop(y):
        values = np.asarray(on_grid(base, y))
        heavier = np.logaddexp.reduce(values[right]) > np.logaddexp.reduce(values[~right])
        return np.where(right == heavier, values, -np.inf)

    assert least_p_value(study(base, simulations, drop)) < 0.01


def test_weights_from_depth_alone_are_noticed(base, simulations):
    right = GRID[:, 0] > 0

    def by_depth(y):
        values = np.asarray(on_grid(base, y))
        for side in (right, ~right):
            mass, depth = np.logaddexp.reduce(values[side]), values[side].max()
            values = np.where(side, values - mass + depth, values)
        return values

    assert least_p_value(study(base, simulations, by_depth)) < 0.01


@pytest.mark.parametrize("method", ["laplace", "mean-field", "full-rank"])
def test_baselines_can_be_studied_too(base, simulations, method):
    truth = truth_of(simulations, 0)
    case = studies.Case(base.with_data(simulations.y[0]), truth)
    draws, facts = studies.METHODS[method](jax.random.key(0), case)
    assert draws.shape == (DRAWS, 2)
    assert np.isfinite(draws).all()
    exact = np.logaddexp.reduce(on_grid(base, simulations.y[0])) + 2 * np.log(CELL)
    assert abs(facts["log_evidence"] - exact) < 1
    measure_draws(jax.random.key(1), case.problem, draws, truth)


def test_our_own_posteriors_are_calibrated(base, simulations):
    rows, verdicts = [], []
    for number in range(SOLVED):
        key, measure_key = jax.random.split(jax.random.key(number))
        truth = truth_of(simulations, number)
        post = lu.solve(key, base.with_data(simulations.y[number]))
        verdicts.append(post.verdict)
        row = measure_draws(measure_key, post.problem, post.sample(key, 200), truth)
        held = post.responsibilities(jnp.asarray(truth.u))
        rows.append(row | {"weights": list(post.weights), "mode_of_truth": list(held)})
    # One in a hundred data sets looks as if the model had not made it.
    assert sum(verdict.startswith("unreliable") for verdict in verdicts) <= 2
    assert least_p_value(rows) > 0.01
    assert mode_reliability(rows).error < 0.25
    for level, rate in coverage(rows, "hidden").items():
        assert abs(rate.value - level) < 3 * np.sqrt(level * (1 - level) / SOLVED)
