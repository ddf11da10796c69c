"""What a worker does with a chunk: deaths are counted, other runs left alone."""

import dataclasses
import json
import secrets
from pathlib import Path

import jax
import numpy as np
import pytest

import latentuq as lu
from latentuq.core.errors import UserError
from latentuq.problem.specification import Specification
from latentuq.survey import work
from latentuq.survey.layout import FAILED
from latentuq.survey.prepare import BatchRequest, plan_store, prepare_store
from latentuq.survey.store import open_store
from latentuq.survey.work import (
    MOST_DEATHS,
    Job,
    Plan,
    Progress,
    begin_run,
    end_run,
    progress_path,
    read_progress,
    solve_chunk,
)
from surveys import FLAGS, assert_same, load, plan_of


@pytest.fixture
def begin(tmp_path, model, noisy):
    """Makes a store and begins a run on it; returns its job."""
    np.save(tmp_path / "y.npy", noisy)

    def make(output="out.zarr", token=None, images=None, **changes):
        plan = plan_of(images or tmp_path / "y.npy", model)
        request = BatchRequest(plan, tmp_path / output, **({"chunk": 4} | changes))
        prepare_store(request, *plan_store(request))
        store = open_store(tmp_path / output)
        token = token or secrets.token_hex(4)  # A process remembers the last run by its token.
        begin_run(store, token)
        return Job(plan, str(store.path), token), store

    return make


def die(path, token, image):
    """Does what a process does that is killed by an image."""
    Progress(path, token).begin(image)


def test_deaths_are_those_of_this_run(tmp_path):
    path = tmp_path / "1.now"
    for _ in range(2):
        die(path, "a", 7)
    die(path, "a", 8)
    found = Progress(path, "a")
    assert found.deaths == {7: 2, 8: 1}
    assert Progress(path, "b").deaths == {}
    found.counts["reliable"] += 3
    found.begin(9)
    assert read_progress(path) == {
        "token": "a", "image": 9, "deaths": {"7": 2, "8": 1}, "counts": {"reliable": 3}
    }  # fmt: skip
    assert [each.name for each in tmp_path.iterdir()] == ["1.now"]


def test_progress_that_cannot_be_read_is_none(tmp_path):
    assert read_progress(tmp_path / "missing") == {}
    (tmp_path / "half").write_text('{"tok')
    assert read_progress(tmp_path / "half") == {}
    assert Progress(tmp_path / "half", "a").deaths == {}


def test_progress_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match=r"Cannot write .*1\.now: no such file"):
        Progress(tmp_path / "missing" / "1.now", "a").begin(0)


def test_an_image_of_which_processes_die_is_given_up(begin, quick):
    job, store = begin()
    path = progress_path(store, 1)
    for image, times in ((5, MOST_DEATHS), (6, MOST_DEATHS - 1)):
        for _ in range(times):
            die(path, job.token, image)
    solve_chunk(job, 1)
    found = load(store.path)
    assert found["error"].values[5] == f"Its process died {MOST_DEATHS} times while it was solved."
    assert [*(found["status"].values[4:8] == FAILED)] == [False, True, False, False]
    assert not path.exists()
    assert store.finished()[1][FAILED] == 1


def test_what_a_process_has_died_of_comes_first(begin, quick, monkeypatch):
    job, store = begin()
    die(progress_path(store, 0), job.token, 2)
    seen, begin_image = [], Progress.begin

    def watch(progress, image):
        seen.append((image, sum(progress.counts.values())))
        begin_image(progress, image)

    monkeypatch.setattr(Progress, "begin", watch)
    solve_chunk(job, 0)
    assert seen == [(2, 0), (0, 1), (1, 2), (3, 3)]


def test_a_run_that_has_ended_writes_no_more(begin, quick):
    job, store = begin()
    solve_chunk(job, 0)
    begin_run(store, "another")
    with pytest.raises(UserError, match="has ended"):
        solve_chunk(job, 1)
    end_run(store)
    with pytest.raises(UserError, match="has ended"):
        solve_chunk(job, 1)
    assert [*store.finished()] == [0]


def test_a_new_run_clears_what_killed_ones_have_left(begin, quick):
    job, store = begin()
    solve_chunk(job, 0)
    (store.run / ".00000001.12-0a1b2c3d.done").write_text("half")
    (store.run / "00000001.now").write_text("{}")
    (store.run / "00000001.tmp").write_text("half")
    (store.path / "mean" / "c" / "0" / "0" / "0.12.partial").write_text("half")
    begin_run(store, "next")
    assert sorted(each.name for each in store.run.iterdir()) == ["00000000.done", "owner"]
    assert not list(store.path.rglob("*.partial"))


def test_images_that_have_come_or_gone_are_noticed(begin, quick, tmp_path, noisy):
    job, _ = begin()
    np.save(tmp_path / "y.npy", noisy[:-1])
    with pytest.raises(UserError, match="holds 11 images now, but 12 when the run began"):
        solve_chunk(job, 0)


def test_anything_at_all_is_a_sentence_in_its_row(begin, monkeypatch, quick):
    def fail(*_, **__):
        raise ZeroDivisionError("of all things\nin two lines")

    job, store = begin()
    monkeypatch.setattr("latentuq.app.solving.solve", fail)
    solve_chunk(job, 2)
    assert set(load(store.path)["error"].values[8:]) == {
        r"Unexpected failure: ZeroDivisionError: of all things\nin two lines"
    }


def test_a_plan_holds_in_any_folder(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    np.save("m.npy", np.ones((6, 8)))
    flags = {"mask": "m.npy", "noise": "map.npy", "quality": "q.fits[DQ]"}
    plan = Plan("images/y.npz[a]", Specification.from_flags(flags), "tiny.safetensors").absolute()
    assert (plan.images, plan.model) == (
        str(tmp_path / "images" / "y.npz[a]"), str(tmp_path / "tiny.safetensors")
    )  # fmt: skip
    assert plan.specification.operators == [
        {"kind": "mask", "mask": tmp_path / "m.npy"},
        {"kind": "quality", "flags": tmp_path / "q.fits[DQ]"},
    ]
    assert plan.specification.noise == {"std": tmp_path / "map.npy"}
    stated = dataclasses.replace(Specification.from_flags(FLAGS), prior="a/b.safetensors")
    plan = Plan("y.npy", stated).absolute()
    assert plan.specification.prior == str(tmp_path / "a" / "b.safetensors")
    assert plan.specification.operators == stated.operators
    assert Plan("y.npy", Specification(), "mnist").absolute().model == "mnist"
    assert Plan("y.npy", Specification()).absolute().model is None


def test_the_key_of_an_image_depends_on_its_number_alone():
    key = Plan("y.npy", Specification(), seed=3).key(5)
    expected = jax.random.fold_in(jax.random.key(3), 5)
    assert np.array_equal(jax.random.key_data(key), jax.random.key_data(expected))


@pytest.mark.slow
def test_a_worker_makes_what_images_share_once(begin, monkeypatch, noisy, tmp_path):
    """Neither priors nor problems nor programs grow in number after the first images."""
    made = {"prior": 0, "problem": 0}

    def count(name, function):
        def call(*args, **kwargs):
            made[name] += 1
            return function(*args, **kwargs)

        return call

    job, store = begin()
    monkeypatch.setattr(work, "choose_prior", count("prior", work.choose_prior))
    target = "latentuq.app.solving.InverseProblem"
    monkeypatch.setattr(target, count("problem", lu.InverseProblem))
    compiled = []

    def note(event, *_, **details):
        if "backend_compile" in event:
            compiled.append(details)

    jax.monitoring.register_event_duration_secs_listener(note)
    for chunk in store.chunks:
        solve_chunk(job, chunk)
        if chunk == 0:
            compiled.clear()
    assert made == {"prior": 1, "problem": 1}
    assert not compiled, "four images need all the programs that there are"
    assert len(store.finished()) == 3


@pytest.mark.slow
def test_results_depend_on_seed_and_number_alone(begin, tmp_path, noisy):
    """Not on the size of chunks, nor their order, nor on other images, that may fail."""
    good = noisy[:5].copy()
    good[4, 0, :3] = np.nan  # Holes of its own: nothing to share with the others.
    bad = good.copy()
    bad[1], bad[2] = np.nan, np.inf
    np.save(tmp_path / "good.npy", good)
    np.save(tmp_path / "bad.npy", bad)
    found = {}
    for name, chunk, order in (("good", 64, 1), ("bad", 3, -1), ("good", 1, -1)):
        job, store = begin(
            f"{name}{chunk}.zarr", f"{name}{chunk}", tmp_path / f"{name}.npy", chunk=chunk
        )
        for each in [*store.chunks][::order]:
            solve_chunk(job, each)
        found[name, chunk] = load(store.path)
    assert_same(found["good", 64], found["good", 1])
    assert_same(found["good", 64].drop_vars("name"), found["bad", 3].drop_vars("name"), [0, 3, 4])
    assert [each == FAILED for each in found["bad", 3]["status"].values] == [
        False,
        True,
        True,
        False,
        False,
    ]
    # The images are told apart by their data, and by their keys as well.
    assert len(set(found["good", 64]["log_evidence"].values)) == 5
    twice = np.stack([noisy[0], noisy[0]])
    np.save(tmp_path / "twice.npy", twice)
    job, store = begin("twice.zarr", "twice", tmp_path / "twice.npy", chunk=2)
    solve_chunk(job, 0)
    same = load(store.path)
    np.testing.assert_array_equal(same["y"][0], same["y"][1])
    assert not np.array_equal(same["u"][0], same["u"][1])
    assert json.loads(Path(store.marker(0)).read_text())[FAILED] == 0
