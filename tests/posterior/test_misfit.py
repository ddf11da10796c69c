import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import latentuq as lu
from latentuq.posterior.misfit import WORST_FIT, check_fit, show_p_value


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
    assert post.verdict.startswith("unreliable: the data do not look like what the model makes")


def test_data_that_only_an_impossible_u_explains_turn_it_too(base):
    post = solve(base, base.prior.decode(jnp.array([9.0, -9.0, 9.0])))
    assert post.verdict.startswith("unreliable: the data do not")


def test_the_misfit_comes_before_other_reasons():
    verdict = check_fit("unreliable: a heavy tail.", 1e-9)
    assert verdict.startswith("unreliable: the data do not look like what the model makes")
    assert verdict.endswith("(posterior predictive p-value < 0.001); besides, a heavy tail.")


def test_a_good_fit_changes_nothing():
    assert check_fit("unreliable: no.", 0.5) == "unreliable: no."
    assert check_fit("reliable: yes.", None) == "reliable: yes."
    assert check_fit("reliable: yes.", 0.5) == "reliable: yes."


@pytest.mark.parametrize(
    ("p_value", "shown"),
    [(0.0, "< 0.001"), (0.0123, "0.012"), (0.97, "0.97"), (0.994, "> 0.99"), (1.0, "> 0.99")],
)
def test_near_0_and_1_a_p_value_is_a_bound(p_value, shown):
    assert show_p_value(p_value) == shown


def test_a_preview_states_the_limit_of_its_verdict(base):
    post = solve(base, base.simulate(jax.random.key(3)).y)
    assert "(usable up to 0.30)" in post.summary()
    assert "below 0.30" in post.verdict


def test_it_is_saved_with_the_posterior(base, tmp_path):
    post = solve(base, base.simulate(jax.random.key(3)).y)
    post.save(tmp_path / "post.nc")
    loaded = lu.load_posterior(tmp_path / "post.nc", base.prior)
    assert loaded.diagnostics.predictive_p_value == post.diagnostics.predictive_p_value
