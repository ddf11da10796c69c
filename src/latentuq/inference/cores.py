"""Work divided among the cores of the processor.

XLA divides single operations among them, which leaves half of a second core idle: small products
and all that is done element by element stay on one. Programs that run at the same time do not.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp

Part = TypeVar("Part")
Result = TypeVar("Result")


def on_cores(fn: Callable[[Part], Result], parts: Iterable[Part]) -> list[Result]:
    """A function of each part, at the same time if there are cores enough.

    What the parts are must not depend on the number of cores: nor will the results.
    """
    parts = list(parts)
    workers = min(len(parts), _cores())
    if workers < 2:
        return [fn(part) for part in parts]
    # JAX's precision may have been set for the caller's thread alone.
    wide = jnp.result_type(float) == jnp.float64

    def work(part: Part) -> Result:
        with jax.enable_x64(wide):
            return jax.block_until_ready(fn(part))

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, parts))


def _cores() -> int:
    """Of those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
