"""A whole survey in this process: images of all kinds, bad ones, and runs that end early."""

import json
import logging
import math
import resource
import sys
import warnings
from collections import Counter
from concurrent.futures import Future
from contextlib import contextmanager

import numpy as np
import pytest
import xarray
import zarr
from astropy.io import fits

from latentuq.core.errors import UserError
from latentuq.core.files import exclusive
from latentuq.posterior.noise_level import NoiseLevel
from latentuq.survey import run as running
from latentuq.survey.layout import FAILED, STATUSES
from latentuq.survey.run import RESUMABLE, Tally
from latentuq.survey.store import open_store
from own_files import write_image
from surveys import FLAGS, SHAPE, assert_same, load, plan_of, run


@pytest.fixture(scope="module")
def clean(tiny_images):
    return np.asarray(tiny_images.train[:5], np.float64)


@pytest.fixture
def images(tmp_path, noisy):
    np.save(tmp_path / "y.npy", noisy)
    return tmp_path / "y.npy"


def write_folder(folder, pictures):
    folder.mkdir()
    for name, picture in pictures.items():
        write_image(folder / name, picture)


def write_fits(path, array):
    fits.PrimaryHDU(array).writeto(path)


WRITERS = {
    "a.npy": np.save,
    "a.npz": lambda path, array: np.savez(path, image=array),
    "a.fits": write_fits,
    "a.nc": lambda path, array: xarray.Dataset({"flux": (("n", "y", "x"), array)}).to_netcdf(path),
    "a.zarr": lambda path, array: zarr.create_array(str(path), data=array, chunks=(4, *SHAPE)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_arrays_of_every_kind_give_the_same(tmp_path, model, noisy, images, quick, name):
    WRITERS[name](tmp_path / name, noisy[:5])
    np.save(tmp_path / "first.npy", noisy[:5])
    run(plan_of(tmp_path / "first.npy", model), tmp_path / "first.zarr")
    run(plan_of(tmp_path / name, model), tmp_path / "out.zarr")
    first, found = load(tmp_path / "first.zarr"), load(tmp_path / "out.zarr")
    assert [*found["name"].values] == [f"{name}[{image}]" for image in range(5)]
    assert_same(first.drop_vars("name"), found.drop_vars("name"))
    np.testing.assert_array_equal(found["y"][:, :, :4], np.float32(noisy[:5, :, :4]))
    assert np.isnan(found["y"][:, :, 4:6]).all()


def test_a_folder_of_pictures_some_of_which_are_bad(tmp_path, model, clean, quick, recwarn):
    eight, sixteen = (np.rint(white * np.clip(clean, 0, 1)) for white in (255, 65535))
    colour = np.stack([eight[3], eight[3], 255 - eight[3]], -1)
    pictures = {
        "a.png": eight[0].astype(np.uint8),
        "b.png": sixteen[1].astype(np.uint16),
        "d.png": eight[2, :3].astype(np.uint8),
        "e.png": colour.astype(np.uint8),
        b"caf\xe9.png".decode("utf-8", "surrogateescape"): eight[4].astype(np.uint8),
    }
    write_folder(tmp_path / "sky", pictures)
    (tmp_path / "sky" / "c.png").write_text("no picture")
    flags = {"mask": "columns:4-5", "noise": "25"}
    run(plan_of(tmp_path / "sky", model, flags), tmp_path / "out.zarr")
    found = load(tmp_path / "out.zarr")
    assert [*found["name"].values] == [
        "a.png",
        "b.png",
        "c.png",
        r"caf\udce9.png",
        "d.png",
        "e.png",
    ]
    failed = found["status"].values == FAILED
    assert [*failed] == [False, False, True, False, True, False]
    assert "c.png as an image" in found["error"].values[2]
    assert "(3, 8)" in found["error"].values[4]
    assert "--resize crop" in found["error"].values[4]
    assert found["notes"].values[5].endswith("e.png has colour or transparency: reduced to grey.")
    # In the workers, a hundred thousand photos must not write a hundred thousand lines.
    assert not [each for each in recwarn if "colour" in str(each.message)]
    # The same number is another noise where white is another number.
    np.testing.assert_allclose(
        found["noise_std"].values[~failed], np.float32([25 / 255, 25 / 65535, 25 / 255, 25 / 255])
    )
    np.testing.assert_array_equal(found["scale"].values[~failed], [255, 65535, 255, 255])


def test_pictures_are_resized_if_that_is_asked_for(tmp_path, model, clean, quick):
    large = np.kron(clean[1], np.ones((2, 2)))
    pictures = {"a.npy.tif": np.float32(clean[0]), "b.tif": np.float32(large)}
    write_folder(tmp_path / "sky", pictures)
    run(plan_of(tmp_path / "sky", model, resize="pad"), tmp_path / "out.zarr")
    found = load(tmp_path / "out.zarr")
    assert not (found["status"] == FAILED).any()
    assert found["notes"].values[0] == ""
    assert "was resized from 12x16 to 6x8 pixels" in found["notes"].values[1]
    np.testing.assert_allclose(found["y"][1, :, :4], np.float32(clean[1][:, :4]), atol=1e-6)


def test_bad_images_are_rows_with_a_sentence(tmp_path, model, noisy, quick):
    bad, masks = noisy.copy(), np.ones((12, *SHAPE), np.uint8)
    bad[1], bad[2], bad[3] = np.nan, np.inf, 1000 * bad[3]
    bad[4, 0, 0] = -np.inf
    bad[5, :3], masks[5, 3:] = np.nan, 0
    masks[6] = 0
    bad[7, 0] = np.nan
    masks[8, :2] = 0
    np.save(tmp_path / "bad.npy", bad)
    np.save(tmp_path / "masks.npy", masks)
    flags = {"mask": str(tmp_path / "masks.npy"), "noise": "0.1"}
    store = run(plan_of(tmp_path / "bad.npy", model, flags), tmp_path / "out.zarr", chunk=5)
    found = load(tmp_path / "out.zarr")
    sentences = {
        1: "The image holds nothing but missing pixels (NaN).",
        2: "The image holds infinite values; mark missing pixels by NaN.",
        3: "say what they are with --offset BLACK --scale WHITE-MINUS-BLACK",
        4: "The image holds infinite values",
        5: r"The mask of bad.npy[5] hides all that there is of it.",
        6: r"The mask of bad.npy[6] hides all that there is of it.",
    }
    failed = np.flatnonzero(found["status"].values == FAILED)
    assert [*failed] == [*sentences]
    for image, sentence in sentences.items():
        assert sentence in found["error"].values[image]
        assert found["error"].values[image].endswith(".")
        assert found["verdict"].values[image] == ""
    assert not found["error"].values[[0, *range(7, 12)]].astype(bool).any()
    counts = Counter[str]()
    for each in store.finished().values():
        counts.update(each)
    assert counts == Counter(found["status"].values) | Counter(dict.fromkeys(STATUSES, 0))
    np.testing.assert_array_equal(np.isnan(found["y"][7]), np.isnan(bad[7]))
    np.testing.assert_array_equal(np.isnan(found["y"][8]), masks[8] == 0)
    solved = found.isel(image=[0, *range(7, 12)])
    assert (solved["verdict"].astype(bool)).all()
    assert solved["weights"].sum("mode").max() <= 1 + 1e-6
    assert np.isnan(found["mean"][failed]).all()


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("corrupt", [False, True])
def test_noise_may_be_shared_or_not(tmp_path, model, clean, quick, own, corrupt):
    maps = np.linspace(0.05, 0.2, 5)[:, None, None] * np.ones((5, *SHAPE))
    np.save(tmp_path / "maps.npy", maps if own else maps[2])
    np.save(tmp_path / "y.npy", clean)
    flags = {"mask": "columns:4-5", "noise": str(tmp_path / "maps.npy")}
    run(plan_of(tmp_path / "y.npy", model, flags, corrupt=corrupt), tmp_path / "out.zarr")
    found = load(tmp_path / "out.zarr")
    assert not (found["status"] == FAILED).any()
    assert ("noise_std" in found) == own
    if own:
        np.testing.assert_array_equal(found["noise_std"], np.float32(maps))
    assert ("truth" in found) == corrupt
    seen = np.float64(found["y"].values[:, :, [0, 1, 2, 3, 6, 7]]) - clean[:, :, [0, 1, 2, 3, 6, 7]]
    if not corrupt:
        np.testing.assert_allclose(seen, 0, atol=1e-6)
        return
    np.testing.assert_array_equal(found["truth"], np.float32(clean))
    levels = maps[:, 0, 0] if own else maps[[2] * 5, 0, 0]
    # A standard deviation of 36 normal numbers has a relative error of 1 / sqrt(72).
    assert np.all(np.abs(seen.std(axis=(1, 2)) / levels - 1) < 5 / math.sqrt(72))
    assert len(np.unique(seen / levels[:, None, None])) == seen.size, "each has noise of its own"


def test_noise_is_estimated_for_each_image(tmp_path, model, images, quick, monkeypatch):
    levels = iter([0.25, 0.125] * 6)

    def estimate(*_):
        level = next(levels)
        return NoiseLevel(level, level / 2, 2 * level, np.ones(2), np.zeros(2))

    monkeypatch.setattr("latentuq.app.solving.estimate_noise", estimate)
    run(plan_of(images, model, FLAGS | {"noise": "auto"}), tmp_path / "out.zarr")
    found = load(tmp_path / "out.zarr")
    assert [*found["noise_std"].values] == [0.25, 0.125] * 6
    assert found["noise_std"].dims == ("image",)


def test_without_draws_less_is_kept(tmp_path, model, images, quick):
    run(plan_of(images, model), tmp_path / "out.zarr", draws=0)
    run(plan_of(images, model), tmp_path / "more.zarr")
    found, more = load(tmp_path / "out.zarr"), load(tmp_path / "more.zarr")
    assert set(more) - set(found) == {
        "u", "u_modes", "means", "factors", "search_log_densities", "search_modes"
    }  # fmt: skip
    assert_same(found, more[[*found]])


def test_what_is_kept_of_an_image_is_its_posterior(tmp_path, model, images, noisy, quick, answer):
    run(plan_of(images, model), tmp_path / "out.zarr")
    found = load(tmp_path / "out.zarr")
    assert json.loads(found.attrs["provenance"])["input"] == str(images)
    assert json.loads(found.attrs["identity"])["seed"] == 0
    for image in (0, 11):
        kept = min(len(answer.weights), 8)
        np.testing.assert_array_equal(found["weights"][image, :kept], answer.weights[:kept])
        assert np.isnan(found["weights"][image, kept:]).all()
        assert found["verdict"].values[image] == str(answer.verdict)
        assert json.loads(found["verdict_json"].values[image]) == answer.verdict.to_json()
    levels = [np.mean(found["quantiles"][:, place] <= found["mean"]) for place in (0, 4)]
    assert levels[0] > 0.95 > 0.05 > levels[1]


def test_progress_counts_every_image_once(tmp_path, model, images, quick):
    told = []
    run(plan_of(images, model), tmp_path / "out.zarr", told.append, chunk=5)
    assert told[0].doing == "Reading the survey."
    assert told[-1].doing == "Writing the page."
    assert (told[-1].done, told[-1].images) == (12, 12)
    done = [tally.done for tally in told]
    assert done == sorted(done)
    assert {5, 10} <= set(done) or done[-1] == 12
    seconds = [tally.seconds for tally in told]
    assert seconds == sorted(seconds)
    for tally in told:
        assert json.loads(json.dumps(tally.to_json(), allow_nan=False))["done"] == tally.done
    counted = Counter(load(tmp_path / "out.zarr")["status"].values)
    assert Counter(told[-1].counts) == counted | Counter(dict.fromkeys(STATUSES, 0))
    assert (tmp_path / "out.zarr" / "summary.html").stat().st_size > 10_000
    assert not (tmp_path / "out.zarr" / ".run" / "owner").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.zarr", "y.npy"]


def test_a_tally_reads_well():
    counts = {"reliable": 1200, "unreliable": 30, "failed": 4}
    tally = Tally("Solving.", 5000, counts, 100.0, 12.34)
    text = (
        "1,234 of 5,000 images, 12 per second, 5 min left: 1,200 reliable, 30 unreliable, 4 failed"
    )
    assert str(tally) == text
    assert tally.to_json() == {
        "message": "Solving.", "images": 5000, "done": 1234, **counts, "seconds": 100.0,
        "rate": 12.34, "seconds_left": 305.186,
    }  # fmt: skip
    unknown = tally._replace(rate=math.nan)
    assert str(unknown).startswith("1,234 of 5,000 images: ")
    assert (unknown.to_json()["rate"], unknown.to_json()["seconds_left"]) == (None, None)
    assert str(Tally("Reading the survey.")) == "Reading the survey"


def interrupted(plan, output, after, **changes):
    """Runs until some chunks are finished, and interrupts."""

    def listen(_):
        if len([*(output / ".run").glob("[0-9]*.done")]) >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan, output, listen, **changes)


@pytest.mark.slow
def test_an_interrupted_run_is_gone_on_with(tmp_path, model, images, quick):
    plan, out = plan_of(images, model), tmp_path / "out.zarr"
    run(plan, tmp_path / "clean.zarr", chunk=2)
    interrupted(plan, out, 2, chunk=2)
    store = open_store(out)
    finished = store.finished()
    assert 2 <= len(finished) < 6
    assert not (store.run / "owner").exists()
    half = load(out)
    assert {*half["status"].values} > {""}
    # A chunk without a marker is solved anew, though its arrays are there; others are not.
    kept, undone = [*finished][:2]
    store.marker(undone).unlink()
    group = zarr.open_group(str(out), mode="r+")
    for chunk in (undone, kept):
        group["log_evidence"][store.members(chunk).start] = 1e6
    told = []
    run(plan, out, told.append, chunk=2, resume=True)
    found, whole = load(out), load(tmp_path / "clean.zarr")
    assert found["log_evidence"].values[store.members(kept).start] == 1e6
    others = [image for image in range(12) if image != store.members(kept).start]
    assert_same(whole, found, others)
    assert next(tally.done for tally in told if tally.images) == 2 * (len(finished) - 1)
    # There is nothing left to do but the page.
    told.clear()
    run(plan, out, told.append, chunk=2, resume=True)
    assert [tally.doing for tally in told] == ["Reading the survey.", "Writing the page."]
    run(plan, out, chunk=2, force=True)
    assert_same(whole, load(out))


def test_two_runs_on_one_output_refuse_each_other(tmp_path, model, images, quick):
    out = tmp_path / "out.zarr"
    with exclusive(out), pytest.raises(UserError, match=r"Another process is writing .*out\.zarr"):
        run(plan_of(images, model), out)
    assert not out.exists()
    run(plan_of(images, model), out)
    (tmp_path / "link.zarr").symlink_to(out)
    for changes in ({"resume": True}, {"force": True}):
        with exclusive(out), pytest.raises(UserError, match="Another process is writing"):
            run(plan_of(images, model), tmp_path / "link.zarr", **changes)
    assert len(open_store(out).finished()) == 1


@contextmanager
def largest_file(size):
    """Files may not grow beyond a size, as on a disk that is full or a quota that is used up."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draws", "size", "words"),
    [
        (20_000, 30_000, rf"Cannot write .*out\.zarr: file too large\. {RESUMABLE}$"),
        (8, 100_000, r"Cannot write .*summary\.html: file too large\."),
    ],
)
def test_a_full_disk_is_one_sentence_and_can_be_gone_on_from(
    tmp_path, model, images, quick, draws, size, words
):
    plan, out, sizes = plan_of(images, model), tmp_path / "out.zarr", {"draws": draws, "chunk": 5}
    interrupted(plan, out, 1, **sizes)
    before = len(open_store(out).finished())
    with largest_file(size), pytest.raises(UserError, match=words):
        run(plan, out, resume=True, **sizes)
    assert len(open_store(out).finished()) == (before if draws > 8 else 3)
    assert not [*tmp_path.rglob("*.partial"), *tmp_path.rglob(".*.html")]
    run(plan, out, resume=True, **sizes)
    run(plan, tmp_path / "clean.zarr", **sizes)
    assert_same(load(out), load(tmp_path / "clean.zarr"))


def test_a_disk_that_is_full_from_the_beginning_keeps_nothing(tmp_path, model, images, quick):
    with (
        largest_file(10_000),
        pytest.raises(UserError, match=r"Cannot write .*out\.zarr: file too"),
    ):
        run(plan_of(images, model), tmp_path / "out.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["y.npy"]


@pytest.mark.parametrize(
    ("package", "workers", "words"),
    [
        ("zarr", 0, r"A survey needs Zarr and Dask: .*pip install latentuq\[batch\]\."),
        ("distributed", 1, r"Workers need Dask: .*pip install latentuq\[batch\], or .*--workers 0"),
    ],
)
def test_packages_that_are_missing_are_one_sentence(
    tmp_path, model, images, quick, monkeypatch, package, workers, words
):
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, package, None)
        with pytest.raises(UserError, match=words):
            run(plan_of(images, model), tmp_path / "out.zarr", workers=workers)
    run(plan_of(images, model), tmp_path / "out.zarr", resume=True)


class KilledWorker(Exception):  # noqa: N818 - Dask calls it so.
    """What Dask says when workers have died."""


def failed(error):
    future = Future()
    future.set_exception(error)
    return future


def test_what_becomes_of_a_chunk_that_failed(tmp_path, model, images, quick):
    store, kills = run(plan_of(images, model), tmp_path / "out.zarr", chunk=5), Counter()
    done = Future()
    done.set_result(None)
    assert not running._was_killed(store, 0, done, kills)
    with pytest.raises(UserError, match=rf"Disk full\. {RESUMABLE}"):
        running._was_killed(store, 0, failed(UserError("Disk full.")), kills)
    with pytest.raises(UserError, match=r"Chunk 2 failed: ValueError: odd\."):
        running._was_killed(store, 2, failed(ValueError("odd")), kills)
    gone = Future()
    gone.cancel()
    with pytest.raises(UserError, match=rf"scheduler is gone.*{RESUMABLE}"):
        running._was_killed(store, 0, gone, kills)
    assert not kills
    for _ in range(3):
        assert running._was_killed(store, 1, failed(KilledWorker()), kills)
    with pytest.raises(UserError, match="lack of memory"):
        running._was_killed(store, 1, failed(KilledWorker()), kills)
    # Where an image has been begun, each try gives up one image at least.
    running.progress_path(store, 2).write_text('{"image": 10}')
    for _ in range(3 + 2):
        assert running._was_killed(store, 2, failed(KilledWorker()), kills)
    with pytest.raises(UserError, match="lack of memory"):
        running._was_killed(store, 2, failed(KilledWorker()), kills)


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:9", "nonsense://127.0.0.1:9", "127.0.0.1", "tcp://", ""]
)
def test_a_scheduler_that_is_not_there_is_one_sentence(
    tmp_path, model, images, quick, monkeypatch, address
):
    monkeypatch.setattr(running, "_PATIENCE", 1)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UserError, match=f"There is no scheduler at {address}: ") as caught:
            run(plan_of(images, model), tmp_path / "out.zarr", workers=None, scheduler=address)
    assert "\n" not in str(caught.value)
    run(plan_of(images, model), tmp_path / "out.zarr", resume=True)
