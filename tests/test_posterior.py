import dataclasses
import math
import resource
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import xarray

import latentuq as lu
from latentuq.errors import UserError
from latentuq.exact import exact_conditional_image, exact_posterior, linear_prior
from latentuq.inference.importance import WeightedDraws, effective_sample_size
from latentuq.inference.mixture import Defensive, gaussian_mixture
from latentuq.inference.result import Counts, Diagnostics, Inference, ProbeRecord, SearchRecord
from latentuq.noise import GaussianNoise
from latentuq.operators import Blur, LinearOperator, Mask, RandomMask
from latentuq.posterior import Posterior, load_posterior, make_posterior, solve, solve_density
from latentuq.posterior.dataset import SavedImages
from latentuq.posterior.maps import ImageMaps, map_draws, quantiles
from latentuq.posterior.posterior import LEVELS
from latentuq.posterior.sampling import spread_keys
from latentuq.posterior.summary import tabulate
from latentuq.prior import ModelError
from latentuq.problem import InverseProblem

SHAPE = (6, 5)
DIM = 3
N = 4096
KEY = jax.random.key(7)


def make_inference(draws, log_weights, log_densities, modes, mode_log_densities, log_evidence):
    """An answer of the engine with the given draws: unit Gaussians of equal weight at the modes."""
    draws, modes = jnp.asarray(draws, jnp.float32), jnp.asarray(modes, jnp.float32)
    log_weights = jnp.asarray(log_weights, jnp.float32)
    n, (count, dim) = len(draws), modes.shape
    weights = jnp.full(count, 1 / count)
    factors = jnp.tile(jnp.eye(dim), (count, 1, 1))
    ess = effective_sample_size(log_weights)
    return Inference(
        modes=modes,
        log_densities=jnp.asarray(mode_log_densities, jnp.float32),
        weights=weights,
        weight_errors=jnp.full(count, 0.01),
        means=modes,
        factors=factors,
        proposal=Defensive(gaussian_mixture(weights, modes, factors)),
        membership=jnp.eye(count),
        draws=WeightedDraws(
            draws=draws,
            log_weights=log_weights,
            log_densities=jnp.asarray(log_densities, jnp.float32),
            log_proposals=jnp.zeros(n),
            log_evidence=jnp.asarray(log_evidence, jnp.float32),
            log_evidence_error=jnp.asarray(0.02),
            khat=jnp.asarray(-jnp.inf),
            ess=ess,
        ),
        search=SearchRecord(jnp.zeros(4), jnp.asarray([0, 0, -1, 0]), jnp.ones(4, int)),
        probes=ProbeRecord(draws[:2], jnp.zeros(2, int)),
        diagnostics=Diagnostics(
            khat=-math.inf,
            ess=float(ess),
            draws=n,
            el2o=(0.25,) * count,
            missed_mass=0.03,
            new_basin_chance=0.125,
            rounds=1,
            counts=Counts(5, 6, 7, 8),
            forward_equivalents=99,
            seconds={"search": 0.5, "fit": 1.5},
        ),
        verdict="reliable: the draws are exact.",
    )


def make_problem(operator=None, noise=0.1, model_error=0.1):
    prior = linear_prior(jax.random.key(0), DIM, SHAPE, model_error)
    bound = (operator or RandomMask(0.4, seed=1)).bind(SHAPE)
    y = bound(prior.sample(jax.random.key(1), 1)[0])
    return InverseProblem(prior, bound, GaussianNoise(noise), y)


def solve_exactly(problem, n=N):
    """A posterior made of independent draws of the exact one."""
    exact = exact_posterior(problem)
    normal = scipy.stats.multivariate_normal(exact.mean, exact.covariance, seed=3)
    draws = normal.rvs(n)
    log_densities = exact.log_evidence + normal.logpdf(draws)
    top = exact.log_evidence + normal.logpdf(exact.mean)
    inference = make_inference(
        draws, np.full(n, -np.log(n)), log_densities, [exact.mean], [top], exact.log_evidence
    )
    return make_posterior(KEY, inference, problem)


def plain_posterior(draws, weights, log_density_fn=None, log_evidence=0.0):
    """A posterior without images, as `solve_density` makes it."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.asarray(weights, float))
    draws = np.asarray(draws, float)
    inference = make_inference(
        draws, log_weights, np.zeros(len(draws)), draws[:2], [0.0, -1.0], log_evidence
    )
    return Posterior(
        inference, KEY, log_density_fn=log_density_fn, no_problem="There are no images here."
    )


@pytest.fixture(scope="module")
def problem():
    return make_problem()


@pytest.fixture(scope="module")
def post(problem):
    return solve_exactly(problem)


@pytest.fixture(scope="module")
def saved(post, tmp_path_factory):
    path = tmp_path_factory.mktemp("posterior") / "post.nc"
    post.save(path)
    return path


def conditional_mean(problem, u):
    """E[x | u, y]: what a draw is without the random part of its errors."""
    decoded = problem.prior.generate(u)
    gain = problem.image_error.gain_at(decoded)
    return decoded + problem._correction(decoded, jnp.zeros(problem.y.shape), gain)


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

    def test_keys_of_image_draws_differ(self):
        keys = jax.random.key_data(spread_keys(KEY, 1000))
        assert len(np.unique(keys, axis=0)) == 1000
        other = jax.random.key_data(spread_keys(jax.random.key(8), 1000))
        assert not np.any(np.isin(keys, other).all(axis=1))

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

    def test_points_of_the_wrong_size_are_refused(self, post):
        for wrong in (np.zeros(DIM + 1), 0.0, np.zeros((0, DIM))):
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
        assert len(summary.splitlines()) == 16

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


class TestFiles:
    def test_dataset_is_labelled(self, post, problem):
        dataset = post.to_xarray()
        assert dataset["modes"].dims == ("mode", "latent")
        assert dataset["mean"].dims == ("row", "column")
        assert dataset["y"].dims == ("data_row", "data_column")
        assert dataset["mode_images"].dims == ("mode", "row", "column")
        median = dataset["quantiles"].sel(quantile=0.5)
        np.testing.assert_array_equal(median, post.quantile(0.5))
        np.testing.assert_array_equal(dataset["draws"], post.draws)
        np.testing.assert_array_equal(dataset["log_weights"], post.log_weights)
        assert dataset.attrs["model"] == "linear"
        assert dataset.attrs["latentuq_version"] == lu.__version__
        assert dataset.attrs["verdict"] == post.verdict
        assert dataset.attrs["seconds_fit"] == 1.5
        for value in dataset.attrs.values():
            assert isinstance(value, str | int | float | np.ndarray)

    def test_any_program_reads_the_file(self, saved, post):
        with xarray.open_dataset(saved) as dataset:
            np.testing.assert_array_equal(dataset["mean"], post.mean)

    def test_it_opens_as_a_tree(self, saved, post):
        with xarray.open_datatree(saved, engine="h5netcdf") as tree:
            assert tree["posterior"].sizes["draw"] == 500
            assert tree.sizes["weighted_draw"] == len(post.draws)

    @pytest.mark.parametrize("size", [1_000, 50_000, 150_000])
    def test_a_full_disk_is_one_sentence(self, post, tmp_path, size):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            with pytest.raises(UserError, match=r"Cannot write .*post\.nc: file too large\.$"):
                post.save(tmp_path / "post.nc")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert not list(tmp_path.iterdir())

    def test_round_trip(self, saved, post, problem):
        loaded = load_posterior(saved, prior=problem.prior)
        before, after = jax.tree.leaves(post.inference), jax.tree.leaves(loaded.inference)
        assert len(before) == len(after)
        for first, second in zip(before, after, strict=True):
            np.testing.assert_array_equal(first, second)
        assert loaded.diagnostics == post.diagnostics
        assert loaded.verdict == post.verdict
        assert loaded.provenance == post.provenance
        assert jnp.all(loaded.key == post.key)
        assert loaded.summary() == post.summary()
        np.testing.assert_array_equal(loaded.mean, post.mean)
        np.testing.assert_array_equal(loaded.quantile([0.05, 0.33]), post.quantile([0.05, 0.33]))
        np.testing.assert_array_equal(loaded.sample_images(KEY, 3), post.sample_images(KEY, 3))
        np.testing.assert_array_equal(loaded.log_prob(post.modes), post.log_prob(post.modes))
        xarray.testing.assert_identical(loaded.to_xarray(), post.to_xarray())

    def test_without_its_prior_the_maps_are_left(self, saved, post):
        loaded = load_posterior(saved)
        np.testing.assert_array_equal(loaded.mean, post.mean)
        np.testing.assert_array_equal(loaded.std, post.std)
        np.testing.assert_array_equal(loaded.mode_images, post.mode_images)
        np.testing.assert_array_equal(loaded.quantile([0.9, 0.5]), post.quantile([0.9, 0.5]))
        np.testing.assert_array_equal(loaded.sample(KEY, 5), post.sample(KEY, 5))
        with pytest.raises(UserError, match=r"only 0\.005, .* were saved"):
            loaded.quantile(0.33)
        for action in (lambda: loaded.sample_images(KEY, 2), lambda: loaded.log_prob(post.modes)):
            with pytest.raises(UserError, match="give load_posterior the prior 'linear'"):
                action()

    def test_another_prior_is_refused(self, saved):
        other = linear_prior(jax.random.key(9), DIM, SHAPE)
        with pytest.raises(UserError, match="not the prior of this posterior"):
            load_posterior(saved, prior=other)

    def test_an_embedded_prior_is_found_again(self, tmp_path):
        prior = lu.load_prior("mnist").with_model_error("scalar")
        mask = np.zeros(prior.shape)
        mask[:, :14] = 1
        u = jax.random.normal(KEY, (8, prior.dim))
        problem = InverseProblem(prior, Mask(mask), GaussianNoise(0.2), prior.decode(u[0]))
        inference = make_inference(
            u, np.full(8, -np.log(8)), np.zeros(8), u[:1], [problem.log_density(u[0])], 0.0
        )
        # Maps as if made before, which saves the compilation of the draws.
        blank = np.zeros((1, *prior.shape))
        images = SavedImages(
            blank[0], blank[0], np.asarray(LEVELS), np.zeros((len(LEVELS), *prior.shape)), blank
        )
        post = make_posterior(KEY, inference, problem)
        post = dataclasses.replace(post, saved_images=images)
        post.save(tmp_path / "post.nc")
        loaded = load_posterior(tmp_path / "post.nc")
        decoded = loaded.sample_images(KEY, 2, mean=True)
        np.testing.assert_array_equal(decoded, post.sample_images(KEY, 2, mean=True))
        np.testing.assert_array_equal(
            loaded.problem.prior.model_error.variance, prior.model_error.variance
        )
        assert loaded.provenance["model_checksum"] == prior.card.checksum

    def test_an_operator_that_is_code_stays_behind(self, saved, tmp_path):
        post = solve_exactly(make_problem(LinearOperator(lambda x: 2 * x, SHAPE)), n=50)
        post = dataclasses.replace(post, saved_images=load_posterior(saved).saved_images)
        post.save(tmp_path / "post.nc")
        loaded = load_posterior(tmp_path / "post.nc")
        np.testing.assert_array_equal(loaded.std, post.std)
        with pytest.raises(UserError, match="Python code"):
            loaded.sample_images(KEY, 1)
        with pytest.raises(UserError, match="of no use"):
            load_posterior(tmp_path / "post.nc", prior=post.problem.prior)

    def test_a_plain_density_survives(self, tmp_path):
        post = plain_posterior([[1.0], [2.0]], [0.25, 0.75], lambda u: u[0])
        post.save(tmp_path / "post.nc")
        loaded = load_posterior(tmp_path / "post.nc")
        np.testing.assert_array_equal(loaded.sample(KEY, 8), post.sample(KEY, 8))
        with pytest.raises(UserError, match="density is not known"):
            loaded.log_prob([0.0])

    def test_existing_files_are_kept(self, saved, post):
        before = saved.read_bytes()
        with pytest.raises(UserError, match="exists"):
            post.save(saved)
        assert saved.read_bytes() == before
        post.save(saved, force=True)
        assert [file.name for file in saved.parent.iterdir()] == [saved.name]

    def test_files_that_are_no_posteriors_are_refused(self, saved, tmp_path):
        path = tmp_path / "other.nc"
        with pytest.raises(UserError, match="There is no file"):
            load_posterior(path)
        whole = saved.read_bytes()
        for content in (b"", b"not netCDF at all", whole[: len(whole) // 2], whole[:-100]):
            path.write_bytes(content)
            with pytest.raises(UserError, match=r"other\.nc is damaged"):
                load_posterior(path)
        xarray.Dataset({"a": 1.0}).to_netcdf(path, engine="h5netcdf")
        with pytest.raises(UserError, match="not a posterior of latentuq"):
            load_posterior(path)
        with xarray.open_dataset(saved) as dataset:
            dataset.attrs["format"] = 1
            dataset.to_netcdf(path, engine="h5netcdf")
        with pytest.raises(UserError, match="has format 1"):
            load_posterior(path)


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

        def infer(key, target, *, budget, progress):
            calls.append((target, budget, progress))
            return post.inference

        monkeypatch.setattr(sys.modules["latentuq.posterior.solve"], "infer", infer)
        found = solve(KEY, problem, budget="preview", progress=print)
        target, budget, progress = calls[0]
        u = jnp.ones(DIM)
        np.testing.assert_array_equal(target.log_density_fn(u), problem.log_density(u))
        np.testing.assert_array_equal(target.residual_fn(u), problem.residual(u))
        assert (target.dim, target.scale, budget, progress) == (DIM, 1.0, "preview", print)
        np.testing.assert_array_equal(found.chi_squared, post.chi_squared)
        np.testing.assert_array_equal(found.mean, post.mean)
        plain = solve_density(KEY, problem.log_density, DIM, scale=2.0)
        assert (calls[1][0].residual_fn, calls[1][0].scale, calls[1][1]) == (None, 2.0, "default")
        with pytest.raises(UserError, match="neither problem nor images"):
            plain.sample_images(KEY, 1)


@pytest.mark.parametrize("path", [None, 3])
def test_what_is_no_path_is_said(path):
    with pytest.raises(UserError, match="A path is needed"):
        lu.load_posterior(path)
