"""The store: xarray reads it, markers say what is finished, damage is a sentence."""

import dataclasses
import errno
import json
import os
from collections import Counter

import numpy as np
import pytest
import xarray
import zarr

from exact_posteriors import make_problem
from latentuq.core.errors import UserError
from latentuq.problem.specification import Specification
from latentuq.survey.layout import FAILED, LEVELS, RELIABLE, STATUSES, Layout
from latentuq.survey.rows import error_row, fill_row
from latentuq.survey.store import Store, create_store, is_store, open_store, read_problem
from surveys import load

LAYOUT = Layout((6, 5), (6, 5), 3, draws=4, noise=(), truth=True)
IMAGES, CHUNK = 7, 3


@pytest.fixture(scope="module")
def problem():
    return make_problem()


@pytest.fixture
def store(tmp_path, problem):
    found = Store(tmp_path / "a.zarr", LAYOUT, IMAGES, CHUNK, {"seed": 3}, {"input": "y.npy"})
    create_store(found, problem)
    return found


def a_row(image):
    """A row that tells its image from all others, wherever one looks."""
    variables = LAYOUT.variables.items()
    row = {name: image + 1 for name, each in variables if each.dtype is not str}
    return fill_row(LAYOUT, row | {"name": f"image {image}", "status": RELIABLE})


def write(store, *chunks):
    for chunk in chunks:
        rows = [a_row(image) for image in store.members(chunk)]
        store.write(chunk, rows, {status: len(rows) * (status == RELIABLE) for status in STATUSES})


def test_an_empty_store_is_complete(store, problem):
    found = load(store.path)
    assert set(found) | {"quantile"} == set(LAYOUT.variables) | {"quantile"}
    assert dict(found.sizes) == {"image": IMAGES, **LAYOUT.sizes}
    np.testing.assert_array_equal(found["quantile"], LEVELS)
    assert (found["status"] == "").all()
    assert np.isnan(found["mean"]).all()
    assert (found["map_index"] == -1).all()
    assert store.finished() == {}
    assert [path.name for path in store.path.parent.iterdir()] == ["a.zarr"]
    again = open_store(store.path)
    assert dataclasses.asdict(again) == dataclasses.asdict(store)
    text, arrays = read_problem(again)
    stated = Specification.from_toml(text, arrays.__getitem__)
    np.testing.assert_array_equal(stated.y, np.float64(problem.y))


def test_chunks_are_written_where_they_belong(store):
    write(store, 2, 0)
    found = load(store.path)
    expected = [1, 2, 3, np.nan, np.nan, np.nan, 7]
    for name in ("mean", "u", "log_evidence", "quantiles", "noise_std"):
        for values in found[name].values.reshape(IMAGES, -1).T:
            np.testing.assert_array_equal(values, expected)
    assert [*found["name"].values] == ["image 0", "image 1", "image 2", "", "", "", "image 6"]
    assert store.finished() == {
        0: {RELIABLE: 3, "unreliable": 0, FAILED: 0},
        2: {RELIABLE: 1, "unreliable": 0, FAILED: 0},
    }
    row = store.row(6)
    assert (row["name"], float(row["surprise"]), row["mean"].shape) == ("image 6", 7, (6, 5))
    np.testing.assert_array_equal(store.column("ess"), expected)


def test_other_programs_see_how_it_is_divided(store):
    """Every chunk of an array is one region of images: workers never write to the same file."""
    group = zarr.open_group(str(store.path), mode="r")
    for name, variable in LAYOUT.variables.items():
        array = group[name]
        assert array.chunks[0] == CHUNK
        assert array.chunks[1:] == tuple(max(length, 1) for length in variable.shape)
        assert array.shards is None
        assert array.metadata.dimension_names == ("image", *variable.axes)


def test_texts_of_any_length_are_kept(store):
    rows = [error_row(LAYOUT, f"ü{place}", place * 5000 * "χ² ") for place in range(3)]
    store.write(0, rows, {FAILED: 3})
    assert [*load(store.path)["error"].values[:3]] == [row["error"] for row in rows]


def test_a_marker_alone_says_that_a_chunk_is_finished(store):
    write(store, 0, 1)
    store.marker(0).unlink()
    assert [*store.finished()] == [1]
    # What a killed process was writing is no marker yet.
    (store.run / ".00000002.123-0a1b2c3d.done").write_text('{"rel')
    assert [*store.finished()] == [1]


@pytest.mark.parametrize(
    "content", ["", '{"reliable": 3', "5", "null", "[3]", '{"reliable": 2}', '{"reliable": "x"}']
)
def test_a_damaged_marker_is_one_sentence(store, content):
    write(store, 0)
    store.marker(0).write_text(content)
    with pytest.raises(UserError, match=r"00000000\.done is damaged: remove it, and --resume"):
        store.finished()


def test_the_marker_is_written_last(store, monkeypatch):
    """Whatever is refused on the way to the disk, no marker claims that it is there."""
    rows = [a_row(image) for image in store.members(0)]

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(UserError, match=r"Cannot write .*a\.zarr: no space left on device"):
            store.write(0, rows, {RELIABLE: 3})
    assert store.finished() == {}
    assert not list(store.run.iterdir())
    store.write(0, rows, {RELIABLE: 3})
    assert [*store.finished()] == [0]


def test_a_store_is_made_whole_or_not_at_all(tmp_path, problem, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zarr, "consolidate_metadata", refuse)
    new = Store(tmp_path / "a.zarr", LAYOUT, IMAGES, CHUNK, {}, {})
    with pytest.raises(UserError, match=r"Cannot write .*a\.zarr: no space left on device\."):
        create_store(new, problem)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    left = tmp_path / ".a.zarr.latentuq-new"
    left.mkdir()
    (left / "half").write_text("of a killed run")
    create_store(new, problem)
    assert not left.exists()
    assert is_store(tmp_path / "a.zarr")


def damage_header(store, change):
    path = store.path / "zarr.json"
    header = json.loads(path.read_text())
    change(header["attributes"])
    path.write_text(json.dumps(header))


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_what_is_no_store_of_ours_is_one_sentence(store, tmp_path):
    (tmp_path / "folder").mkdir()
    zarr.open_group(str(tmp_path / "other.zarr"), mode="w").attrs["kind"] = "another"
    xarray.Dataset({"x": ("a", [1.0])}).to_zarr(str(tmp_path / "plain.zarr"), zarr_format=3)
    header = store.path / "zarr.json"
    header.write_text(header.read_text()[:-40])
    with pytest.raises(UserError, match=r"There is no folder .*missing\."):
        open_store(tmp_path / "missing")
    for name in ("folder", "other.zarr", "plain.zarr", "a.zarr"):
        assert not is_store(tmp_path / name)
        with pytest.raises(UserError, match=f"{name} is not a store that latentuq batch has made"):
            open_store(tmp_path / name)


@pytest.mark.parametrize("name", ["layout", "images", "chunk", "identity", "provenance", "format"])
def test_a_header_that_lacks_something_is_one_sentence(store, name):
    damage_header(store, lambda attributes: attributes.pop(name))
    with pytest.raises(UserError, match=rf"a\.zarr is damaged: '{name}'\."):
        open_store(store.path)


def test_a_header_of_another_version_is_one_sentence(store):
    damage_header(store, lambda attributes: attributes.update(format=99))
    with pytest.raises(UserError, match=r"has format 99; this latentuq reads 1\."):
        open_store(store.path)
    damage_header(store, lambda attributes: attributes.update(format=1, layout='{"shape": [6, 5]}'))
    with pytest.raises(UserError, match=r"a\.zarr is damaged: .*missing"):
        open_store(store.path)


def test_damaged_arrays_are_one_sentence(store):
    write(store, 0)
    (store.path / "mean" / "c" / "0" / "0" / "0").write_bytes(b"nonsense")
    again = open_store(store.path)
    for read in (lambda: again.row(1), lambda: again.column("mean")):
        with pytest.raises(UserError, match=r"a\.zarr is damaged: "):
            read()
    assert Counter(again.column("status")) == {RELIABLE: 3, "": 4}
    for path in (store.path / "problem").rglob("zarr.json"):
        path.write_text("nonsense")
    with pytest.raises(UserError, match=r"a\.zarr is damaged: "):
        read_problem(again)
