"""Requests that make no sense, and stores that are to be gone on with, replaced or left alone."""

import dataclasses
import os
from pathlib import Path

import jax
import numpy as np
import pytest

import latentuq
from latentuq.core.errors import UserError
from latentuq.core.reading import VARIABLE
from latentuq.prior.model_file import load_prior, save_prior
from latentuq.survey.prepare import BatchRequest, plan_store, prepare_store
from latentuq.survey.store import is_store, open_store
from surveys import FLAGS, SHAPE, plan_of


@pytest.fixture
def make(tmp_path, model, noisy):
    """Makes requests for one survey; what is said of the plan changes the plan."""
    np.save(tmp_path / "y.npy", noisy)
    names = {field.name for field in dataclasses.fields(plan_of("y.npy", model))}

    def request(flags=FLAGS, output="out.zarr", **changes):
        of_plan = {name: changes.pop(name) for name in names & changes.keys()}
        images = of_plan.pop("images", tmp_path / "y.npy")
        plan = plan_of(images, of_plan.pop("model", model), flags, **of_plan)
        return BatchRequest(plan, tmp_path / output, **changes)

    return request


def prepare(request):
    store, problem = plan_store(request)
    prepare_store(request, store, problem)
    return open_store(store.path)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": "huge"}, "The budget is one of preview, default, thorough, not 'huge'"),
        ({"chunk": 0}, "chunk is a whole number from 1 on, not 0"),
        ({"chunk": 2.5}, "chunk is a whole number"),
        ({"draws": -1}, "draws is a whole number from 0 on"),
        ({"workers": -1}, "workers is a whole number from 0 on"),
        ({"resume": True, "force": True}, "not both"),
        ({"workers": 2, "scheduler": "tcp://127.0.0.1:1"}, "leave out --workers"),
        ({"resize": "stretch"}, "crop or pad, not 'stretch'"),
        ({"model": "nothing"}, "There is no model 'nothing'"),
        ({"images": "nothing.npy"}, "There is no file nothing.npy"),
        ({"corrupt": True, "flags": {"noise": "auto"}}, "known level"),
        ({"flags": {"mask": "nothing.png"}}, "There is no file nothing.png"),
        ({"flags": {"noise": "nothing.npy"}}, "There is no file nothing.npy"),
        ({"chunk": 10**9}, "A chunk of 1000000000 images takes"),
        ({"output": "/"}, "/ is no place for a store"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_leaves_nothing(make, tmp_path, changes, words):
    before = contents(tmp_path)
    with pytest.raises(UserError, match=words) as caught:
        prepare(make(**changes))
    assert str(caught.value).count("\n") == 0
    assert contents(tmp_path) == before


def test_a_survey_none_of_which_makes_a_problem_is_refused(make, tmp_path, noisy):
    np.save(tmp_path / "small.npy", noisy[:, :3])
    with pytest.raises(UserError, match=r"small\.npy\[0\] has shape \(3, 8\).*--resize crop"):
        prepare(make(images=tmp_path / "small.npy"))
    bad = noisy.copy()
    bad[:3] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    assert prepare(make(images=tmp_path / "bad.npy")).images == 12


def test_no_more_than_memory_holds(make, monkeypatch):
    monkeypatch.setenv(VARIABLE, "20000")
    with pytest.raises(UserError, match=r"A chunk of 64 images .*--max-bytes"):
        prepare(make())
    assert prepare(make(chunk=2)).chunk == 2


def test_the_store_knows_what_made_it(make, tmp_path, model):
    store = prepare(make(command="latentuq batch y.npy", seed=7, chunk=5, draws=9))
    assert store.provenance == {
        "input": str(tmp_path / "y.npy"),
        "model": os.path.abspath(model),
        "command": "latentuq batch y.npy",
    }
    known = store.identity
    checksum = load_prior(model).card.checksum
    assert (known["model"], known["model checksum"], known["seed"]) == ("tiny", checksum, 7)
    assert (known["budget"], known["chunk"], known["draws"]) == ("preview", 5, 9)
    assert known["latentuq version"] == latentuq.__version__
    assert known["jax version"] == jax.__version__
    assert (store.layout.shape, store.layout.data_shape, store.layout.dim) == (SHAPE, SHAPE, 2)
    assert (store.images, store.chunk, store.layout.draws) == (12, 5, 9)


@pytest.mark.parametrize(
    ("flags", "changes", "noise", "truth"),
    [
        (FLAGS, {}, None, False),
        ({"noise": "auto"}, {}, (), False),
        ({"noise": "maps.npy"}, {}, ("data_row", "data_column"), False),
        ({"variance": "maps.npy"}, {}, ("data_row", "data_column"), False),
        ({"noise": "map.npy"}, {}, None, False),
        (FLAGS, {"corrupt": True}, None, True),
    ],
)
def test_what_differs_from_image_to_image_is_kept(
    make, tmp_path, noisy, flags, changes, noise, truth
):
    np.save(tmp_path / "maps.npy", np.full_like(noisy, 0.1))
    np.save(tmp_path / "map.npy", np.full(SHAPE, 0.1))
    named = {
        name: str(tmp_path / value) if value.endswith(".npy") else value
        for name, value in flags.items()
    }
    layout = prepare(make(named, **changes)).layout
    assert (layout.noise, layout.truth) == (noise, truth)


def test_a_store_that_exists_is_gone_on_with_or_replaced_only_if_asked(make, tmp_path):
    prepare(make())
    mark = tmp_path / "out.zarr" / "mark"
    mark.write_text("of the first")
    with pytest.raises(UserError, match=r"out\.zarr exists; --resume goes on with it, --force"):
        prepare(make())
    assert mark.exists()
    prepare(make(resume=True))
    assert mark.exists()
    prepare(make(force=True))
    assert not mark.exists()
    assert is_store(tmp_path / "out.zarr")


def test_resuming_nothing_begins(make):
    assert prepare(make(resume=True)).images == 12


@pytest.mark.parametrize("changes", [{}, {"resume": True}, {"force": True}])
def test_what_is_not_ours_is_never_touched(make, tmp_path, changes):
    folder = tmp_path / "out.zarr"
    folder.mkdir()
    (folder / "thesis.txt").write_text("ten years of work")
    before = contents(tmp_path)
    with pytest.raises(UserError, match="exists and is not a survey of latentuq: name another"):
        prepare(make(**changes))
    for output in ("y.npy", "."):
        with pytest.raises(UserError, match="is read from too: name another place"):
            prepare(make(output=output, **changes))
    assert contents(tmp_path) == before
    # A store of ours whose header is damaged is not known for one.
    (folder / "thesis.txt").unlink()
    folder.rmdir()
    prepare(make())
    (folder / "zarr.json").write_text("{")
    before = contents(tmp_path)
    with pytest.raises(UserError, match="is not a survey of latentuq"):
        prepare(make(**changes))
    assert contents(tmp_path) == before


def test_a_changed_survey_is_refused_with_what_has_changed(make, tmp_path, model, noisy):
    prepare(make())
    before = contents(tmp_path / "out.zarr")
    changed = noisy.copy()
    changed[11, 5, 7] += 1e-9
    np.save(tmp_path / "changed.npy", changed)
    prior = load_prior(model)
    scale = dataclasses.replace(prior.scaling, scale=2.0)
    save_prior(tmp_path / "other.safetensors", dataclasses.replace(prior, scaling=scale))
    for changes, words in (
        ({"seed": 1}, "seed was 0 and is 1 now"),
        ({"budget": "default"}, "budget was preview and is default now"),
        ({"chunk": 8}, "chunk was 64 and is 8 now"),
        ({"draws": 8}, "draws was 128 and is 8 now"),
        ({"corrupt": True}, "corrupt was False and is True now"),
        ({"resize": "pad"}, "resize was None and is pad now"),
        ({"flags": FLAGS | {"noise": "0.2"}}, r"noise was {'std': 0\.1} and is {'std': 0\.2} now"),
        ({"flags": {"noise": "0.1"}}, r"operators was .*columns:4-5.* and is .*gain.* now"),
        ({"flags": FLAGS | {"scale": 2.0}}, r"units was .*None.* and is .*2\.0"),
        ({"images": tmp_path / "changed.npy"}, r"images was [0-9a-f]{64} and is [0-9a-f]{64} now"),
        ({"model": str(tmp_path / "other.safetensors")}, r"model units was .*1.0.* and is .*2\.0"),
    ):
        with pytest.raises(UserError, match=words) as caught:
            prepare(make(**changes, resume=True))
        text = str(caught.value)
        assert text.count(" now") == 1, "nothing else has changed"
        assert "cannot be resumed" in text
        assert text.endswith("Begin anew with --force, or name another place.")
    assert contents(tmp_path / "out.zarr") == before
    # A copy of the images elsewhere, and more workers, change no result.
    np.save(tmp_path / "copy.npy", noisy)
    prepare(make(images=tmp_path / "copy.npy", workers=7, command="other", resume=True))


def test_another_version_is_refused(make, monkeypatch):
    prepare(make())
    monkeypatch.setattr(latentuq, "__version__", "9.9")
    with pytest.raises(UserError, match=r"latentuq version was .* and is 9\.9 now"):
        prepare(make(resume=True))
    monkeypatch.undo()
    monkeypatch.setattr(np, "__version__", "9.9")
    with pytest.raises(UserError, match=r"numpy version was .* and is 9\.9 now"):
        prepare(make(resume=True))
