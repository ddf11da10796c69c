"""What is kept of an image: shapes and types, alike for all, and a posterior made of it again."""

import dataclasses
import json
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exact_posteriors import DIM, KEY, SHAPE, make_inference, make_problem, solve_exactly
from latentuq.app.solving import Solved
from latentuq.core.errors import UserError
from latentuq.data.observation import Observation
from latentuq.data.scaling import Scaling
from latentuq.inference.causes import Standing
from latentuq.inference.result import ProbeRecord, SearchRecord
from latentuq.posterior.misfit import measure_chi_squared
from latentuq.posterior.solve import make_posterior
from latentuq.survey.layout import FAILED, LEVELS, MOST_MODES, STATUSES, Layout, data_axes
from latentuq.survey.rows import (
    error_row,
    fill_row,
    make_row,
    measure_surprise,
    posterior_row,
    read_posterior,
)
from studies.exact import exact_posterior

DRAWS = 40
LAYOUT = Layout(SHAPE, SHAPE, DIM, draws=DRAWS)


@pytest.fixture(scope="module")
def problem():
    return make_problem()


@pytest.fixture(scope="module")
def post(problem):
    return solve_exactly(problem)


@pytest.fixture(scope="module")
def row(post):
    return fill_row(LAYOUT, posterior_row(LAYOUT, post))


def many_modes(problem, count, deepest):
    """Draws from Gaussians that are far apart, at modes of equal weight; which is deepest is said.

    Every mode is the only one that is near its draws, so it is plain which draw belongs to which.
    """
    rng = np.random.default_rng(1)
    modes = 1000 * rng.normal(size=(count, DIM))
    draws = modes[rng.integers(count, size=4096)] + rng.normal(size=(4096, DIM))
    depths = np.where(np.arange(count) == deepest, -1.0, -2.0)
    equal = np.full(4096, -np.log(4096))
    inference = make_inference(draws, equal, 0 * draws[:, 0], modes, depths, 0.0)
    nearest = np.argmin(np.linalg.norm(draws[:200, None] - modes, axis=2), axis=1)
    probes = ProbeRecord(jnp.asarray(draws[:200], jnp.float32), jnp.asarray(nearest))
    search = SearchRecord(
        jnp.asarray(depths, jnp.float32), jnp.arange(count), jnp.ones(count, bool)
    )
    inference = dataclasses.replace(inference, probes=probes, search=search)
    return make_posterior(KEY, inference, problem)


def test_a_row_has_everything_in_its_shape_and_type(row):
    variables = LAYOUT.variables
    assert row.keys() == variables.keys()
    for name, variable in variables.items():
        if variable.dtype is str:
            assert type(row[name]) is str, name
        else:
            assert (row[name].shape, row[name].dtype) == (variable.shape, variable.dtype), name


@pytest.mark.parametrize(
    ("layout", "there", "absent"),
    [
        (dataclasses.replace(LAYOUT, draws=0), {"mean"}, {"u", "factors", "means", "u_modes"}),
        (dataclasses.replace(LAYOUT, truth=True), {"truth"}, {"noise_std"}),
        (dataclasses.replace(LAYOUT, noise=()), {"noise_std"}, {"truth"}),
        (dataclasses.replace(LAYOUT, noise=data_axes(2)), {"noise_std"}, {"truth"}),
    ],
)
def test_a_layout_keeps_what_it_says(layout, there, absent):
    assert there <= layout.variables.keys()
    assert not absent & layout.variables.keys()
    kept = error_row(layout, "a", "why")
    numbers = (each for each in kept.values() if isinstance(each, np.ndarray))
    assert layout.image_bytes == sum(each.nbytes for each in numbers)


def test_an_error_has_nothing_but_its_sentence():
    found = error_row(LAYOUT, "a.png", "It is damaged.")
    texts = {name: found[name] for name in ("name", "status", "error", "verdict", "reasons")}
    assert texts == {
        "name": "a.png", "status": FAILED, "error": "It is damaged.", "verdict": "", "reasons": ""
    }  # fmt: skip
    for name, variable in LAYOUT.variables.items():
        if variable.dtype is not str:
            expected = np.full(variable.shape, variable.missing, variable.dtype)
            np.testing.assert_array_equal(found[name], expected)


def test_texts_are_fit_to_be_shown():
    name = b"caf\xe9\x1b[31m.png".decode("utf-8", "surrogateescape")
    found = error_row(LAYOUT, name, "a\nb")
    assert (found["name"], found["error"]) == (r"caf\udce9\x1b[31m.png", r"a\nb")


def test_the_numbers_are_those_of_the_posterior(row, post, problem):
    assert row["log_evidence"] == post.log_evidence
    assert row["log_evidence_error"] == post.log_evidence_error
    assert row["modes_found"] == len(post.weights) == 1
    assert row["map_index"] == post.map_index == 0
    assert row["status"] == post.verdict.word
    assert row["status"] in STATUSES
    assert row["verdict"] == str(post.verdict)
    bad = [each.cause.name for each in post.verdict.reasons if each.cause.standing is Standing.BAD]
    assert row["reasons"] == ", ".join(bad)
    np.testing.assert_array_equal(row["y"], problem.y)
    np.testing.assert_array_equal(row["mean"], post.mean)
    np.testing.assert_array_equal(row["std"], post.std)
    np.testing.assert_array_equal(row["quantiles"], post.quantile(LEVELS))
    np.testing.assert_array_equal(row["most_probable"], post.mode_images[0])
    np.testing.assert_array_equal(row["weights"], [1] + [np.nan] * (MOST_MODES - 1))
    np.testing.assert_array_equal(row["modes"][0], post.modes[0])
    assert np.isnan(row["modes"][1:]).all()
    np.testing.assert_array_equal(row["chi_squared"][:1], np.float32(post.chi_squared))
    assert row["uncertainty"] == pytest.approx(np.sqrt(np.mean(np.asarray(post.std) ** 2.0)))
    found = post.diagnostics
    assert (row["ess"], row["draws"], row["rounds"]) == (found.ess, found.draws, found.rounds)
    assert (row["forwards"], row["hessians"]) == (found.counts.forwards, found.counts.hessians)
    assert row["predictive_p_value"] == found.predictive_p_value
    assert row["seconds"] != row["seconds"]  # `make_row` knows them.


def test_a_row_of_an_image_knows_where_it_came_from(post):
    layout = dataclasses.replace(LAYOUT, truth=True)
    observation = Observation("a", np.zeros(SHAPE), Scaling(100.0, 3000.0))
    solved = Solved(post, observation, np.full(SHAPE, 0.25), None, "", ["One.", "Two."])
    found = make_row(layout, "a", solved, started=0.0)
    assert (found["offset"], found["scale"]) == (100, 3000)
    assert found["notes"] == "One. Two."
    assert found["seconds"] > 0
    assert (found["truth"] == 0.25).all()


@pytest.mark.parametrize("deepest", [3, 9])
def test_the_heaviest_modes_and_the_deepest_are_kept(problem, deepest):
    count = 11
    post = many_modes(problem, count, deepest)
    found = fill_row(LAYOUT, posterior_row(LAYOUT, post))
    expected = [*range(MOST_MODES - 1), max(MOST_MODES - 1, deepest)]
    np.testing.assert_array_equal(found["modes"], np.asarray(post.modes)[expected])
    assert found["modes_found"] == count
    assert found["map_index"] == expected.index(deepest)
    np.testing.assert_array_equal(found["most_probable"], post.mode_images[deepest])
    np.testing.assert_array_equal(found["weights"], np.asarray(post.weights)[expected])
    assert found["weights"].sum() == pytest.approx(MOST_MODES / count)
    # Modes that are not kept have no draws and no starts, others have those near them.
    distances = np.linalg.norm(found["u"][:, None] - np.asarray(post.modes), axis=2)
    nearest = np.argmin(distances, axis=1)
    places = [expected.index(mode) if mode in expected else -1 for mode in nearest]
    np.testing.assert_array_equal(found["u_modes"], places)
    starts = [expected.index(mode) if mode in expected else -1 for mode in range(count)]
    np.testing.assert_array_equal(found["search_modes"][:count], starts)
    assert np.isnan(found["search_log_densities"][count:]).all()
    restored = read_posterior(found, problem, KEY, {})
    assert (restored.dim, len(restored.weights), restored.map_index) == (
        DIM, MOST_MODES, expected.index(deepest)
    )  # fmt: skip


@pytest.mark.parametrize("draws", [50, 3000])
def test_draws_beyond_those_that_were_followed_are_of_their_modes(problem, draws):
    post, layout = many_modes(problem, 3, 0), dataclasses.replace(LAYOUT, draws=draws)
    found = fill_row(layout, posterior_row(layout, post))
    distances = np.linalg.norm(found["u"][:, None] - np.asarray(post.modes), axis=2)
    np.testing.assert_array_equal(found["u_modes"], np.argmin(distances, axis=1))
    # Equally weighted: of three equal modes each has a third, within five standard errors.
    shares = np.bincount(found["u_modes"]) / draws
    assert np.all(np.abs(shares - 1 / 3) < 5 * np.sqrt(2 / 9 / draws))


def test_a_posterior_without_draws_is_kept_too(problem, post):
    draws = post.inference.draws
    draws = dataclasses.replace(draws, log_weights=jnp.full(len(draws.draws), -jnp.inf))
    empty = make_posterior(KEY, dataclasses.replace(post.inference, draws=draws), problem)
    found = fill_row(LAYOUT, posterior_row(LAYOUT, empty))
    assert np.isnan(found["u"]).all()
    assert (found["u_modes"] == -1).all()
    assert json.loads(found["verdict_json"])


def test_a_posterior_comes_back(row, post, problem):
    found = read_posterior(row, problem, KEY, {"model": "exact"})
    for name in ("modes", "weights", "weight_errors", "mean", "std", "mode_images", "chi_squared"):
        np.testing.assert_array_equal(getattr(found, name), np.float32(getattr(post, name)), name)
    for name in ("log_evidence", "log_evidence_error", "map_index", "verdict"):
        assert getattr(found, name) == getattr(post, name)
    np.testing.assert_array_equal(found.quantile(LEVELS), post.quantile(LEVELS))
    one, other = found.diagnostics, post.diagnostics
    for name in ("khat", "ess", "draws", "rounds", "el2o", "missed_mass", "predictive_p_value"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.counts == other.counts
    # Draws of equal weight, about as many of which are independent as the diagnostics say.
    np.testing.assert_allclose(np.exp(found.log_weights), 1 / DRAWS, rtol=1e-6)
    np.testing.assert_array_equal(found.draws, row["u"])
    assert found.provenance == {"model": "exact"}
    point = np.zeros(DIM, np.float32)
    assert found.log_prob(point) == post.log_prob(point)


def test_too_little_is_kept_without_draws(post, problem):
    layout = dataclasses.replace(LAYOUT, draws=0)
    found = fill_row(layout, posterior_row(layout, post))
    with pytest.raises(UserError, match="--draws 0"):
        read_posterior(found, problem, KEY, {})


def test_surprise_is_the_distance_of_the_data_from_what_the_prior_makes(problem):
    """At the maximum chi^2 + u.u is (y - m)^T (C + J J^T)^-1 (y - m), which is chi-squared."""
    seen = np.asarray(problem.observed)
    n = np.count_nonzero(seen)

    def predict(u):
        return problem.operator.apply(problem.prior.generate(u))[seen]

    origin = jnp.zeros(DIM)
    mean, slope = (np.float64(each) for each in (predict(origin), jax.jacfwd(predict)(origin)))
    own = problem.noise.std**2 + np.float64(problem.prior.model_error.variance)[seen]
    covariance = np.diag(own) + slope @ slope.T
    for number in range(5):
        simulated = problem.with_data(problem.simulate(jax.random.key(number)).y)
        mode = np.float32(exact_posterior(simulated).mean[None])
        chi_squared = measure_chi_squared(simulated, mode)
        post = SimpleNamespace(
            problem=simulated, modes=mode, weights=np.ones(1), chi_squared=chi_squared
        )
        gap = np.float64(simulated.y)[seen] - mean
        distance = gap @ np.linalg.solve(covariance, gap)
        assert measure_surprise(post) == pytest.approx((distance - n) / math.sqrt(2 * n), abs=1e-3)


def test_data_that_the_prior_does_not_make_are_surprising(problem):
    odd = problem.with_data(jnp.where(problem.observed, 3.0, jnp.nan))
    assert measure_surprise(solve_exactly(odd)) > 20
    nothing = make_problem().with_data(problem.y)
    hidden = SimpleNamespace(problem=nothing, chi_squared=None)
    assert math.isnan(measure_surprise(hidden))
