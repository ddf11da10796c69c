from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentuq as lu
from latentuq.calibration.classifier import load_classifier
from latentuq.calibration.measure import corrupted, coverage
from latentuq.core.errors import UserError
from latentuq.data.digits import load_digits
from studies.calibration_cases import (
    Study,
    blank_problem,
    make_cases,
    run_study,
    unseen_images,
)
from studies.pages import is_unreliable


@pytest.fixture(scope="module")
def prior():
    return lu.load_prior("mnist")


@pytest.fixture
def quick():
    """The truth itself, with noise, as a posterior: no inference."""

    def draw(key, case):
        centre = np.zeros(10) if case.truth.u is None else case.truth.u
        draws = jnp.asarray(centre) + 0.5 * jax.random.normal(key, (60, 10))
        facts = {"verdict": "reliable", "weights": [0.7, 0.3], "mode_of_truth": [1.0, 0.0]}
        return draws, facts

    return draw


@pytest.mark.slow
def test_rows_are_saved_and_continued(prior, quick, tmp_path):
    study = Study("simulated", "masknoise05", "low-rank")
    first = run_study(study, prior, 2, tmp_path, infer=quick)
    seen = []
    cells = run_study(study, prior, 3, tmp_path, 0, lambda name, row: seen.append(name), quick)
    assert seen == ["2"]
    assert cells | first == cells
    rows = [*cells.values()]
    assert len(rows[0]["ranks"]) == 10
    assert rows[0]["pixels"]["hidden"][0] == 14 * 28
    assert not any(map(is_unreliable, rows))
    with pytest.raises(UserError, match="another model, seed or setting"):
        run_study(study, prior, 3, tmp_path, seed=1)


@pytest.fixture
def digits(monkeypatch):
    """The digits that come along stand for the test set, again and again."""
    found = load_digits()
    data = SimpleNamespace(
        test_images=np.resize(found.images, (5200, 28, 28)),
        test_labels=np.resize(found.labels, 5200),
    )
    monkeypatch.setattr("latentuq.data.datasets.load_dataset", lambda name: data)
    return found


@pytest.mark.slow
def test_real_rows_are_continued(prior, quick, digits, tmp_path):
    study = Study("real", "solidmask", "signal-dependent")
    first = run_study(study, prior, 1, tmp_path, infer=quick)
    rows = run_study(study, prior, 2, tmp_path, infer=quick)
    assert rows["0"] == first["0"]
    assert [row["label"] for row in rows.values()] == [
        digits.labels[number % len(digits.labels)] for number in unseen_images(5200)[:2]
    ]


@pytest.mark.slow
def test_a_small_study_of_real_images(prior, digits, tmp_path):
    """The study itself; a factor of two in the variance of the noise would show in chi-squared."""
    study = Study("real", "masknoise05", prior.model_error_name)
    rows = [*run_study(study, prior, 6, tmp_path).values()]
    assert sum(map(is_unreliable, rows)) <= 1
    uncertain = coverage(rows, "uncertain")
    assert 0.8 < uncertain[0.9].value < 0.99
    assert 0.3 < uncertain[0.5].value < 0.8
    assert coverage(rows, "uncertain_inked")[0.9].value > 0.7
    assert np.median([row["chi_squared"] for row in rows]) == pytest.approx(1, abs=0.15)
    assert np.mean([row["classes"][row["label"]] for row in rows]) > 0.4


def test_images_that_were_looked_at_are_left_out():
    order = unseen_images(10000)
    left = {*range(1100, 5000), *range(5100, 10000)}
    assert set(order) < left
    # And 300 further ones, from the middle of the order.
    assert len(order) == len(set(order)) == len(left) - 300
    assert order == unseen_images(10000)
    assert np.mean(order[:40]) == pytest.approx(5500, abs=2000)


def test_simulated_cases_come_from_the_model(prior):
    prior = prior.with_model_error("low-rank")
    cases = make_cases(Study("simulated", "solidmask", "low-rank"), prior, 0)
    case = cases(0)
    chi_squared = float(case.problem.chi_squared(jnp.asarray(case.truth.u)))
    data = int(jnp.sum(case.problem.observed))
    assert abs(chi_squared - data) < 5 * np.sqrt(2 * data)
    assert not np.array_equal(cases(1).truth.x, case.truth.x)


def test_noise_differs_from_image_to_image(prior):
    base = blank_problem(prior, "masknoise05")
    x = np.zeros((28, 28), np.float32)
    first, second = (corrupted(jax.random.key(seed), base, x) for seed in (0, 1))
    assert float(jnp.nanstd(first - second)) == pytest.approx(0.5 * np.sqrt(2), rel=0.1)
    assert np.isnan(first[:, 14:]).all()


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (Study("dreamt", "blur", "scalar"), "no study 'dreamt'; there are simulated, real"),
        (Study("real", "fog", "scalar"), "no corruption 'fog'"),
        (Study("real", "blur", "vague"), "no model error 'vague'"),
    ],
)
def test_unknown_studies(prior, study, message, tmp_path):
    with pytest.raises(UserError, match=message):
        run_study(study, prior, 1, tmp_path)


@pytest.mark.slow
def test_draws_are_kept_for_new_measures(prior, quick, tmp_path):
    study = Study("simulated", "blur", "scalar")
    first = run_study(study, prior, 1, tmp_path, infer=quick)
    (tmp_path / f"{study.name}.json").unlink()
    again = run_study(study, prior, 1, tmp_path, infer=lambda key, case: pytest.fail("inferred"))
    assert again == first


def test_there_are_only_so_many_images(prior, digits):
    case, number = make_cases(Study("real", "blur", "scalar"), prior, 0), len(unseen_images(5200))
    with pytest.raises(UserError, match=f"has only {number} problems"):
        case(number)


def test_a_file_of_something_else(prior, tmp_path):
    (tmp_path / "simulated-blur-scalar-latentuq.json").write_text("nonsense")
    with pytest.raises(UserError, match="not a file of saved results"):
        run_study(Study("simulated", "blur", "scalar"), prior, 1, tmp_path)


def test_the_classifier_reads_digits():
    digits = lu.load_digits()
    images = jnp.asarray(digits.images)
    found = np.argmax(load_classifier().probabilities(images), axis=1)
    assert np.mean(found == np.asarray(digits.labels)) > 0.95
