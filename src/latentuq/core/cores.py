"""Work divided among the cores of the processor.

XLA divides single operations among them, which leaves half of a second core idle: small products
and all that is done element by element stay on one. Programs that run at the same time do not.

They must not decompose batches of matrices: jaxlib divides such a batch among the very threads that
wait for it, and two programs that do so at the same time may wait for ever. Nor must they call back
into Python, where they would meet. `one_core` is for densities that might.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")

# Each thread has a batch of decoded images in memory.
_MOST_THREADS = 8

_alone = ContextVar("_alone", default=False)


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
    if workers < 2 or _alone.get() or jax.default_backend() != "cpu":
        return [fn(part) for part in parts]
    with ThreadPoolExecutor(workers) as pool:
        # Settings that hold in the caller's thread alone, such as a precision, would be lost.
        if pool.submit(settings).result() != settings():
            return [fn(part) for part in parts]
        return list(pool.map(work, parts))


@contextmanager
def one_core(alone: bool = True) -> Iterator[None]:
    """Inside, parts run one after another."""
    before = _alone.set(alone or _alone.get())
    try:
        yield
    finally:
        _alone.reset(before)


def available_cores() -> set[int]:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
