"""Work divided among the cores of the processor.

XLA divides single operations among them, which leaves half of a second core idle: small products
and all that is done element by element stay on one. Programs that run at the same time do not.

They must not decompose batches of matrices: jaxlib divides such a batch among the very threads that
wait for it, and two programs that do so at the same time may wait for ever. Nor must they call back
into Python, where they would meet. `waits` finds programs that do; `one_core` is for them.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")

# The number of threads is bounded because each has a batch of decoded images in memory.
_MOST_THREADS = 8
# The operations that jaxlib leaves to LAPACK, or to others.
_WAITING = {
    "cholesky",
    "cholesky_update",
    "eig",
    "eigh",
    "ffi_call",
    "geqp3",
    "geqrf",
    "hessenberg",
    "householder_product",
    "lu",
    "qr",
    "schur",
    "svd",
    "triangular_solve",
    "tridiagonal",
    "tridiagonal_solve",
}

_alone = ContextVar("_alone", default=False)


def on_cores(fn: Callable[[Part], Result], parts: Iterable[Part]) -> list[Result]:
    """Calls a function with each part, at the same time if there are cores enough.

    The parts must not depend on the number of cores; then the results do not either.
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
    """Makes all parts run one after another while the context is open."""
    before = _alone.set(alone or _alone.get())
    try:
        yield
    finally:
        _alone.reset(before)


def waits(jaxpr: Any) -> bool:
    """Says whether a traced program has an operation that waits for other threads."""
    if isinstance(jaxpr, tuple | list):
        return any(waits(each) for each in jaxpr)
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    return any(
        equation.primitive.name in _WAITING
        or "callback" in equation.primitive.name
        or any(waits(value) for value in equation.params.values())
        for equation in getattr(inner, "eqns", ())
    )


def available_cores() -> set[int]:
    """Returns the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
