"""Work divided among the cores of the processor.

XLA divides single operations among them, which leaves half of a second core idle: small products
and all that is done element by element stay on one. Programs that run at the same time do not.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")

# Each thread has a batch of decoded images in memory.
_MOST_THREADS = 8


def on_cores(fn: Callable[[Part], Result], parts: Iterable[Part]) -> list[Result]:
    """A function of each part, at the same time if there are cores enough.

    What the parts are must not depend on the number of cores: nor will the results.
    """
    import jax

    def work(part: Part) -> Result:
        return jax.block_until_ready(fn(part))

    def settings() -> dict[str, object]:
        return dict(jax.config.values)

    parts = list(parts)
    workers = min(len(parts), len(available_cores()), _MOST_THREADS)
    if workers < 2 or jax.default_backend() != "cpu":
        return [fn(part) for part in parts]
    with ThreadPoolExecutor(workers) as pool:
        # Settings that hold in the caller's thread alone, such as a precision, would be lost.
        if pool.submit(settings).result() != settings():
            return [fn(part) for part in parts]
        return list(pool.map(work, parts))


def available_cores() -> set[int]:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
