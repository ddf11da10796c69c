"""A small calibration study, and the same with planted bugs that it has to notice."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentuq as lu
from latentuq.calibration.measure import Truth, coverage, measure_draws
from studies.calibration_summary import check_uniformity, check_weights
from studies.pages import is_unreliable

PROBLEMS = 300
SIDE = np.linspace(-4.5, 4.5, 121)
GRID = np.stack(np.meshgrid(SIDE, SIDE, indexing="ij"), axis=-1).reshape(-1, 2)
CELL = SIDE[1] - SIDE[0]
DRAWN = 200


def bend(u):
    """Two sides of different steepness: two modes of different widths for every positive datum."""
    first = jnp.where(u[0] > 0, 0.5 * u[0] ** 2, 2 * u[0] ** 2)
    return jnp.stack([first, u[1], first + u[1], 3 * u[0]])


@pytest.fixture(scope="module")
def base():
    prior = lu.prior_from(bend, 2, (4,), 0.05)
    mask = lu.Mask(np.array([1, 1, 1, 0]))
    return lu.InverseProblem(prior, mask, lu.GaussianNoise(0.2), np.zeros(4))


@pytest.fixture(scope="module")
def simulations(base):
    keys = jax.random.split(jax.random.key(5), PROBLEMS)
    return eqx.filter_jit(lambda problem: jax.vmap(lambda key: problem.simulate(key))(keys))(base)


def truth_of(simulations, number):
    return Truth(np.asarray(simulations.x[number]), np.asarray(simulations.u[number]))


@eqx.filter_jit
def log_densities(problem, us):
    return jax.vmap(problem.log_density)(us)


def on_grid(problem, y):
    return log_densities(problem.with_data(y), jnp.asarray(GRID, jnp.float32))


def study(base, simulations, draw):
    """Rows of a method that draws: `draw(generator, number)`."""
    rows, generator = [], np.random.default_rng(1)
    for number in range(PROBLEMS):
        draws = jnp.asarray(draw(generator, number), jnp.float32)
        problem = base.with_data(simulations.y[number])
        truth = truth_of(simulations, number)
        rows.append(measure_draws(jax.random.key(number), problem, draws, truth)[0])
    return rows


def misses(rows):
    """What is outside the bars of the large study."""
    least = check_uniformity(rows).least
    found = [] if least > 0.01 else [f"p-value {least:.1e}"]
    for level, rate in coverage(rows, "hidden").items():
        if abs(rate.value - level) > max(0.03, 3 * rate.error):
            found.append(f"{level:.0%} intervals cover {rate.value:.1%}")
    return found


@pytest.mark.slow
def test_exact_posteriors_are_calibrated(base, simulations):
    def draw(generator, number):
        values = np.asarray(on_grid(base, simulations.y[number]), np.float64)
        shares = np.exp(values - values.max())
        chosen = generator.choice(len(GRID), DRAWN, p=shares / shares.sum())
        return GRID[chosen] + CELL * generator.uniform(-0.5, 0.5, (DRAWN, 2))

    assert not misses(study(base, simulations, draw))


class Solved(NamedTuple):
    """Ours of one problem: draws, their modes, and the modes' weights and depths."""

    draws: np.ndarray
    modes: np.ndarray
    weights: np.ndarray
    depths: np.ndarray
    verdict: str
    mode_of_truth: np.ndarray


@pytest.fixture(scope="module")
def solved(base, simulations):
    found = []
    for number in range(PROBLEMS):
        solve_key, draw_key = jax.random.split(jax.random.key(number))
        post = lu.solve(solve_key, base.with_data(simulations.y[number]))
        draws = post.sample(draw_key, 2 * DRAWN)
        found.append(
            Solved(
                np.asarray(draws),
                np.argmax(post.responsibilities(draws), axis=1),
                np.asarray(post.weights),
                np.asarray(log_densities(post.problem, post.modes)),
                str(post.verdict),
                np.asarray(post.responsibilities(jnp.asarray(simulations.u[number]))),
            )
        )
    return found


@pytest.mark.slow
def test_our_own_posteriors_are_calibrated(base, simulations, solved):
    rows = study(base, simulations, lambda generator, number: solved[number].draws[:DRAWN])
    assert not misses(rows)
    facts = [{"weights": each.weights, "mode_of_truth": each.mode_of_truth} for each in solved]
    assert check_weights(facts) > 0.01
    # One in a hundred data sets looks as if the model had not made it.
    doubted = [each for each in solved if is_unreliable({"verdict": each.verdict})]
    assert len(doubted) < 0.05 * PROBLEMS


@pytest.mark.slow
def test_a_factor_of_two_in_the_noise_variance_is_noticed(base, simulations):
    noise = lu.GaussianNoise(0.2 / np.sqrt(2))
    wrong = lu.InverseProblem(base.prior, base.operator, noise, np.zeros(4))

    def draw(generator, number):
        post = lu.solve(jax.random.key(number), wrong.with_data(simulations.y[number]))
        return post.sample(jax.random.key(number), DRAWN)

    assert misses(study(base, simulations, draw))


@pytest.mark.slow
def test_a_dropped_mode_is_noticed(base, simulations, solved):
    def draw(generator, number):
        each = solved[number]
        kept = each.draws[each.modes == np.argmax(each.weights)]
        return generator.choice(kept, DRAWN)

    assert misses(study(base, simulations, draw))


@pytest.mark.slow
def test_weights_from_depth_alone_are_noticed(base, simulations, solved):
    def draw(generator, number):
        each = solved[number]
        wrong = np.exp(each.depths - each.depths.max()) / each.weights
        shares = wrong[each.modes]
        return generator.choice(each.draws, DRAWN, p=shares / shares.sum())

    assert misses(study(base, simulations, draw))
