"""Compiling: a bounded number of programs in memory, JAX's own cache of them on disk, a clock."""

import functools
import os
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import equinox as eqx
import jax
from jax.core import Tracer
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from latentuq.core.cache import cache_dir

Inputs = ParamSpec("Inputs")
Result = TypeVar("Result")

MOST_PROGRAMS = 96
"""Programs that stay in memory.

Each takes some 5 MB and 160 of the kernel's 65,530 memory maps; one inference needs about a dozen.
"""

_COMPILED = "/jax/core/compile/backend_compile_duration"
_EVENTS = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    _COMPILED,
)
_LOADED = "/jax/compilation_cache/cache_hits"
# The seconds of compiling that a person would notice.
_NOTICED = 0.5

_programs: OrderedDict[Any, "_Program"] = OrderedDict()
_lock = threading.Lock()
# The folder of compiled programs: None until one was needed, empty if it is not ours to choose.
_folder: str | None = None


class _Program:
    """One function compiled for one kind of arguments, and a lock for its first call."""

    def __init__(self, run: Callable[..., Any]):
        self.run = jax.jit(run)
        self.lock = threading.Lock()
        self.compiled = False

    def __call__(self, arrays: list[Any]) -> Any:
        if self.compiled:
            return self.run(*arrays)
        # Threads that need the same new program at the same time compile it once.
        with self.lock:
            result = self.run(*arrays)
            self.compiled = True
        return result


def bounded_jit(fn: Callable[Inputs, Result]) -> Callable[Inputs, Result]:
    """`eqx.filter_jit` for functions that are called with ever new densities or operators.

    Every new density is a new program, and a process that keeps them all fails in the end: the
    kernel limits its memory maps. So of all programs made here only the most recently used stay.
    Arrays are inputs of a program; everything else in the arguments decides which program it is.
    """

    @functools.wraps(fn)
    def call(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Result:
        leaves, structure = jax.tree.flatten((args, kwargs))
        arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
        if any(isinstance(array, Tracer) for array in arrays):
            return fn(*args, **kwargs)

        # What tells programs apart, and what a program knows of its first call: types of arrays.
        kinds = [jax.typeof(leaf) if eqx.is_array(leaf) else (leaf,) for leaf in leaves]

        def run(*arrays: Any) -> Any:
            given = iter(arrays)
            filled = [kind[0] if isinstance(kind, tuple) else next(given) for kind in kinds]
            args, kwargs = jax.tree.unflatten(structure, filled)
            return cast(Any, fn)(*args, **kwargs)

        types = [type(leaf) for leaf in leaves]  # 1, 1.0 and True are equal.
        signature = (fn, structure, *types, *kinds)
        with _lock:
            program = _programs.pop(signature, None)
            if program is None:
                keep_compiled()
                program = _Program(run)
            _programs[signature] = program
            while len(_programs) > MOST_PROGRAMS:
                _programs.popitem(last=False)
        return program(arrays)

    return call


def keep_compiled() -> None:
    """Keeps compiled programs in the user's cache directory, so that a second process has them.

    The first program of ours that is compiled calls it. A directory that the user has set, in
    `JAX_COMPILATION_CACHE_DIR` or in `jax.config`, earlier or later, is left in charge;
    `JAX_ENABLE_COMPILATION_CACHE=0` is JAX's own way to keep nothing.
    """
    global _folder
    given = jax.config.values["jax_compilation_cache_dir"]
    if _folder is None:
        chosen = given is not None or "JAX_COMPILATION_CACHE_DIR" in os.environ
        _folder = "" if chosen else _use_folder(cache_dir() / "compiled")
    elif _folder and given != _folder:
        # JAX would not let go of the first directory that it has used.
        reset_cache()
        _folder = ""


def _use_folder(folder: Path) -> str:
    """Makes JAX keep programs in a folder; returns its name, or nothing if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # Without a cache everything works, only slower.
        return ""
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # One line per program is no help to a person whose disk is full.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    # Small programs are many: together they take longer than the large ones.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return str(folder)


class CompileClock:
    """Measures the seconds that JAX spends on tracing, lowering and compiling from now on."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []
        self._watchers: list[Callable[[float], None]] = []
        self._thread = threading.local()
        jax.monitoring.register_event_listener(self._note)
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    @property
    def seconds(self) -> float:
        """Seconds so far. What was traced inside something else, or in two threads, counts once."""
        total, reached = 0.0, float("-inf")
        for start, end in sorted(self._spans):
            total += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return total

    @contextmanager
    def watch(self, tell: Callable[[], None]) -> Iterator[None]:
        """Calls a function once if programs are compiled in the block, rather than loaded."""
        spent = [0.0]

        def add(seconds: float) -> None:
            before, spent[0] = spent[0], spent[0] + seconds
            if before < _NOTICED <= spent[0]:
                tell()

        self._watchers.append(add)
        try:
            yield
        finally:
            self._watchers.remove(add)

    def _note(self, event: str, **_: str | int | float) -> None:
        if event == _LOADED:
            self._thread.loaded = True

    def _listen(self, event: str, duration_secs: float, **_: str | int | float) -> None:
        if event in _EVENTS:
            end = time.perf_counter()
            self._spans.append((end - duration_secs, end))
        if event == _COMPILED:
            # JAX reports a program that it has loaded as compiled, too.
            loaded, self._thread.loaded = getattr(self._thread, "loaded", False), False
            for add in () if loaded else tuple(self._watchers):
                add(duration_secs)


@functools.cache
def compile_clock() -> CompileClock:
    """One clock for the whole process, since JAX never lets go of those who listen to it."""
    return CompileClock()
