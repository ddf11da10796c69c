"""Nothing is lost: processes are killed in the middle of a survey, which is then gone on with.

All commands here keep to one core, as their workers do: rounding depends on the number of cores.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from latentuq.survey.layout import FAILED
from latentuq.survey.run import RESUMABLE
from surveys import (
    assert_same,
    call,
    finish,
    kill_all,
    killed_at_the_end,
    load,
    members,
    noisy_images,
    start,
    wait_for,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

IMAGES = 10
SECONDS = 240  # However busy the machine may be.
GIVEN = ("--mask", "columns:4-5", "--noise", "0.1", "--budget", "preview", "--chunk", "1")


@pytest.fixture(scope="module", autouse=True)
def _one_core():
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, model, tiny_images):
    """A folder with a survey."""
    folder = tmp_path_factory.mktemp("faults")
    np.save(folder / "y.npy", noisy_images(tiny_images, IMAGES))
    (folder / "tiny.safetensors").write_bytes(Path(model).read_bytes())
    return folder


def survey(output, *arguments):
    return ("batch", "y.npy", "-o", output, "--model", "tiny.safetensors", *GIVEN, *arguments)


@pytest.fixture(scope="module")
def clean(folder):
    """What a run finds that nothing happens to."""
    code, _, err = call(folder, *survey("clean.zarr", "--workers", "0"), seconds=SECONDS)
    assert code == 0, err
    return load(folder / "clean.zarr")


def resume(folder, output):
    """Goes on, in one process of its own, and returns what has been found in the end."""
    arguments = survey(output, "--resume", "--workers", "0")
    code, _, err = call(folder, *arguments, seconds=SECONDS)
    assert code == 0, err
    assert not [*(folder / output).rglob("*.partial")]
    return load(folder / output)


def finished(store):
    return len([*(store / ".run").glob("[0-9]*.done")])


def wait_for_chunks(store, number, process):
    wait_for(lambda: finished(store) >= number, SECONDS, process)


def workers_of(process):
    """The processes that solve, which the command has started."""
    found = []
    for pid in members(process.pid):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            continue
        if "spawn_main" in line:
            found.append(pid)
    return found


def test_a_killed_worker_and_a_killed_run_lose_nothing(folder, clean):
    store = folder / "killed.zarr"
    process = start(folder, *survey(store.name, "--workers", "2"))
    with killed_at_the_end(process):
        wait_for_chunks(store, 2, process)
        before = workers_of(process)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        # Another one takes its place, and the run goes on.
        wait_for(lambda: len({*workers_of(process)} - {*before}) == 1, SECONDS, process)
        wait_for_chunks(store, 4, process)
        kill_all(process)
        process.wait(10)
    done = finished(store)
    assert 4 <= done < IMAGES, "killed in the middle"
    half = load(store)
    assert_same(half, clean, half["status"].values != "")
    assert_same(resume(folder, store.name), clean)


def test_ctrl_c_ends_soon_and_says_how_to_go_on(folder, clean):
    store = folder / "interrupted.zarr"
    process = start(folder, *survey(store.name, "--workers", "2"))
    with killed_at_the_end(process):
        wait_for_chunks(store, 1, process)
        sent = time.monotonic()
        for pid in members(process.pid):  # A terminal interrupts all of them.
            os.kill(pid, signal.SIGINT)
        code, _, err = finish(process, 60)
        assert time.monotonic() - sent < 30, "a few seconds, on a machine that is busy"
        assert code == 128 + signal.SIGINT, err
        *_, how, last = err.splitlines()
        assert (how, last) == (f"latentuq: {RESUMABLE}", "latentuq: Interrupted.")
        assert "Traceback" not in err
        assert "Error" not in err
        assert "Warning" not in err
        wait_for(lambda: not members(process.pid), 30)
    assert finished(store) < IMAGES
    assert not (folder / ".interrupted.zarr.lock").exists()
    assert_same(resume(folder, store.name), clean)


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and a worker that are not ours, in a folder of their own."""
    file = tmp_path / "scheduler.json"
    quiet = {"DASK_LOGGING__DISTRIBUTED": "error"}
    common = ("--no-dashboard", "--host", "127.0.0.1")
    scheduler = start(
        tmp_path, *common, "--port", "0", "--scheduler-file", file,
        module="distributed.cli.dask_scheduler", **quiet,
    )  # fmt: skip
    with killed_at_the_end(scheduler):
        wait_for(file.exists, 60, scheduler)
        address = wait_for(lambda: address_in(file), 60, scheduler)
        worker = start(
            tmp_path, address, *common, "--nworkers", "1", "--nthreads", "1",
            module="distributed.cli.dask_worker", **quiet,
        )  # fmt: skip
        with killed_at_the_end(worker):
            yield scheduler, address


def address_in(file):
    try:
        return json.loads(file.read_text())["address"]
    except ValueError:
        return None  # It is being written.


def test_a_scheduler_that_is_killed_ends_the_run_with_a_sentence(folder, clean, cluster):
    scheduler, address = cluster
    store = folder / "scheduled.zarr"
    process = start(folder, *survey(store.name, "--scheduler", address))
    with killed_at_the_end(process):
        wait_for_chunks(store, 2, process)
        sent = time.monotonic()
        os.kill(scheduler.pid, signal.SIGKILL)
        code, _, err = finish(process, 120)
        assert time.monotonic() - sent < 60
    assert code == 2, err
    assert err.splitlines()[-1].startswith("latentuq: The scheduler is gone")
    assert err.splitlines()[-1].endswith(RESUMABLE)
    assert "Traceback" not in err
    assert 2 <= finished(store) < IMAGES
    assert_same(resume(folder, store.name), clean)


# Processes die of images 1 and 2, as of a bug in a library.
POISON = """
import os, signal
from latentuq.app.solving import Solver

def poisoned(solve):
    def die(solver, key, given, *rest, **options):
        if given.name in ("y.npy[1]", "y.npy[2]"):
            os.kill(os.getpid(), signal.SIGKILL)
        return solve(solver, key, given, *rest, **options)

    return die

Solver.solve = poisoned(Solver.solve)  # Dask may load this file more than once.
"""


def test_images_that_processes_die_of_are_given_up(folder, clean):
    """Two of them in one chunk, while other chunks wait for the only worker."""
    (folder / "poison.py").write_text(POISON)
    arguments = survey("poisoned.zarr", "--workers", "1", "--chunk", "4")
    preload = {"DASK_DISTRIBUTED__WORKER__PRELOAD": str(folder / "poison.py")}
    code, out, err = call(folder, *arguments, seconds=2 * SECONDS, **preload)
    assert code == 0, err
    found = load(folder / "poisoned.zarr")
    assert [*np.flatnonzero(found["status"] == FAILED)] == [1, 2]
    text = "Its process died 3 times while it was solved."
    assert [*found["error"].values[[1, 2]]] == [text, text]
    assert " 2 failed." in out
    assert "Traceback" not in err
    others = [image for image in range(IMAGES) if image not in (1, 2)]
    assert_same(found, clean, others)
