"""The report on an image of a survey: what the survey has found, without solving again."""

import dataclasses
import json
import shutil

import equinox as eqx
import jax
import numpy as np
import pytest

import latentuq as lu
from latentuq.core.errors import UserError
from latentuq.prior.model_file import load_prior, save_prior
from latentuq.survey.reports import StoredImage, report_image
from latentuq.survey.store import open_store
from own_files import write_image
from surveys import FLAGS, load, plan_of, run


@pytest.fixture
def survey(tmp_path, model, noisy, quick):
    """Eight images in chunks of two; the second has failed, the last two are not solved."""
    bad = noisy[:8].copy()
    bad[1] = np.nan
    np.save(tmp_path / "y.npy", bad)
    store = run(plan_of(tmp_path / "y.npy", model, seed=4), tmp_path / "out.zarr", chunk=2)
    # As if the run had been killed before the last chunk.
    store.marker(3).unlink()
    for name in ("status", "name"):
        shutil.rmtree(store.path / name / "c" / "3", ignore_errors=True)
        (store.path / name / "c" / "3").unlink(missing_ok=True)
    return store.path


@pytest.fixture
def unsolvable(monkeypatch):
    """Nothing may be solved."""

    def fail(*_, **__):
        raise AssertionError("this solves")

    for place in ("app.solving.solve", "posterior.solve.infer", "posterior.solve.solve"):
        monkeypatch.setattr(f"latentuq.{place}", fail)


def report(survey, image, **changes):
    folder = survey.parent / "report"
    return report_image(StoredImage(survey, image, folder, samples=20, **changes))


@pytest.mark.slow
def test_a_report_says_what_the_survey_has_found(tmp_path, model, noisy, request):
    np.save(tmp_path / "y.npy", noisy[:2])
    survey = run(plan_of(tmp_path / "y.npy", model, seed=4), tmp_path / "out.zarr").path
    request.getfixturevalue("unsolvable")
    made = report(survey, 1, command="latentuq report")
    folder, row = made.folder, load(survey).isel(image=1)
    names = {path.name for path in folder.iterdir()}
    assert names == {"report.html", "summary.json", "posterior.nc", "figures"}
    figures = ("overview", "modes", "samples", "components", "latent", "search", "slices")
    for name in figures:
        assert (folder / "figures" / f"{name}.png").stat().st_size > 1000
        assert (folder / "figures" / f"{name}.svg").stat().st_size > 1000
    facts = json.loads((folder / "summary.json").read_text())
    assert facts == made.facts
    assert facts["status"] == row["status"]
    assert facts["verdict"] == json.loads(str(row["verdict_json"].values))
    for name in ("log_evidence", "log_evidence_error", "khat", "ess", "predictive_p_value"):
        assert facts[name] == pytest.approx(float(row[name]), rel=1e-6, nan_ok=True), name
    count = min(int(row["modes_found"]), 8)
    weights = [mode["weight"] for mode in facts["modes"]]
    np.testing.assert_allclose(weights, row["weights"][: len(weights)], rtol=1e-6)
    assert facts["seed"] == "4"
    assert facts["image"] == "y.npy[1]"
    assert facts["survey"] == str(survey)
    assert any(
        "Made of what the survey out.zarr keeps of image 1" in each for each in facts["notes"]
    )
    page = (folder / "report.html").read_text()
    assert f"{float(row['log_evidence']):.3f}".replace("-", "−") in page
    saved = lu.load_posterior(folder / "posterior.nc", model)
    np.testing.assert_array_equal(saved.modes, row["modes"][:count])
    np.testing.assert_array_equal(saved.mean, row["mean"])
    np.testing.assert_array_equal(saved.std, row["std"])
    np.testing.assert_array_equal(saved.mode_images, row["mode_images"][:count])
    assert saved.problem is not None
    np.testing.assert_array_equal(saved.problem.y, row["y"])
    u = np.asarray(saved.modes[0])
    assert float(saved.problem.log_density(u)) == pytest.approx(
        float(lu.InverseProblem(
            load_prior(model), saved.problem.operator, saved.problem.noise, row["y"].values
        ).log_density(u))
    )  # fmt: skip


def test_what_cannot_be_reported_is_one_sentence_and_leaves_nothing(
    survey, tmp_path, model, unsolvable
):
    prior = load_prior(model)
    decoder = jax.tree.map(lambda leaf: 2 * leaf if eqx.is_array(leaf) else leaf, prior.decoder)
    save_prior(tmp_path / "other.safetensors", dataclasses.replace(prior, decoder=decoder))
    before = sorted(tmp_path.iterdir())
    for image, changes, words in (
        (8, {}, r"out\.zarr has images 0 to 7, but no 8\."),
        (-1, {}, r"but no -1\."),
        (1, {}, r"Image 1 of .* has no answer: The image holds nothing but missing pixels"),
        (7, {}, r"Image 7 of .* has not been solved yet: run latentuq batch --resume\."),
        (0, {"model": str(tmp_path / "other.safetensors")}, "name the right file with --model"),
        (0, {"model": "mnist"}, "is not the prior of"),
        (0, {"model": "nothing"}, "There is no model 'nothing'"),
    ):
        with pytest.raises(UserError, match=words) as caught:
            report(survey, image, **changes)
        assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


def test_a_chunk_that_is_not_finished_has_no_reports(survey):
    """What is there of it may be half of it, or be overwritten while it is read."""
    store = open_store(survey)
    store.marker(0).unlink()
    with pytest.raises(UserError, match="has not been solved yet"):
        report(survey, 0)


def test_a_prior_that_has_moved_is_named(survey, tmp_path, model, unsolvable):
    header = json.loads((survey / "zarr.json").read_text())
    provenance = json.loads(header["attributes"]["provenance"])
    provenance["model"] = str(tmp_path / "gone.safetensors")
    header["attributes"]["provenance"] = json.dumps(provenance)
    (survey / "zarr.json").write_text(json.dumps(header))
    with pytest.raises(UserError, match=r"There is no model .*gone\.safetensors"):
        report(survey, 0)
    assert not (tmp_path / "report").exists()


def test_without_draws_there_is_no_report(tmp_path, model, noisy, quick):
    np.save(tmp_path / "y.npy", noisy[:1])
    run(plan_of(tmp_path / "y.npy", model), tmp_path / "out.zarr", draws=0)
    with pytest.raises(UserError, match="--draws 0"):
        report(tmp_path / "out.zarr", 0)
    assert not (tmp_path / "report").exists()


def test_a_damaged_store_is_one_sentence(survey, tmp_path, unsolvable):
    chunk = next(path for path in (survey / "u" / "c" / "0").rglob("*") if path.is_file())
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"out\.zarr is damaged: "):
        report(survey, 0)
    chunk.write_bytes(whole)
    header = survey / "problem" / "zarr.json"
    whole = header.read_text()
    for content in (whole[:-30], whole.replace("[noise]", "[nonsense]"), "{}"):
        header.write_text(content)
        with pytest.raises(UserError, match=r"out\.zarr is damaged|The problem has 'nonsense'"):
            report(survey, 0)
    header.write_text(whole)
    (survey / "zarr.json").write_text("{}")
    with pytest.raises(UserError, match="is not a store that latentuq batch has made"):
        report(survey, 0)
    assert not (tmp_path / "report").exists()


def test_a_folder_that_exists_is_kept(survey, tmp_path, unsolvable):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="--force"):
        report(survey, 0)
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_each_image_has_its_own_noise_in_its_report(tmp_path, model, tiny_images, quick):
    """Pictures of 8 and 16 bits have units of their own, so 25 is another noise."""
    clean = np.clip(np.asarray(tiny_images.train[:2], np.float64), 0, 1)
    (tmp_path / "sky").mkdir()
    write_image(tmp_path / "sky" / "a.png", np.rint(255 * clean[0]).astype(np.uint8))
    write_image(tmp_path / "sky" / "b.png", np.rint(65535 * clean[1]).astype(np.uint16))
    flags = {"mask": "columns:4-5", "noise": "25"}
    run(plan_of(tmp_path / "sky", model, flags), tmp_path / "out.zarr")
    for image, white in ((0, 255), (1, 65535)):
        made = report_image(StoredImage(tmp_path / "out.zarr", image, tmp_path / str(image)))
        assert float(made.posterior.problem.noise.std) == pytest.approx(25 / white)


@pytest.mark.slow
def test_the_truth_is_compared_with(tmp_path, model, tiny_images, quick):
    clean = np.asarray(tiny_images.train[:2])
    np.save(tmp_path / "y.npy", clean)
    run(plan_of(tmp_path / "y.npy", model, FLAGS, corrupt=True), tmp_path / "out.zarr")
    facts = report(tmp_path / "out.zarr", 1).facts
    row = load(tmp_path / "out.zarr").isel(image=1)
    expected = np.sqrt(np.mean((row["mean"] - row["truth"]) ** 2))
    assert facts["rms_error_of_mean"] == pytest.approx(float(expected), rel=1e-4)
