"""Interrupts that take effect wherever they arrive."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Seconds until a swallowed interrupt is raised again.
_PAUSE = 0.02


@contextmanager
def insisting() -> Iterator[None]:
    """Raises an interrupt again that came where Python ignores exceptions.

    Callbacks of the garbage collector, of which JAX has one, and destructors are such places: the
    work would go on as if nothing had happened. Where there are no timers, it still does.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    swallowed: list[type[BaseException]] = []
    ignore = sys.unraisablehook

    def notice(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt | SystemExit):
            swallowed.append(unraisable.exc_type)
            signal.setitimer(signal.ITIMER_REAL, _PAUSE)
        else:
            ignore(unraisable)

    def raise_again(*_: object) -> None:
        if swallowed.pop() is SystemExit:
            sys.exit(128 + signal.SIGTERM)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, raise_again)
    sys.unraisablehook = notice
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = ignore
        signal.signal(signal.SIGALRM, before)
