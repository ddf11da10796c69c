import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import latentuq as lu
from exact_posteriors import make_problem, solve_exactly
from latentuq.inference.causes import Cause
from latentuq.posterior.judge import WORST_FIT
from latentuq.posterior.misfit import _prominence, measure_fit
from latentuq.prior.model_error import ModelError


@pytest.fixture(scope="module")
def base():
    matrix = np.random.default_rng(0).normal(size=(12, 3)) / 2
    prior = lu.prior_from(lambda u: jnp.asarray(matrix, jnp.float32) @ u, 3, (12,), 0.3)
    return lu.InverseProblem(prior, lu.Mask(np.ones(12)), lu.GaussianNoise(0.2), np.zeros(12))


def solve(base, y):
    return lu.solve(jax.random.key(0), base.with_data(y), budget="preview")


def test_the_p_value_is_the_posterior_mean_of_the_tail(base):
    post = solve(base, base.simulate(jax.random.key(3)).y)
    draws = post.sample(jax.random.key(1), 4000)
    problem = post.problem
    sizes = jax.vmap(problem.chi_squared)(draws) + jnp.sum(draws**2, axis=1)
    expected = np.mean(stats.chi2.sf(np.asarray(sizes), 12 + 3))
    assert post.diagnostics.predictive_p_value == pytest.approx(expected, abs=0.02)


def test_data_of_the_model_raise_few_alarms(base):
    values = [
        solve(base, base.simulate(jax.random.key(100 + seed)).y).diagnostics.predictive_p_value
        for seed in range(40)
    ]
    assert np.mean(np.array(values) < WORST_FIT) < 0.1


def test_other_data_turn_the_verdict(base):
    post = solve(base, 3 * np.random.default_rng(1).normal(size=12))
    assert post.diagnostics.predictive_p_value < 1e-3
    assert post.verdict.computed.standing == "ok"
    assert post.verdict.fit.reasons[0].cause is Cause.NOISE_TOO_SMALL
    assert str(post.verdict).startswith("unreliable: the data scatter more than the stated noise")


def test_data_that_only_an_impossible_u_explains_turn_it_too(base):
    post = solve(base, base.prior.decode(jnp.array([9.0, -9.0, 9.0])))
    assert post.verdict.fit.standing == "bad"


@pytest.fixture(scope="module")
def measured():
    """What is measured on data that the model made, and on the same data changed."""
    problem = make_problem(lu.Mask(np.ones((6, 5))), noise=0.1)

    def measure(change):
        y = change(np.asarray(problem.simulate(jax.random.key(5)).y))
        post = solve_exactly(problem.with_data(y))
        return measure_fit(post.inference, post.problem)

    return measure


def test_gaps_of_sound_data_have_the_variance_of_noise_and_model_error():
    """A draw of the posterior and the data are a draw of the model, on average over data."""
    problem = make_problem(lu.Mask(np.ones((6, 5))), noise=0.1, model_error=0.2)
    found = []
    for seed in range(40):
        post = solve_exactly(problem.with_data(problem.simulate(jax.random.key(seed)).y))
        found.append(measure_fit(post.inference, post.problem))
    surprises = np.array([fit.surprises for fit in found])
    # The mean over draws is closer to the data than a draw is, the more so the better u is known.
    assert 0.8 < np.sqrt(np.mean(surprises**2)) < 1.05
    assert np.mean([fit.noise_ratio for fit in found]) == pytest.approx(1, abs=0.1)
    # The generator's error makes the share usual; two standard errors of the noise are taken off.
    usual = found[0].usual_unexplained
    assert 0.5 * usual < np.median([fit.unexplained for fit in found]) < usual


def test_a_wild_datum_is_the_greatest_surprise(measured):
    def strike(y):
        return np.where(np.arange(y.size).reshape(y.shape) == 17, y + 3.0, y)

    fit, sound = measured(strike), measured(lambda y: y)
    assert fit.places[np.argmax(fit.surprises)] == 17
    assert fit.surprises.max() > 6 > 4 > sound.surprises.max()
    assert fit.places[np.argmax(fit.prominences.data)] == 17
    assert fit.prominences.data.max() > 2 * sound.prominences.data.max()


def test_a_datum_stands_out_if_it_is_above_or_below_all_its_neighbours():
    values = np.zeros((2, 12))
    values[0, 5], values[1, 5] = 3.0, -2.0
    values[:, 6] = 1.0
    found = _prominence(values, np.arange(12), (3, 4))
    assert found[0, 5] == 2.0
    assert found[1, 5] == 2.0
    assert np.count_nonzero(found) == 3  # In the second image the neighbour stands out as well.
    hidden = np.delete(np.arange(12), 9)
    assert not np.any(_prominence(values[:, hidden], hidden, (3, 4))[0])


def test_what_the_generator_cannot_make_is_unexplained(measured):
    pattern = np.indices((6, 5)).sum(axis=0) % 2
    assert measured(lambda y: y).unexplained < 0.2
    assert measured(lambda y: y + 2 * pattern).unexplained > 0.5


def test_the_scatter_of_the_data_is_told_in_units_of_the_noise(measured):
    y = 0.05 * np.random.default_rng(0).normal(size=(6, 5))
    assert measured(lambda _: y).scatter == pytest.approx(np.var(y) / 0.1**2, rel=1e-3)
    assert measured(lambda _: 0.001 * y).likeness is None


def test_more_noise_than_stated_is_told_by_its_level(measured):
    extra = np.random.default_rng(2).normal(size=(6, 5))
    fit = measured(lambda y: y + 1.0 * extra)
    assert fit.noise_ratio > 2
    assert fit.noise_level == pytest.approx(1, rel=0.4)


def test_a_preview_states_the_limit_of_its_verdict(base):
    post = solve(base, base.simulate(jax.random.key(3)).y)
    assert "(usable up to 0.30)" in post.summary()
    assert post.diagnostics.khat_limit == 0.3


def test_it_is_saved_with_the_posterior(base, tmp_path):
    post = solve(base, base.simulate(jax.random.key(3)).y)
    post.save(tmp_path / "post.nc")
    loaded = lu.load_posterior(tmp_path / "post.nc", base.prior)
    assert loaded.diagnostics.predictive_p_value == post.diagnostics.predictive_p_value
    assert loaded.verdict == post.verdict


@pytest.fixture(scope="module")
def digits():
    """Solves whole images under the prior of digits, as they come from a person's own files."""
    prior = lu.load_prior("mnist")
    noise = np.random.default_rng(0).normal(size=(28, 28))

    def solve_digit(make, stated=0.1):
        y = make(np.asarray(lu.load_digits().digit(0), np.float64), noise)
        problem = lu.InverseProblem(prior, lu.Mask(np.ones((28, 28))), lu.GaussianNoise(stated), y)
        return lu.solve(jax.random.key(0), problem, budget="preview")

    return solve_digit


def _hot(x, noise):
    y = 0.1 * noise
    y[5, 7] = 1.0
    return y


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "stated", "cause", "words"),
    [
        (lambda x, noise: x + 0.1 * noise, 0.1, Cause.FITS_BY_DESIGN, ""),
        (_hot, 0.1, Cause.WILD_DATA, "row 5, column 7"),
        (lambda x, noise: 0.1 * noise, 0.1, Cause.BLANK, "Check that the file holds the picture"),
        (lambda x, noise: 3000 * x + 60 * noise, 874.0, Cause.NOTHING_LEARNED, "Check the noise"),
        (lambda x, noise: 1 - x + 0.1 * noise, 0.1, Cause.INVERTED, "--invert"),
        (lambda x, noise: (x + 0.1 * noise) / 10, 0.01, Cause.WRONG_SCALE, "divided by about 0."),
        (lambda x, noise: x + 0.5 * noise, 0.1, Cause.NOISE_TOO_SMALL, "of about 0.5"),
        (lambda x, noise: x + 0.1 * noise, 1.0, Cause.NOISE_TOO_LARGE, "State less noise"),
    ],
    ids=[
        "sound",
        "hot pixel",
        "blank",
        "counts",
        "inverted",
        "scale",
        "small",
        "large",
    ],
)
def test_the_reason_and_its_advice_follow_from_what_is_wrong(digits, make, stated, cause, words):
    verdict = digits(make, stated).verdict
    assert verdict.fit.reasons[0].cause is cause
    assert words in " ".join([verdict.fit.sentence, *verdict.advice])


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "offset"), [(3000.0, 0.0), (0.5, 2.0)])
def test_scale_and_offset_are_told(digits, factor, offset):
    post = digits(lambda x, noise: factor * (x + 0.1 * noise) + offset, 0.1 * factor)
    reason = post.verdict.fit.reasons[0]
    assert reason.cause is Cause.WRONG_SCALE
    # Images of the prior that look like this one are brighter or fainter by some 15 %.
    assert reason.numbers["factor"] == pytest.approx(factor, rel=0.3)
    assert reason.numbers["offset"] == pytest.approx(offset, abs=0.1 * factor)


@pytest.mark.slow
def test_an_error_that_scales_images_makes_other_brightness_usual():
    """Where the generator draws one brightness, S_model alone knows that others occur."""
    shape = np.exp(-((np.arange(30) - 14.5) ** 2) / 40.0)
    noise = lu.GaussianNoise(0.05)

    def spread(scale):
        factors = jnp.asarray(scale * shape[None], jnp.float32)
        error = ModelError(jnp.full(30, 1e-4), factors)
        prior = lu.prior_from(lambda u: jnp.asarray(shape) + 0.02 * u[0], 1, (30,), 0.01)
        prior = dataclasses.replace(prior, model_error=error)
        problem = lu.InverseProblem(prior, lu.Mask(np.ones(30)), noise, shape)
        post = lu.solve(jax.random.key(0), problem, budget="preview")
        return measure_fit(post.inference, problem).usual.factor_spread

    assert spread(0.0) < 0.05
    assert spread(0.2) == pytest.approx(0.2, rel=0.3)
