"""The cache directory holds data, never code, and what others keep there is left alone."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from latentuq.core.cache import cache_dir

COMPILE = """
import jax, jax.numpy as jnp
from latentuq.core.compilation import keep_compiled
keep_compiled()
print(jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x))(jnp.ones(7)))
"""


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def compile_once(**environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_in(folder):
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_what_somebody_put_into_the_cache_is_neither_unpickled_nor_run(tmp_path):
    cache, sprung = tmp_path / "cache", tmp_path / "sprung"
    answer = compile_once(LATENTUQ_CACHE=str(cache))
    written = files_in(cache)
    assert written
    for path in written:
        path.write_bytes(pickle.dumps(Trap(sprung)))
    for name in ("sitecustomize.py", "latentuq.py", "compiled/jax.py", "compiled/trap.pkl"):
        (cache / name).write_text(f"open({str(sprung)!r}, 'w')")
    assert compile_once(LATENTUQ_CACHE=str(cache)) == answer
    assert not sprung.exists()
    pickle.loads(pickle.dumps(Trap(sprung)))
    assert sprung.exists(), "the trap is one"


@pytest.mark.slow
def test_a_cache_directory_of_the_users_own_keeps_every_file(tmp_path):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    for number in range(150):
        (theirs / f"jit_other-{number}-cache").write_bytes(b"x" * 1000)
        os.utime(theirs / f"jit_other-{number}-cache", (0, 0))
    before = files_in(theirs)
    # JAX keeps what took long to compile; here all of it.
    settings = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    compile_once(LATENTUQ_CACHE=str(ours), JAX_COMPILATION_CACHE_DIR=str(theirs), **settings)
    assert before < files_in(theirs), "programs are kept where the user wants them"
    assert all(path.read_bytes() == b"x" * 1000 for path in before)
    assert not ours.exists()


def test_the_place_of_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LATENTUQ_CACHE", "~/mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "mine"
    monkeypatch.setenv("LATENTUQ_CACHE", "~nouser/mine")
    assert cache_dir() == Path("~nouser/mine")
