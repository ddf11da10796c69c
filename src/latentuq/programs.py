"""Programs that outlive the process before they are compiled: a second run traces nothing.

JAX's cache of executables is asked only once a function has been traced and lowered, which takes
longer than to load the executable. Here the lowered program is kept beside that cache, under a name
that stands for all that it was made from.
"""

import dataclasses
import functools
import hashlib
import os
import pickle
import secrets
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import equinox as eqx
import jax
import jaxlib
import numpy as np
from jax.core import Tracer

Inputs = ParamSpec("Inputs")
Result = TypeVar("Result")

LOADED = "/latentuq/program_duration"
"""The event by which JAX's monitoring hears of the seconds that it took to find a program."""

# Files; the least recently used ones go. One inference has about twenty.
_MOST_FILES = 500
# Packages whose functions and classes are what their name says: the key holds their versions.
_VERSIONED = {"latentuq", "jax", "jaxlib", "equinox"}

_folder: Path | None = None


def keep_programs(folder: Path) -> None:
    """From now on programs are read from a folder that exists, and written to it."""
    global _folder
    _folder = folder
    _sources()  # Now: what has been imported should still be what is on disk.


def program(fn: Callable[Inputs, Result]) -> Callable[Inputs, Result]:
    """`eqx.filter_jit` for functions whose results are arrays, kept from run to run.

    Whatever stands in the way (no folder, a file that is damaged or cannot be written, arguments
    without a lasting name, a call inside other compiled code) leaves `eqx.filter_jit` itself.
    """
    compiled: Any = eqx.filter_jit(fn)
    kept: dict[Any, _Program | None] = {}
    locks: dict[Any, threading.RLock] = {}

    @functools.wraps(fn)
    def call(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Result:
        leaves, structure = jax.tree.flatten((args, kwargs))
        arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
        if any(isinstance(each, Tracer) for each in arrays):
            return compiled(*args, **kwargs)
        # What `jax.jit` tells programs of one process apart by; their names take longer to make.
        signature = (_folder, structure, repr(jax.config.values), *map(_kind, leaves))

        def flat(*arrays: Any) -> Any:
            given = iter(arrays)
            filled = [next(given) if eqx.is_array(leaf) else leaf for leaf in leaves]
            args, kwargs = jax.tree.unflatten(structure, filled)
            return cast(Any, fn)(*args, **kwargs)

        if signature not in kept:
            # Threads that ask for a new program at the same time share it.
            with locks.setdefault(signature, threading.RLock()):
                if signature not in kept:
                    named = (call, args, kwargs)
                    found = _find(_folder, named, flat, arrays) if _folder else None
                    result = compiled(*args, **kwargs) if found is None else found(arrays)
                    kept[signature] = found
                    del locks[signature]
                    return result
        found = kept[signature]
        return compiled(*args, **kwargs) if found is None else found(arrays)

    # For those who compile ahead of time, to measure it.
    cast(Any, call).lower = compiled.lower
    return call


def _kind(leaf: Any) -> Any:
    """What a program depends on: the type of an array, the value of all else."""
    if isinstance(leaf, jax.Array):
        return leaf.aval
    return jax.typeof(leaf) if eqx.is_array(leaf) else (type(leaf), leaf)


class _Program(NamedTuple):
    """A compiled function of arrays, and the structure of what it returns."""

    run: Callable[..., list[jax.Array]]
    structure: Any

    def __call__(self, arrays: list[Any]) -> Any:
        return jax.tree.unflatten(self.structure, self.run(*arrays))


class _NamelessError(Exception):
    """Something has no name that would mean the same in another process."""


def _find(
    folder: Path, called: tuple[Any, ...], fn: Callable[..., Any], arrays: list[Any]
) -> _Program | None:
    """The program from its file, or made and written; None if anything goes wrong.

    An error of the function itself comes again, as it should, where the caller does without.

    Args:
        folder: Where the file is.
        called: The function and its arguments, which name it.
        fn: The function of its arrays alone.
        arrays: These.
    """
    if jax.default_backend() != "cpu" or jax.device_count() > 1:
        return None
    try:
        began = time.perf_counter()
        key = repr((_settings(), _describe(called)))
        path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.program"
        content = _read(path)
        jax.monitoring.record_event_duration_secs(LOADED, time.perf_counter() - began)
        if content is None:
            content = _trace(fn, arrays)
            _write(path, content)
        return _load(content, arrays)
    except Exception:
        return None


def _trace(fn: Callable[..., Any], arrays: list[Any]) -> bytes:
    shells = []

    def flat(*arrays: Any) -> list[Any]:
        values, structure = jax.tree.flatten(fn(*arrays))
        shells.append(jax.tree.unflatten(structure, range(len(values))))
        return values

    exported = jax.export.export(jax.jit(flat))(*arrays)
    # Pickled for the shell of the result, which is made of classes. JAX runs the executables of the
    # same cache, so who may write to it is trusted already.
    return pickle.dumps((bytes(exported.serialize()), shells[-1]))


def _load(content: bytes, arrays: list[Any]) -> _Program:
    began = time.perf_counter()
    exported, shell = pickle.loads(content)
    call = jax.export.deserialize(bytearray(exported)).call
    jax.monitoring.record_event_duration_secs(LOADED, time.perf_counter() - began)
    return _Program(jax.jit(call).lower(*arrays).compile(), jax.tree.structure(shell))


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
        os.utime(path)
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


def _settings() -> tuple[Any, ...]:
    """What every program depends on: sources, versions, and how JAX is configured."""
    versions = [each.__version__ for each in (jax, jaxlib, eqx, np)]
    return (_sources(), versions, sys.version, jax.config.values)


@functools.cache
def _sources() -> str:
    """A checksum of this package."""
    total, root = hashlib.sha256(), Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        total.update(f"{path.relative_to(root)} {path.stat().st_size} ".encode())
        total.update(path.read_bytes())
    return total.hexdigest()


def _describe(value: Any, static: bool = False) -> Any:
    """A value as far as a program depends on it: arrays by their type, all else in full.

    Args:
        value: An argument, or a part of one.
        static: Whether it is a constant of the program; an array must not be.
    """
    if eqx.is_array(value) and not static:
        kind = jax.typeof(value)
        return kind.shape, str(kind.dtype), kind.weak_type
    if value is None or type(value) in (bool, int, float, str, np.dtype):
        return repr(value)
    if isinstance(value, tuple | list):
        return _name(type(value)), [_describe(each, static) for each in value]
    if type(value) is dict:
        return [(_describe(key), _describe(each, static)) for key, each in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        module = isinstance(value, eqx.Module)
        return _name(type(value)), [
            _describe(getattr(value, field.name), static or not module or _is_static(field))
            for field in dataclasses.fields(value)
            if module or field.compare
        ]
    return _name(value)


def _is_static(field: dataclasses.Field) -> bool:
    return field.metadata.get("static", False)


def _name(value: Any) -> str:
    """Where a function or class of a package is found."""
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    known = module == "builtins" or module.partition(".")[0] in _VERSIONED
    if found is not value or not known:
        raise _NamelessError
    return f"{module}:{name}"
