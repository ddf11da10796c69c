"""Executables in files: a later run neither traces nor compiles, and loads them ahead of their use.

JAX's own cache of executables is asked only once a function has been traced and lowered, which
takes as long as to load what it finds. Here the name of a file stands for all that an executable
was made from, so that it can be found, or be loaded in the background, without that.
"""

import functools
import hashlib
import json
import os
import pickle
import secrets
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental.serialize_executable import deserialize_and_load, serialize

# Files; the least recently used ones go. One inference has about twenty.
_MOST_FILES = 500


class Executable(NamedTuple):
    """A compiled function of arrays, and the structure of what it returns."""

    run: Callable[..., list[jax.Array]]
    structure: Any

    def __call__(self, arrays: list[Any]) -> Any:
        return jax.tree.unflatten(self.structure, self.run(*arrays))


class Executables:
    """Those in one folder, which exists."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._ahead: dict[str, Future[_Loaded | None]] = {}
        self._used: dict[str, None] = {}

    def find(self, name: str) -> Executable | None:
        """An executable that was put here; None if there is none, or none that can be read."""
        self._used[name] = None
        ahead = self._ahead.pop(name, None)
        # What nobody has begun to load is had sooner here.
        loaded = self._load(name) if ahead is None or ahead.cancel() else ahead.result()
        if loaded is None:
            return None
        _ready_lapack()
        return Executable(loaded.run, jax.tree.structure(pickle.loads(loaded.shell)))

    def put(self, name: str, compiled: Any, shell: Any) -> None:
        """Keeps an executable of this process.

        Args:
            name: What it is found by.
            compiled: A compiled function of arrays that returns a list of them.
            shell: What the caller gets, with numbers for the arrays.
        """
        executable, *trees = serialize(compiled)
        # Pickled for the classes in the shell. JAX runs the executables of the same cache, so who
        # may write to it is trusted already.
        content = pickle.dumps((executable, *trees, pickle.dumps(shell)))
        _write(self.folder / f"{name}.program", zlib.compress(content, 1))

    @contextmanager
    def expecting(self, purpose: str) -> Iterator[None]:
        """Loads in the background what the last block of this purpose has used.

        What it uses this time is written down in the end, if no error ends it.

        Args:
            purpose: A name for a file.
        """
        record = self.folder / f"{purpose}.used"
        # XLA loads without the interpreter, so this thread holds up no other.
        pool = ThreadPoolExecutor(1, thread_name_prefix="latentuq-load")
        with suppress(ValueError):
            for name in json.loads(_read(record) or b"[]"):
                self._ahead[name] = pool.submit(self._load, name)
        self._used.clear()
        try:
            yield
            _write(record, json.dumps([*self._used]).encode())
        finally:
            self._ahead.clear()
            pool.shutdown(cancel_futures=True)

    def _load(self, name: str) -> "_Loaded | None":
        # Whatever is wrong with a file: it is made anew.
        with suppress(Exception):
            content = _read(self.folder / f"{name}.program")
            if content is not None:
                # No class of ours: a thread must not import what another is importing.
                executable, *trees, shell = pickle.loads(zlib.decompress(content))
                return _Loaded(deserialize_and_load(executable, *trees), shell)
        return None


class _Loaded(NamedTuple):
    """An executable whose result has no structure yet."""

    run: Callable[..., list[jax.Array]]
    shell: bytes


@functools.cache
def _ready_lapack() -> None:
    """Lets JAX find LAPACK's functions, which it does when it first lowers a call of them."""
    jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), "float32"))


def _read(path: Path) -> bytes | None:
    """The content of a file that begins with its checksum; None if it is missing or damaged."""
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    checksum, content = stored[:32], stored[32:]
    if hashlib.sha256(content).digest() != checksum:
        return None
    with suppress(OSError):
        now = time.time_ns()
        os.utime(path, ns=(now, now))  # The default is some milliseconds late.
    return content


def _write(path: Path, content: bytes) -> None:
    """Writes a file in one step and removes those that nobody has read for longest."""
    beside = path.with_suffix(f".{secrets.token_hex(4)}")
    with suppress(OSError):
        try:
            beside.write_bytes(hashlib.sha256(content).digest() + content)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        files = sorted(path.parent.iterdir(), key=lambda file: file.stat().st_mtime)
        for file in files[:-_MOST_FILES]:
            file.unlink(missing_ok=True)
