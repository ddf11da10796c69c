"""Compiled programs that outlive the process, and how long compiling took."""

import os

from latentuq.data.cache import cache_dir

_EVENTS = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)


def keep_compiled() -> None:
    """Keeps compiled programs in the user's cache directory, so that a second run has them.

    A directory of the user's own (`JAX_COMPILATION_CACHE_DIR`) is left in charge.
    """
    import jax

    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    folder = cache_dir() / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # Without a cache everything works, only slower.
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # Small programs are many: together they take longer than the large ones.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


class CompileClock:
    """Seconds that JAX has spent on tracing, lowering and compiling since this was made."""

    def __init__(self) -> None:
        import jax

        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: str | int | float) -> None:
        if event in _EVENTS:
            self.seconds += duration_secs
