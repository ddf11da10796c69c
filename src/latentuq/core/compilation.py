"""Compiling: a bounded number of programs in memory, JAX's own cache of them on disk, a clock."""

import functools
import os
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import equinox as eqx
import jax
from jax.core import Tracer

Inputs = ParamSpec("Inputs")
Result = TypeVar("Result")

MOST_PROGRAMS = 96
"""Programs that stay in memory.

Each takes some 5 MB and 160 of the kernel's 65,530 memory maps; one inference needs about a dozen.
"""

_EVENTS = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)

_programs: OrderedDict[Any, "_Program"] = OrderedDict()
_lock = threading.Lock()


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
            program = _programs.pop(signature, None) or _Program(run)
            _programs[signature] = program
            while len(_programs) > MOST_PROGRAMS:
                _programs.popitem(last=False)
        return program(arrays)

    return call


def keep_compiled() -> None:
    """Keeps compiled programs in the user's cache directory, so that a second run has them.

    A directory of the user's own (`JAX_COMPILATION_CACHE_DIR`) is left in charge.
    """
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    # Only commands keep programs on disk: all else that compiles knows no directories.
    from latentuq.core.cache import cache_dir

    folder = cache_dir() / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # Without a cache everything works, only slower.
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # One line per program is no help to a person whose disk is full.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    # Small programs are many: together they take longer than the large ones.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


class CompileClock:
    """Measures the seconds that JAX spends on tracing, lowering and compiling from now on."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    @property
    def seconds(self) -> float:
        """Seconds so far. What was traced inside something else, or in two threads, counts once."""
        total, reached = 0.0, float("-inf")
        for start, end in sorted(self._spans):
            total += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return total

    def _listen(self, event: str, duration_secs: float, **_: str | int | float) -> None:
        if event in _EVENTS:
            end = time.perf_counter()
            self._spans.append((end - duration_secs, end))
