"""What posteriors and priors show of themselves in Python."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentuq as lu

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def truth(tiny_images):
    return np.asarray(tiny_images.train[0])


@pytest.fixture(scope="module")
def post(tiny_prior, truth):
    mask = np.ones(truth.shape)
    mask[:, 4:] = 0
    problem = lu.InverseProblem(tiny_prior, lu.Mask(mask), lu.GaussianNoise(0.1), truth)
    return lu.solve(jax.random.key(0), problem, budget="preview")


@pytest.fixture(scope="module")
def density_post():
    return lu.solve_density(jax.random.key(0), lambda u: -jnp.sum(u**2) / 2, 2, budget="preview")


def titles(figure) -> list[str]:
    return [axis.get_title() for axis in figure.axes]


@pytest.mark.slow
def test_a_posterior_writes_its_own_report(post, truth, tmp_path):
    folder = tmp_path / "new" / "report"
    page = post.report(folder, title="A <spot>", truth=truth)
    assert page == folder / "report.html"
    text = page.read_text()
    assert "<h1>A &lt;spot&gt;</h1>" in text
    assert "truth</figcaption>" in text
    facts = json.loads((folder / "summary.json").read_text())
    assert facts["log_evidence"] == post.log_evidence
    assert facts["rms_error_of_mean"] == pytest.approx(
        float(np.sqrt(np.mean((np.asarray(post.mean) - truth) ** 2))), rel=1e-5
    )
    assert lu.load_posterior(folder / "posterior.nc").log_evidence == post.log_evidence
    with pytest.raises(lu.UserError, match="force=True"):
        post.report(folder)
    assert page.read_text() == text
    post.report(folder, force=True)
    assert "truth</figcaption>" not in page.read_text()


@pytest.mark.slow
def test_the_overview_shows_what_there_is(post, truth, tmp_path):
    shown = ["data", "most probable", "posterior mean", "standard deviation"]
    assert titles(post.plot()) == shown
    figure = post.plot(truth)
    assert titles(figure) == [*shown, "truth"]
    assert figure._repr_png_().startswith(PNG)
    with pytest.raises(lu.UserError, match=r"truth has shape \(3, 3\)"):
        post.plot(np.zeros((3, 3)))
    # Maps come with the file, data only with the problem.
    post.save(tmp_path / "post.nc")
    assert titles(lu.load_posterior(tmp_path / "post.nc").plot()) == shown[1:]


@pytest.mark.slow
def test_a_notebook_shows_overview_modes_and_marks(post):
    page = post._repr_html_()
    assert page.count("<img ") == 1 + min(len(post.weights), 6)
    assert f"{float(post.weights[0]):.1%} ± {float(post.weight_errors[0]):.1%}" in page
    assert f"<strong>{post.verdict.word}</strong>" in page
    for name, mark in post.verdict.marks.items():
        assert f"<th>{name}</th><td>{mark.standing}</td>" in page


@pytest.mark.slow
def test_without_images_a_table_is_left(density_post, tmp_path):
    page = density_post._repr_html_()
    assert "<img" not in page
    assert page.count("<td>100.0% ± 0.0%</td>") == 1
    assert re.findall(r"<th>(\w+)</th>", page) == ["modes", "computed", "fit", "prior"]
    with pytest.raises(lu.UserError, match="neither problem nor images"):
        density_post.plot()
    with pytest.raises(lu.UserError, match="neither problem nor images"):
        density_post.report(tmp_path / "report")
    assert not list(tmp_path.iterdir())


def test_a_prior_shows_samples(tiny_prior):
    figure = tiny_prior.plot(15)
    rows = [axis.images[0].get_array() for axis in figure.axes]
    height, width = tiny_prior.shape
    assert [row.shape for row in rows] == [(height, 12 * (width + 2) - 2, 3)] * 2
    # The images are samples; what is not filled stays white.
    x = np.asarray(tiny_prior.sample(jax.random.key(0), 15))[0]
    np.testing.assert_allclose(rows[0][:, :width, 0], 255 * np.clip(x, 0, 1), atol=0.51)
    assert (rows[1][:, 3 * (width + 2) :] == 255).all()
    other = tiny_prior.plot(15, jax.random.key(1)).axes[0].images[0].get_array()
    assert not np.array_equal(other, rows[0])
    with pytest.raises(lu.UserError, match="positive integer"):
        tiny_prior.plot(0)


def test_a_prior_of_vectors_has_no_picture():
    prior = lu.prior_from(lambda z: z, 3, (3,), 0.1)
    with pytest.raises(lu.UserError, match=r"\(3,\)"):
        prior.plot()


def test_a_prior_is_saved_once(tiny_prior, tmp_path):
    path = tmp_path / "model.safetensors"
    tiny_prior.save(path)
    assert lu.load_prior(path).dim == tiny_prior.dim
    with pytest.raises(lu.UserError, match="force=True"):
        tiny_prior.save(path)
    tiny_prior.save(path, force=True)
