import dataclasses
import resource

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import latentuq as lu
from exact_posteriors import (
    DIM,
    KEY,
    SHAPE,
    make_inference,
    make_problem,
    plain_posterior,
    solve_exactly,
)
from latentuq.core.errors import UserError
from latentuq.forward.linear import LinearOperator
from latentuq.forward.mask import Mask
from latentuq.likelihood.noise import GaussianNoise
from latentuq.posterior.dataset import LEVELS
from latentuq.posterior.file import load_posterior
from latentuq.posterior.maps import SavedImages
from latentuq.posterior.solve import make_posterior
from latentuq.problem.inverse import InverseProblem
from studies.exact import linear_prior


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


def test_dataset_is_labelled(post, problem):
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
    assert dataset.attrs["verdict"] == str(post.verdict)
    assert dataset.attrs["seconds_fit"] == 1.5
    for value in dataset.attrs.values():
        assert isinstance(value, str | int | float | np.ndarray)


def test_any_program_reads_the_file(saved, post):
    with xarray.open_dataset(saved) as dataset:
        np.testing.assert_array_equal(dataset["mean"], post.mean)


def test_it_opens_as_a_tree(saved, post):
    with xarray.open_datatree(saved, engine="h5netcdf") as tree:
        assert tree["posterior"].sizes["draw"] == 500
        assert tree.sizes["weighted_draw"] == len(post.draws)


@pytest.mark.parametrize("size", [1_000, 50_000, 150_000])
def test_a_full_disk_is_one_sentence(post, tmp_path, size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        with pytest.raises(UserError, match=r"Cannot write .*post\.nc: file too large\.$"):
            post.save(tmp_path / "post.nc")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_round_trip(saved, post, problem):
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


def test_without_its_prior_the_maps_are_left(saved, post):
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


def test_another_prior_is_refused(saved):
    other = linear_prior(jax.random.key(9), DIM, SHAPE)
    with pytest.raises(UserError, match="not the prior of this posterior"):
        load_posterior(saved, prior=other)


def test_an_embedded_prior_is_found_again(tmp_path):
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


def test_an_operator_that_is_code_stays_behind(saved, tmp_path):
    post = solve_exactly(make_problem(LinearOperator(lambda x: 2 * x, SHAPE)), n=50)
    post = dataclasses.replace(post, saved_images=load_posterior(saved).saved_images)
    post.save(tmp_path / "post.nc")
    loaded = load_posterior(tmp_path / "post.nc")
    np.testing.assert_array_equal(loaded.std, post.std)
    with pytest.raises(UserError, match="Python code"):
        loaded.sample_images(KEY, 1)
    with pytest.raises(UserError, match="of no use"):
        load_posterior(tmp_path / "post.nc", prior=post.problem.prior)


def test_a_plain_density_survives(tmp_path):
    post = plain_posterior([[1.0], [2.0]], [0.25, 0.75], lambda u: u[0])
    post.save(tmp_path / "post.nc")
    loaded = load_posterior(tmp_path / "post.nc")
    np.testing.assert_array_equal(loaded.sample(KEY, 8), post.sample(KEY, 8))
    with pytest.raises(UserError, match="density is not known"):
        loaded.log_prob([0.0])


def test_existing_files_are_kept(saved, post):
    before = saved.read_bytes()
    with pytest.raises(UserError, match="exists"):
        post.save(saved)
    assert saved.read_bytes() == before
    post.save(saved, force=True)
    assert [file.name for file in saved.parent.iterdir()] == [saved.name]


def test_files_that_are_no_posteriors_are_refused(saved, tmp_path):
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


@pytest.mark.parametrize("path", [None, 3])
def test_what_is_no_path_is_said(path):
    with pytest.raises(UserError, match="A path is needed"):
        lu.load_posterior(path)


def test_more_draws_than_memory_holds_are_refused(post, tmp_path):
    with pytest.raises(
        UserError, match=r"draws would take 13\.2 TB .*: give 8134407 samples or fewer"
    ):
        post.save(tmp_path / "post.nc", samples=10**11)
    assert not list(tmp_path.iterdir())


def test_arrays_of_any_size_that_a_file_announces_are_refused(saved, tmp_path):
    path = tmp_path / "large.nc"
    path.write_bytes(saved.read_bytes())
    with h5py.File(path, "a") as file:
        file.create_dataset("nothing", (10**7, 10**6), "f8")  # It takes no room in the file.
    assert path.stat().st_size < 10**6
    with pytest.raises(UserError, match=r"large\.nc takes 80 TB .*--max-bytes"):
        load_posterior(path)
