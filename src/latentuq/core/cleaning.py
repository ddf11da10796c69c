"""What must be undone when a process ends before its work does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# By an object that is unique for each block, in the order in which the blocks were entered.
_pending: dict[object, Callable[[], None]] = {}


@contextmanager
def cleaning(clean: Callable[[], None]) -> Iterator[None]:
    """Calls `clean` after the block, or in the middle of it if the process has to end there.

    A process has to end in the middle of a block if it is interrupted where Python does not get to
    raise an exception; `clean_now` is called then, in another thread.
    """
    block = object()
    _pending[block] = clean
    try:
        yield
    finally:
        _pending.pop(block, None)
        clean()


def clean_now() -> None:
    """Cleans up after all blocks that are open, the innermost first."""
    for clean in reversed([*_pending.values()]):
        with suppress(Exception):
            clean()
