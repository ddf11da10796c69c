import dataclasses
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from exact_posteriors import (
    DIM,
    KEY,
    SHAPE,
    N,
    make_inference,
    make_problem,
    plain_posterior,
    solve_exactly,
)
from latentuq.core.errors import UserError
from latentuq.forward.blur import Blur
from latentuq.forward.mask import RandomMask
from latentuq.posterior.maps import ImageMaps, map_draws, quantiles
from latentuq.posterior.posterior import Posterior
from latentuq.posterior.solve import make_posterior, solve, solve_density
from latentuq.posterior.summary import tabulate
from latentuq.prior.model_error import ModelError
from studies.exact import exact_conditional_image, exact_posterior, gaussian_part


@pytest.fixture(scope="module")
def problem():
    return make_problem()


@pytest.fixture(scope="module")
def post(problem):
    return solve_exactly(problem)


def conditional_mean(problem, u):
    """E[x | u, y]: what a draw is without the random part of its errors."""
    decoded = problem.prior.generate(u)
    gain = problem.prior.model_error.gain_at(decoded)
    likelihood = gaussian_part(problem)
    return decoded + likelihood.correction(decoded, jnp.zeros_like(likelihood.data.y), gain)


class TestMaps:
    def test_agree_with_the_exact_posterior(self, post, problem):
        exact = exact_posterior(problem)
        std = np.sqrt(np.diag(exact.image_covariance)).reshape(SHAPE)
        # Errors of the mean and of the standard deviation of n normal numbers, 30 pixels, 5 sigma.
        n = map_draws(SHAPE)
        mean_error, std_error = std / np.sqrt(n), std / np.sqrt(2 * n)
        assert np.all(np.abs(post.mean - exact.image_mean.reshape(SHAPE)) < 5 * mean_error)
        assert np.all(np.abs(post.std - std) < 5 * std_error)
        for q in (0.05, 0.5, 0.9):
            level = scipy.stats.norm.ppf(q)
            expected = exact.image_mean.reshape(SHAPE) + level * std
            error = np.sqrt(q * (1 - q) / n) / scipy.stats.norm.pdf(level) * std
            assert np.all(np.abs(post.quantile(q) - expected) < 5 * error)

    def test_repeat_and_do_not_depend_on_the_order(self, post, problem):
        again = dataclasses.replace(post)
        np.testing.assert_array_equal(again.quantile(0.3), post.quantile(0.3))
        np.testing.assert_array_equal(again.std, post.std)

    def test_quantiles_are_those_of_numpy(self):
        draws = np.random.RandomState(0).randn(50, 2, 3).astype(np.float32)
        maps = ImageMaps(draws[0], draws[0], np.sort(draws, axis=0))
        levels = np.array([[0.0, 0.123], [0.5, 1.0]])
        expected = np.quantile(draws, levels, axis=0)
        np.testing.assert_allclose(quantiles(maps, levels), expected, atol=1e-6)

    def test_quantile_takes_levels_of_any_shape(self, post):
        pair = post.quantile([0.1, 0.9])
        assert pair.shape == (2, *SHAPE)
        np.testing.assert_array_equal(pair[1], post.quantile(0.9))
        for wrong in (1.5, -0.1, math.nan, "high"):
            with pytest.raises(UserError, match=r"level|q must"):
                post.quantile(wrong)

    def test_mode_images_are_decoded_modes(self, post, problem):
        np.testing.assert_allclose(post.mode_images, problem.prior.decode(post.modes), atol=1e-6)

    @pytest.mark.parametrize("kind", ["diagonal", "low rank", "dense"])
    def test_conditional_mean_is_exact(self, kind):
        rng = np.random.RandomState(0)
        error = ModelError(
            jnp.asarray(0.01 * (0.5 + rng.rand(*SHAPE)), jnp.float32),
            jnp.asarray(0.1 * rng.randn(2, *SHAPE), jnp.float32),
        )
        problem = {
            "diagonal": lambda: make_problem(),
            "low rank": lambda: make_problem(model_error=error),
            "dense": lambda: make_problem(Blur(0.8, size=3), 0.05, error),
        }[kind]()
        u = jnp.asarray([0.5, -1.0, 2.0])
        mean, _ = exact_conditional_image(problem, u)
        found = conditional_mean(problem, u)
        np.testing.assert_allclose(found.ravel(), mean, atol=2e-5)

    @pytest.mark.parametrize("operator", [RandomMask(0.5, seed=1), Blur(0.8, size=3)], ids=repr)
    def test_a_gain_widens_images_where_it_should(self, operator):
        """Against the dense formula with T S_model T in place of S_model."""
        rng = np.random.RandomState(0)
        error = ModelError(
            jnp.asarray(0.01 * (0.5 + rng.rand(*SHAPE)), jnp.float32),
            jnp.asarray(0.1 * rng.randn(2, *SHAPE), jnp.float32),
            jnp.array([0.3, 1.5, 2.0, 0.5]),
        )
        problem = make_problem(operator, 0.1, error)
        u = jnp.asarray([0.5, -1.0, 2.0])
        gain = error.gain_at(problem.prior.generate(u))
        assert float(gain.min()) < 0.6 < 1.5 < float(gain.max())
        turned = ModelError(error.variance * gain**2, error.factors * gain)
        plain = make_problem(operator, 0.1, turned).with_data(problem.y)
        mean, covariance = exact_conditional_image(plain, u)
        found = conditional_mean(problem, u)
        np.testing.assert_allclose(found.ravel(), mean, atol=1e-3)
        keys = jax.random.split(jax.random.key(0), 4000)
        draws = jax.vmap(lambda key: problem.conditional_images(key, u).ravel())(keys)
        spread = np.sqrt(np.diag(covariance))
        np.testing.assert_allclose(np.std(draws, axis=0), spread, rtol=0.06)
        assert np.all(np.abs(np.mean(draws, axis=0) - mean) < 5 * spread / np.sqrt(4000) + 1e-3)


class TestDraws:
    def test_sample_follows_the_weights_exactly(self):
        post = plain_posterior([[1.0], [2.0], [3.0]], [0.25, 0.75, 0.0])
        drawn = np.asarray(post.sample(jax.random.key(1), 400)).ravel()
        assert sorted(drawn) == [1.0] * 100 + [2.0] * 300
        # In random order: the first half holds 50 ones, give or take 5 sigma of 5.
        assert 25 < np.sum(drawn[:200] == 1) < 75

    def test_one_draw_follows_the_weights_on_average(self):
        post = plain_posterior([[1.0], [2.0]], [0.25, 0.75])
        keys = jax.random.split(jax.random.key(2), 80)
        ones = sum(float(post.sample(key, 1)[0, 0]) == 1 for key in keys)
        assert abs(ones - 20) < 5 * np.sqrt(80 * 0.25 * 0.75)

    def test_sample_repeats_as_little_as_possible(self, post):
        assert len(np.unique(post.sample(jax.random.key(0), N), axis=0)) == N

    @pytest.mark.parametrize("n", [0, -1, 2.5, True, "3"])
    def test_sample_refuses_odd_counts(self, post, n):
        with pytest.raises(UserError, match="positive integer"):
            post.sample(KEY, n)

    def test_image_draws_have_the_exact_spread(self, post, problem):
        exact = exact_posterior(problem)
        std = np.sqrt(np.diag(exact.image_covariance)).reshape(SHAPE)
        n = 1000
        images = np.asarray(post.sample_images(jax.random.key(4), n))
        assert images.shape == (n, *SHAPE)
        assert np.all(np.abs(images.std(axis=0) - std) < 5 * std / np.sqrt(2 * n))
        decoded = np.asarray(post.sample_images(jax.random.key(4), n, mean=True))
        # Decoder means alone lie in the linear generator's plane.
        assert np.linalg.matrix_rank(decoded.reshape(n, -1) - 0.5, tol=1e-2) == DIM

    def test_another_number_of_draws_compiles_nothing(self, post):
        compiled = []
        jax.monitoring.register_event_duration_secs_listener(
            lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
        )
        post.sample_images(KEY, 5)
        count = len(compiled)
        # More than one chunk, and not a whole number of them.
        assert post.sample_images(KEY, 131).shape == (131, *SHAPE)
        assert post.sample(KEY, 17).shape == (17, DIM)
        assert len(compiled) == count

    def test_legacy_keys_are_keys(self, post):
        drawn = post.sample(jax.random.PRNGKey(4), 10)
        np.testing.assert_array_equal(drawn, post.sample(jax.random.key(4), 10))
        for wrong in (4, jax.random.split(KEY), jnp.zeros(2)):
            with pytest.raises(UserError, match="one key"):
                post.sample(wrong, 10)


class TestExpectation:
    def test_error_bar_is_calibrated(self):
        # Importance sampling of N(0, 1) from N(0.5, 1.5^2): the mean is 0, the variance 1.
        rng = np.random.RandomState(5)
        repeats, n = 100, 400
        scores = []
        for _ in range(repeats):
            draws = 0.5 + 1.5 * rng.randn(n, 1)
            ratios = scipy.stats.norm.pdf(draws) / scipy.stats.norm.pdf(draws, 0.5, 1.5)
            post = plain_posterior(draws, ratios.ravel() / ratios.sum())
            value, error = post.expect(moments)
            scores.append((value - jnp.asarray([0.0, 1.0])) / error)
        # Squares of normal numbers have a variance of 2; what the weights do to their normality is
        # of order 1 / n.
        squares = np.mean(np.square(scores), axis=0)
        assert np.all(np.abs(squares - 1) < 4 * np.sqrt(2 / repeats))

    def test_values_may_be_arrays_or_truths(self, post, problem):
        value, error = post.expect(problem.prior.generate)
        assert value.shape == error.shape == SHAPE
        centre = exact_posterior(problem).mean[0]
        share, _ = post.expect(lambda u: u[0] > centre)
        assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(N)


def moments(u):
    return jnp.stack([u[0], u[0] ** 2])


class TestDensity:
    def test_log_prob_is_the_exact_posterior(self, post, problem):
        exact = exact_posterior(problem)
        normal = scipy.stats.multivariate_normal(exact.mean, exact.covariance)
        u = np.random.RandomState(1).randn(2, 4, DIM).astype(np.float32)
        # Float32 sums of terms of the size of the log density.
        np.testing.assert_allclose(post.log_prob(u), normal.logpdf(u), rtol=1e-4, atol=2e-3)
        assert post.log_prob(u[0, 0]).shape == ()

    def test_log_prob_has_a_gradient(self, post, problem):
        u = jnp.asarray([0.5, -1.0, 2.0])
        gradient = jax.grad(problem.log_density)(u)
        np.testing.assert_allclose(jax.grad(post.log_prob)(u), gradient, rtol=1e-5)
        many = jax.jit(post.log_prob)(jnp.stack([u, 2 * u]))
        np.testing.assert_allclose(many, post.log_prob(np.stack([u, 2 * u])), rtol=1e-5)

    def test_log_prob_is_normalised(self):
        post = plain_posterior(
            [[0.0], [1.0]], [0.5, 0.5], lambda u: 3 - jnp.sum(u**2) / 2, 3 + 0.5 * np.log(2 * np.pi)
        )
        grid = np.linspace(-6, 6, 1201)
        assert abs(np.trapezoid(np.exp(post.log_prob(grid[:, None])), grid) - 1) < 1e-5

    def test_responsibilities_of_any_batch(self):
        post = plain_posterior([[-3.0], [3.0]], [0.5, 0.5])
        shares = post.responsibilities(np.array([[[-3.0], [0.0]], [[3.0], [9.0]]]))
        assert shares.shape == (2, 2, 2)
        np.testing.assert_allclose(shares.sum(axis=-1), 1, rtol=1e-6)
        np.testing.assert_allclose(shares[0, 1], [0.5, 0.5], rtol=1e-6)
        assert shares[1, 0, 1] > 0.999

    def test_points_that_do_not_fit_are_refused(self, post):
        for wrong in (np.zeros(DIM + 1), 0.0, np.zeros((0, DIM)), "far", None):
            with pytest.raises(UserError, match="u "):
                post.log_prob(wrong)


class TestValue:
    def test_reads_the_inference(self, post, problem):
        exact = exact_posterior(problem)
        assert post.map_index == 0
        assert post.log_evidence == pytest.approx(exact.log_evidence, rel=1e-6)
        chi_squared = float(problem.chi_squared(post.modes[0]))
        # The log density has about 7 digits, of which the constants take some.
        assert post.chi_squared[0] == pytest.approx(chi_squared, abs=1e-3)
        observed = int(jnp.sum(problem.observed))
        assert post.diagnostics.reduced_chi_squared == pytest.approx(chi_squared / observed, 1e-4)

    def test_is_immutable(self, post):
        for name in ("weights", "mean", "inference", "mode_images"):
            with pytest.raises(AttributeError):
                setattr(post, name, None)

    def test_says_what_it_is(self, post):
        assert repr(post).startswith("Posterior(u in R^3, 1 mode of weight 1; ln evidence ")
        assert repr(post).endswith("; reliable)")
        summary = post.summary()
        for part in ("1.0000 +- 0.0100", "deepest", "k-hat -inf", "missed mass 0.03", "reliable:"):
            assert part in summary

    def test_a_summary_says_that_data_count_less_than_once(self, post):
        assert "down-weighted" not in post.summary()
        assert "(of down-weighted data, not to be" in tabulate(post.inference, None, True)

    def test_summary_of_many_modes_is_short(self):
        inference = make_inference(
            np.zeros((2, 1)), np.log([0.5, 0.5]), np.zeros(2), np.arange(25)[:, None], range(25), 0
        )
        summary = Posterior(inference, KEY).summary()
        assert "and 15 more of weight 0.6000 together" in summary
        assert len(summary.splitlines()) == 21

    def test_without_images_everything_else_works(self):
        post = plain_posterior([[1.0], [2.0]], [0.5, 0.5])
        actions = (
            lambda: post.mean,
            lambda: post.std,
            lambda: post.quantile(0.5),
            lambda: post.mode_images,
            lambda: post.sample_images(KEY, 2),
        )
        for action in actions:
            with pytest.raises(UserError, match="no images here"):
                action()
        assert "mean" not in post.to_xarray()
        assert "chi-squared per datum" not in post.summary()

    def test_without_any_weight_nothing_fails_inside(self, problem):
        inference = make_inference(
            np.zeros((4, DIM)), np.full(4, -np.inf), np.full(4, -np.inf), np.zeros((1, DIM)),
            [-np.inf], -np.inf,
        )  # fmt: skip
        post = make_posterior(KEY, inference, problem)
        for values in (post.mean, post.std, post.quantile(0.5), *post.expect(lambda u: u)):
            assert np.all(np.isnan(values))
        with pytest.raises(UserError, match="nothing to draw from"):
            post.sample(KEY, 3)
        assert np.isinf(post.to_xarray()["log_evidence"])


class TestSolve:
    def test_mistakes_are_named(self, problem):
        with pytest.raises(UserError, match="preview, default, thorough"):
            solve(KEY, problem, budget="huge")
        with pytest.raises(UserError, match="InverseProblem"):
            solve(KEY, problem.log_density)
        with pytest.raises(UserError, match="one key"):
            solve_density(0, lambda u: -jnp.sum(u**2), 2)

    def test_the_engine_gets_the_problem_and_its_answer_is_kept(self, problem, post, monkeypatch):
        calls = []

        def infer(key, target, *, budget, starts, known_kind, progress):
            calls.append((target, budget, progress, known_kind))
            return post.inference

        monkeypatch.setattr(sys.modules["latentuq.posterior.solve"], "infer", infer)
        found = solve(KEY, problem, budget="preview", progress=print)
        target, budget, progress, known_kind = calls[0]
        assert known_kind
        u = jnp.ones(DIM)
        np.testing.assert_array_equal(target.log_density_fn(u), problem.log_density(u))
        np.testing.assert_array_equal(target.residual_fn(u), problem.residual(u))
        assert (target.dim, target.scale, budget, progress) == (DIM, 1.0, "preview", print)
        np.testing.assert_array_equal(found.chi_squared, post.chi_squared)
        np.testing.assert_array_equal(found.mean, post.mean)
        plain = solve_density(KEY, problem.log_density, DIM, scale=2.0)
        assert (calls[1][0].residual_fn, calls[1][0].scale, calls[1][1]) == (None, 2.0, "default")
        assert not calls[1][3]
        with pytest.raises(UserError, match="neither problem nor images"):
            plain.sample_images(KEY, 1)
