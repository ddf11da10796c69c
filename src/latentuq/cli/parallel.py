"""Independent jobs of one command, each in a process of its own."""

import multiprocessing
import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from latentuq.core.errors import UserError

Say = Callable[[str], None]


def in_processes(job: Callable[..., Any], arguments: Sequence[Any], say: Say) -> list[Any]:
    """job(argument, say) for each argument, all at once.

    Programs of XLA gain little from a second core, processes do. The first error ends them all, as
    does an interrupt.

    Args:
        job: A function of a module: processes find it by its name.
        arguments: What to call it with; they and the results must be picklable.
        say: Called with what the jobs say, here.
    """
    context = multiprocessing.get_context("spawn")
    processes, pipes = [], []
    try:
        for argument in arguments:
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(theirs, job, argument), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        results: dict[Any, Any] = {}
        while len(results) < len(pipes):
            for pipe in wait([pipe for pipe in pipes if pipe not in results]):
                kind, value = _receive(pipe)
                if kind == "error":
                    raise value
                if kind == "result":
                    results[pipe] = value
                else:
                    say(value)
        return [results[pipe] for pipe in pipes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _receive(pipe: Any) -> tuple[str, Any]:
    try:
        return pipe.recv()
    except (EOFError, OSError):  # At the end of a message, or in the middle of one.
        raise UserError("A process ended without a result, perhaps for want of memory.") from None


def _work(pipe: Connection, job: Callable[..., Any], argument: Any) -> None:
    # An interrupt is the parent's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(BrokenPipeError):  # Nobody listens any more.
        try:
            result = job(argument, lambda text: pipe.send(("say", text)))
            pipe.send(("result", result))
        except Exception as error:
            error.add_note(traceback.format_exc())
            pipe.send(("error", error))
