"""Small surveys under the tiny prior, solved in this process or by the command."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import jax
import numpy as np
import xarray

from latentuq.problem.specification import Specification
from latentuq.survey.prepare import BatchRequest
from latentuq.survey.run import run_batch
from latentuq.survey.work import Plan

SHAPE = (6, 8)
NOISE = 0.1
FLAGS = {"mask": "columns:4-5", "noise": str(NOISE)}


def noisy_images(images, number: int) -> np.ndarray:
    """Images of the tiny prior's family with noise, in float64, which float32 does not hold."""
    noise = np.random.default_rng(0).normal(scale=NOISE, size=(number, *SHAPE))
    return np.asarray(images.train[:number], np.float64) + noise


def plan_of(images, model: str, flags=FLAGS, **changes) -> Plan:
    specification = Specification.from_flags(flags)
    return Plan(str(images), specification, **({"model": model, "budget": "preview"} | changes))


def run(plan: Plan, output, listen=lambda _: None, **changes):
    """Solves a survey in this process."""
    return run_batch(BatchRequest(plan, Path(output), **({"workers": 0} | changes)), listen)


def load(path) -> xarray.Dataset:
    """A store as plain xarray reads it, which must have nothing to complain of."""
    with (
        warnings.catch_warnings(action="error"),
        xarray.open_zarr(str(path), consolidated=True) as dataset,
    ):
        return dataset.load()


def assert_same(first: xarray.Dataset, second: xarray.Dataset, images=slice(None)) -> None:
    """Two stores hold the same, value for value; only the seconds may differ."""
    assert set(first) == set(second)
    for name in set(first) - {"seconds"}:
        one, other = first[name].values, second[name].values
        if "image" in first[name].dims:
            one, other = one[images], other[images]
        np.testing.assert_array_equal(one, other, err_msg=name)


def faked(answer):
    """A stand-in for `solve` that gives everybody the same answer but for the evidence."""

    def solve(key, problem, *, budget, progress=None):
        shift = float(np.sum(jax.random.key_data(key) % 1000)) / 1000
        return dataclasses.replace(
            answer,
            inference=answer.inference.shifted(shift),
            key=key,
            problem=problem,
            log_density_fn=problem.log_density,
        )

    return solve


def start(folder, *arguments, module: str = "latentuq", **changes: str) -> subprocess.Popen:
    """Starts a command in a session of its own, as a terminal does."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **changes},
        start_new_session=True,
    )


def finish(process: subprocess.Popen, seconds: float = 120) -> tuple[int, str, str]:
    """Waits for a command, not for ever; returns its exit code and what it printed."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        kill_all(process)
        out, err = process.communicate()
        raise AssertionError(f"it did not end within {seconds} s: {out}{err}") from None
    return process.returncode, out, err


def call(folder, *arguments, seconds: float = 120, **changes: str) -> tuple[int, str, str]:
    return finish(start(folder, *arguments, **changes), seconds)


def kill_all(process: subprocess.Popen) -> None:
    """Kills a command with all the processes that it has started."""
    for pid in members(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def members(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                # The name of the program may hold blanks: what comes after it is state, parent,
                # group and session.
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(folder.name))
    return found


def wait_for(condition, seconds: float = 90, of: subprocess.Popen | None = None):
    """Waits until something is true; fails if it never is, or if a command ends before that."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s"
        assert of is None or of.poll() is None, f"it ended: {of.communicate()}"
        time.sleep(0.05)
    return value


@contextmanager
def killed_at_the_end(*processes: subprocess.Popen):
    """Leaves no process behind, whatever happens in the block."""
    try:
        yield
    finally:
        for process in processes:
            kill_all(process)
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
