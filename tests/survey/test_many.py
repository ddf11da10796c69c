"""Many images from Python."""

import jax
import numpy as np
import pytest

import latentuq as lu
from latentuq.core.errors import UserError
from latentuq.prior.model_file import load_prior
from latentuq.problem.specification import Specification
from latentuq.survey import many
from latentuq.survey.many import batch, solve_many
from latentuq.survey.rows import posterior_row
from surveys import FLAGS, SHAPE, assert_same, load, plan_of, run

KEY = jax.random.key(5)


@pytest.fixture(scope="module")
def parts(model):
    """Prior, operator and noise."""
    return load_prior(model), *Specification.from_flags(FLAGS).build(SHAPE)


@pytest.mark.slow
def test_each_image_has_the_answer_of_solve(parts, noisy):
    ys = noisy[:4].copy()
    ys[1] = np.inf
    told = []
    given = {"budget": "preview", "draws": 30}
    found = solve_many(KEY, *parts, ys, **given, progress=lambda *done: told.append(done))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [*found["name"].values] == ["0", "1", "2", "3"]
    for image in (0, 2, 3):
        key, y = jax.random.fold_in(KEY, image), ys[image]
        post = lu.solve(key, lu.InverseProblem(*parts, y).with_data(y), budget="preview")
        count = min(len(post.weights), 8)
        for name in ("weights", "modes", "chi_squared"):
            expected = np.asarray(getattr(post, name))[:count]
            np.testing.assert_array_equal(found[name][image, :count], expected, err_msg=name)
        for name in ("mean", "std"):
            np.testing.assert_array_equal(found[name][image], getattr(post, name))
        assert found["log_evidence"][image] == post.log_evidence
        assert found["verdict"].values[image] == str(post.verdict)
        assert found["predictive_p_value"][image] == post.diagnostics.predictive_p_value
    assert [*np.flatnonzero(found["status"] == "failed")] == [1]
    assert "infinite" in found["error"].values[1]
    # Of a problem made by hand the data are rounded once, not twice.
    by_hand = lu.solve(key, lu.InverseProblem(*parts, y), budget="preview")
    assert by_hand.log_evidence == pytest.approx(post.log_evidence, abs=0.01)
    # An image has the same answer alone.
    alone = solve_many(KEY, *parts, ys[:1], **given)
    assert_same(alone, found.isel(image=[0]))


@pytest.fixture
def quick_many(monkeypatch, quick):
    from latentuq.app import solving

    monkeypatch.setattr(many, "solve", solving.solve)


def test_the_dataset_is_that_of_the_command(tmp_path, model, parts, noisy, quick_many, answer):
    np.save(tmp_path / "y.npy", noisy[:3])
    run(plan_of(tmp_path / "y.npy", model), tmp_path / "out.zarr", draws=12)
    stored, found = load(tmp_path / "out.zarr"), solve_many(KEY, *parts, noisy[:3], draws=12)
    assert set(stored) == set(found)
    for name in stored:
        assert (stored[name].dims, stored[name].shape) == (found[name].dims, found[name].shape)
        if found[name].dtype.kind in "fi":
            assert stored[name].dtype == found[name].dtype
    np.testing.assert_array_equal(stored["quantile"], found["quantile"])
    np.testing.assert_array_equal(stored["y"], found["y"])


def test_an_image_says_the_same_wherever_it_stands(parts, noisy, quick_many):
    bad = noisy[0].copy()
    bad[0, 0] = np.inf
    large = noisy[0].copy()
    large[0, 0] = 1e300  # Infinite in single precision.
    texts = [
        [*solve_many(KEY, *parts, ys)["error"].values]
        for ys in ([bad, large, noisy[1]], [noisy[1], large, bad])
    ]
    assert texts[0] == texts[1][::-1]
    assert texts[0][2] == ""
    assert texts[0][0] == "y is infinite at (0, 0); mark missing data by NaN."
    assert texts[0][1] == "y is too large, 1e+300, at (0, 0); mark missing data by NaN."


def test_what_concerns_all_images_is_raised_at_once(parts, noisy):
    for ys, words in (
        (noisy[:, :3], r"ys has shape \(12, 3, 8\); data of this operator are \(n, 6, 8\)"),
        (noisy[0], r"ys has shape \(6, 8\)"),
        ([["a"]], "real numbers"),
    ):
        with pytest.raises(UserError, match=words):
            solve_many(KEY, *parts, ys)
    with pytest.raises(UserError, match="The budget is one of"):
        solve_many(KEY, *parts, noisy, budget="huge")
    with pytest.raises(UserError, match="no data at all"):
        solve_many(KEY, *parts, noisy[:0])
    with pytest.raises(UserError, match="key"):
        solve_many(3, *parts, noisy)  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_a_survey_from_python_is_that_of_the_command(tmp_path, model, noisy, quick):
    np.save(tmp_path / "y.npy", noisy)
    run(plan_of(tmp_path / "y.npy", model, seed=3), tmp_path / "first.zarr", chunk=5)
    told = []
    given = {"model": model, "budget": "preview", "seed": 3, "chunk": 5, "workers": 0}
    images = tmp_path / "y.npy"
    found = batch(images, tmp_path / "second.zarr", FLAGS, progress=told.append, **given)
    assert_same(load(tmp_path / "first.zarr"), found.load())
    assert told[-1].done == 12
    text = '[[operator]]\nkind = "mask"\nmask = "columns:4-5"\n[noise]\nstd = 0.1\n'
    (tmp_path / "p.toml").write_text(text)
    found = batch(str(tmp_path / "y.npy"), tmp_path / "third.zarr", tmp_path / "p.toml", **given)
    assert_same(load(tmp_path / "first.zarr"), found.load())
    again = batch(tmp_path / "y.npy", tmp_path / "third.zarr", FLAGS, resume=True, **given)
    assert again.sizes["image"] == 12


@pytest.mark.parametrize("option", ["worker", "plan", "command"])
def test_options_that_do_not_exist_are_refused(tmp_path, option):
    with pytest.raises(UserError, match=f"batch has no option '{option}'"):
        batch("y.npy", tmp_path / "out.zarr", {}, **{option: 1})


def test_rows_in_memory_are_rows_of_a_store(parts, answer):
    """`solve_many` keeps what `posterior_row` does, and nothing else is filled in."""
    from latentuq.survey.layout import Layout

    layout = Layout(SHAPE, SHAPE, answer.dim, 5)
    assert set(posterior_row(layout, answer)) <= set(layout.variables)
