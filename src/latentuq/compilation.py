"""Compiled programs that outlive the process, and how long compiling took."""

import os
import time
import warnings
from contextlib import suppress
from pathlib import Path

from latentuq.data.cache import cache_dir

_EVENTS = (
    "/latentuq/program_duration",
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)


def keep_compiled() -> None:
    """Keeps programs in the user's cache directory, so that a second run has them.

    A directory of the user's own (`JAX_COMPILATION_CACHE_DIR`) is left in charge. JAX keeps there
    what it compiles, and `programs` our own executables, which are found without tracing.
    """
    import jax

    from latentuq.programs import keep_programs

    own = os.environ.get("JAX_COMPILATION_CACHE_DIR", "")
    folder = Path(own) if own else cache_dir() / "compiled"
    # Without a cache everything works, only slower.
    if "://" not in own:
        with suppress(OSError):
            (folder / "programs").mkdir(parents=True, exist_ok=True)
            keep_programs(folder / "programs")
    if own or not folder.is_dir():
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # One line per program is no help to a person whose disk is full.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    # Small programs are many: together they take longer than the large ones.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


class CompileClock:
    """Seconds that JAX has spent on tracing, lowering and compiling since this was made."""

    def __init__(self) -> None:
        import jax

        self._spans: list[tuple[float, float]] = []
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    @property
    def seconds(self) -> float:
        """So far. What was traced inside another function, or in another thread, counts once."""
        total, reached = 0.0, float("-inf")
        for start, end in sorted(self._spans):
            total += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return total

    def _listen(self, event: str, duration_secs: float, **_: str | int | float) -> None:
        if event in _EVENTS:
            end = time.perf_counter()
            self._spans.append((end - duration_secs, end))
