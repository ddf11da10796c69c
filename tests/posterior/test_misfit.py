import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import latentuq as lu
from latentuq.inference.causes import Cause
from latentuq.posterior.misfit import WORST_FIT, judge_fit


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
    assert [reason.cause for reason in post.verdict.fit.reasons] == [Cause.MISFIT]
    assert str(post.verdict).startswith("unreliable: the data do not look like what the model")


def test_data_that_only_an_impossible_u_explains_turn_it_too(base):
    post = solve(base, base.prior.decode(jnp.array([9.0, -9.0, 9.0])))
    assert post.verdict.fit.standing == "bad"


@pytest.mark.parametrize(
    ("p_value", "inflated", "cause", "standing"),
    [
        (None, False, Cause.NOT_COMPARED, "unknown"),
        (0.019, True, Cause.MISFIT, "bad"),
        (WORST_FIT, False, Cause.FITS, "ok"),
        (0.99, True, Cause.FITS, "ok"),
        (0.995, False, Cause.FITS_CLOSELY, "ok"),
        (0.995, True, Cause.FITS_BY_DESIGN, "ok"),
    ],
)
def test_the_mark_follows_from_the_p_value(p_value, inflated, cause, standing):
    mark = judge_fit(p_value, inflated)
    (reason,) = mark.reasons
    assert (reason.cause, mark.standing) == (cause, standing)
    assert reason.numbers.get("p_value") == p_value


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
