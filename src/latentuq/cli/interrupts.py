"""Interrupts that end the command within seconds, wherever they arrive."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from latentuq.core.cleaning import clean_now

# Seconds that the main thread has to clean up by itself.
_GRACE = 1.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# For terminals: erase the line of progress, and show the cursor again.
_RESET = "\r\x1b[2K\x1b[?25h"

_received: list[int] = []
_ending = threading.Lock()


@contextmanager
def ending_soon() -> Iterator[None]:
    """Ends the process soon after an interrupt, even where Python does not get to raise it.

    In the main thread an interrupt is a `KeyboardInterrupt`. But JAX compiles for many seconds
    without a look at signals, the threads of a pool are waited for, and Python ignores exceptions
    in callbacks of the garbage collector and in destructors. So a second thread hears of every
    signal, and ends the process if the block has not ended in time.
    """
    ears, mouth = socket.socketpair()
    mouth.setblocking(False)
    left = threading.Event()
    _received.clear()
    handlers = {number: signal.signal(number, _interrupt) for number in _SIGNALS}
    before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    complain = sys.unraisablehook

    def complain_of_others(ignored: Any) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            complain(ignored)

    sys.unraisablehook = complain_of_others
    threading.Thread(target=_watch, args=(ears, left), daemon=True).start()
    try:
        yield
    finally:
        left.set()
        sys.unraisablehook = complain
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        mouth.close()


def is_interrupted() -> bool:
    """Says whether an interrupt has arrived since `ending_soon` was entered last."""
    return bool(_received)


def end_interrupted() -> NoReturn:
    """Says that the command was interrupted, and ends it with the code of the signal.

    An orderly exit can crash, since threads of XLA may still be at work.
    """
    number = _received[0]
    with _ending:  # Whoever comes second waits here until the process is gone.
        if sys.stderr.isatty():
            print(_RESET, end="", file=sys.stderr)
        text = "Terminated." if number == signal.SIGTERM else "Interrupted."
        print(f"latentuq: {text}", file=sys.stderr, flush=True)
        os._exit(128 + number)


def _interrupt(number: int, _: object) -> None:
    """Raises the first interrupt; a second one must not disturb the cleaning."""
    first = not _received
    _received.append(number)
    if first:
        raise KeyboardInterrupt


def _watch(ears: socket.socket, left: threading.Event) -> None:
    """Waits for a signal; what the interpreter sends is its number."""
    with ears:
        while number := ears.recv(1):
            if number[0] in _SIGNALS:
                break
    if number and not left.wait(_GRACE):
        _received.insert(0, number[0])
        clean_now()
        end_interrupted()
