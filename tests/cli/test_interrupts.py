"""Interrupts end a command within seconds, wherever they arrive."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from latentuq.cli.interrupts import ending_soon
from latentuq.prior.model_file import save_prior

# A command whose work is `work()`, inside a block that must be cleaned up.
PROGRAM = """
import gc, hashlib, os, signal, sys, threading, time
from pathlib import Path
from latentuq.cli import main
from latentuq.core.files import staged_folder
import latentuq.cli as cli

class Destructor:
    def __del__(self):
        signal.raise_signal(NUMBER)

def in_a_destructor():
    Destructor()
    time.sleep(60)

def in_a_collection():
    def callback(phase, _):
        gc.callbacks.remove(callback)
        signal.raise_signal(NUMBER)
    gc.callbacks.append(callback)
    gc.collect()
    time.sleep(60)

def in_plain_work():
    signal.raise_signal(NUMBER)

def twice():
    try:
        signal.raise_signal(NUMBER)
    finally:
        signal.raise_signal(NUMBER)

def in_c_code():
    threading.Timer(0.2, os.kill, (os.getpid(), NUMBER)).start()
    # Like a compilation: it lets other threads run, and takes no notice of signals for a minute.
    hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000_000)

def swallowed_by_a_library():
    try:
        signal.raise_signal(NUMBER)
    except BaseException as error:
        raise RuntimeError("INTERNAL") from error

def run():
    with staged_folder(Path("report")) as staged:
        (staged / "half.txt").write_text("half a report")
        WORK()
    return 0

cli._run = run
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "work",
    [
        "in_plain_work",
        "twice",
        "in_a_destructor",
        "in_a_collection",
        "in_c_code",
        "swallowed_by_a_library",
    ],
)
def test_an_interrupt_ends_the_command_and_leaves_nothing(tmp_path, work, number):
    program = PROGRAM.replace("NUMBER", str(int(number))).replace("WORK", work)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    word = "Interrupted" if number == signal.SIGINT else "Terminated"
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr == f"latentuq: {word}.\n"
    assert time.monotonic() - started < 20
    assert not list(tmp_path.iterdir())


def test_other_ignored_errors_are_shown(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: seen.append(each.exc_type))
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    class Careless:
        def __del__(self):
            raise ValueError

    with ending_soon():
        Careless()
    assert seen == [ValueError]
    assert handlers == [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert signal.set_wakeup_fd(-1) == -1


@pytest.fixture(scope="module")
def files(tmp_path_factory, tiny_prior, tiny_images):
    folder = tmp_path_factory.mktemp("interrupts")
    save_prior(folder / "tiny.safetensors", tiny_prior)
    np.save(folder / "y.npy", np.asarray(tiny_images.train[0]))
    np.save(folder / "images.npy", np.asarray(tiny_images.train))
    return folder


COMMANDS = {
    "reconstruct": ["y.npy", "--model", "tiny.safetensors", "--noise", "0.1", "-o", "out"],
    "train": ["images.npy", "-o", "out.safetensors", "--epochs", "5000"],
}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_end_soon_under_load(files, command, number):
    rng = random.Random(f"{command} {number}")
    before = sorted(files.iterdir())
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for _ in range(3):
            process = subprocess.Popen(
                [sys.executable, "-m", "latentuq", command, *COMMANDS[command]],
                cwd=files,
                stderr=subprocess.PIPE,
                text=True,
                # Every run compiles, which takes long without a look at signals.
                env={**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"},
            )
            time.sleep(rng.uniform(2, 12))
            sent = time.monotonic()
            process.send_signal(number)
            _, err = process.communicate()
            assert process.returncode == 128 + number, err
            assert time.monotonic() - sent < 8, "a few seconds, on a machine that is busy"
            assert err.splitlines()[-1].startswith("latentuq: "), err
            assert "free()" not in err
            assert "Traceback" not in err
            assert sorted(files.iterdir()) == before
    finally:
        for each in busy:
            each.kill()
