"""A process that draws figures beside this one."""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from latentuq.cores import available_cores

if TYPE_CHECKING:
    from latentuq.report.content import Content
    from latentuq.report.write import Draw

# The rest, about half of the work, is done here.
_THERE = ("overview", "modes", "samples", "components", "search")


@contextmanager
def drawing() -> "Iterator[Draw]":
    """Starts a process that imports what drawing needs and waits; it ends with the block.

    Drawing is Python's work, of which one process does one thing at a time. Where there is no
    second core, or where that process fails, this one draws everything.

    Yields:
        What `write_report` draws the figures with.
    """
    from latentuq.report.figures import FIGURES, save_figures
    from latentuq.report.write import draw_here

    if len(available_cores()) < 2:
        yield draw_here
        return
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)

    def draw(content: "Content", folder: Path) -> Callable[[], dict[str, str]]:
        with suppress(OSError):
            ours.send((content, folder))
        drawn = save_figures(content, folder, FIGURES.keys() - _THERE)

        def finish() -> dict[str, str]:
            try:
                return drawn | ours.recv()
            except (EOFError, OSError):
                return drawn | save_figures(content, folder, _THERE)

        return finish

    try:
        with suppress(OSError), _holding_interrupts():
            process.start()
        theirs.close()
        yield draw_here if process.pid is None else draw
    finally:
        if process.pid is not None:
            process.terminate()
            process.join()


@contextmanager
def _holding_interrupts() -> Iterator[None]:
    """Interrupts come after the block; a process that starts in it never gets any.

    They are this process's to handle.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Else the first process starts another one before it, which ends the blocking.
    resource_tracker.ensure_running()
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, before)
        if held:
            raise KeyboardInterrupt


def _work(pipe: Connection) -> None:
    # The parent draws what does not arrive, and meets the same error.
    with suppress(Exception):
        from latentuq.report.figures import DRAWING_MODULES, save_figures

        for name in DRAWING_MODULES:
            import_module(name)
        content, folder = pipe.recv()
        pipe.send(save_figures(content, folder, _THERE))
