"""Functions whose compiled programs outlive the process: a second run finds them by their names.

A name stands for all that a program was made from: the function, what it was called with, sources,
versions, settings and the processor.
"""

import dataclasses
import functools
import hashlib
import os
import platform
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import equinox as eqx
import jax
import jaxlib
import numpy as np
from jax.core import Tracer

from latentuq.executables import Executable, Executables

Inputs = ParamSpec("Inputs")
Result = TypeVar("Result")

LOADED = "/latentuq/program_duration"
"""The event by which JAX's monitoring hears of the seconds that it took to find a program."""

# Packages whose functions and classes are what their name says: the key holds their versions.
_VERSIONED = {"latentuq", "jax", "jaxlib", "equinox"}

# How lines of /proc/cpuinfo begin that list what a processor can do.
_ABILITIES = ("flags", "features", "isa")

_executables: Executables | None = None


def keep_programs(folder: Path) -> None:
    """From now on programs are read from a folder that exists, and written to it."""
    global _executables
    _executables = Executables(folder)
    _sources()  # Now: what has been imported should still be what is on disk.


@contextmanager
def expecting_programs(purpose: str) -> Iterator[None]:
    """Loads in the background what the last run of this purpose called, if programs are kept."""
    if _executables is None:
        yield
        return
    with _executables.expecting(_hash((_settings(), purpose))):
        yield


def program(fn: Callable[Inputs, Result]) -> Callable[Inputs, Result]:
    """`eqx.filter_jit` for functions whose results are arrays, kept from run to run.

    Whatever stands in the way (no folder, arguments without a lasting name, a call inside other
    compiled code) leaves `eqx.filter_jit` itself. A file that is damaged is made anew.
    """
    compiled: Any = eqx.filter_jit(fn)
    kept: dict[Any, Executable | None] = {}
    locks: dict[Any, threading.RLock] = {}

    @functools.wraps(fn)
    def call(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Result:
        leaves, structure = jax.tree.flatten((args, kwargs))
        arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
        if any(isinstance(each, Tracer) for each in arrays):
            return compiled(*args, **kwargs)
        # What `jax.jit` tells programs of one process apart by; their names take longer to make.
        signature = (_executables, structure, repr(jax.config.values), *map(_kind, leaves))

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
                    begun = _begin(_executables, named, flat, arrays) if _executables else None
                    found, result = begun or (None, compiled(*args, **kwargs))
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


class _NamelessError(Exception):
    """Something has no name that would mean the same in another process."""


def _begin(
    kept: Executables, called: tuple[Any, ...], fn: Callable[..., Any], arrays: list[Any]
) -> tuple[Executable, Any] | None:
    """Finds a program or makes it, and runs it for the first time; None if anything goes wrong.

    An error of the function itself comes again, as it should, where the caller does without.

    Args:
        kept: Where it may be.
        called: The function and its arguments, which name it.
        fn: The function of its arrays alone.
        arrays: These.

    Returns:
        The program and its result.
    """
    if jax.default_backend() != "cpu" or jax.device_count() > 1:
        return None
    try:
        began = time.perf_counter()
        name = _hash((_settings(), _describe(called)))
        found = kept.find(name)
        jax.monitoring.record_event_duration_secs(LOADED, time.perf_counter() - began)
        if found is not None:
            # What is wrong with an executable may show only now.
            with suppress(jax.errors.JaxRuntimeError):
                return found, jax.block_until_ready(found(arrays))
        made = _make(kept, name, fn, arrays)
        return made, made(arrays)
    except Exception:
        return None


def _make(kept: Executables, name: str, fn: Callable[..., Any], arrays: list[Any]) -> Executable:
    shells = []

    def flat(*arrays: Any) -> list[Any]:
        values, structure = jax.tree.flatten(fn(*arrays))
        shells.append(jax.tree.unflatten(structure, range(len(values))))
        return values

    # What JAX's own cache answers with loses functions when it is written again (jaxlib 0.10): the
    # name is one that it does not know.
    flat.__name__ = f"program_{secrets.token_hex(8)}"
    compiled = jax.jit(flat).lower(*arrays).compile()
    with suppress(Exception):
        kept.put(name, compiled, shells[-1])
    return Executable(compiled, jax.tree.structure(shells[-1]))


def _hash(parts: tuple[Any, ...]) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _settings() -> tuple[Any, ...]:
    """What every program depends on: sources, versions, the machine, and how JAX is configured."""
    versions = [each.__version__ for each in (jax, jaxlib, eqx, np)]
    return (_sources(), versions, sys.version, _machine(), jax.config.values)


@functools.cache
def _machine() -> tuple[str, ...]:
    """What XLA compiles for: the processor with all that it can do, and flags of the user's own."""
    abilities = ""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        abilities = next((line for line in lines if line.lower().startswith(_ABILITIES)), "")
    named = platform.machine(), platform.processor(), platform.release() if not abilities else ""
    return *named, abilities, os.environ.get("XLA_FLAGS", "")


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
