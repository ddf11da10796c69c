"""Worker processes and the queue before them; the event loop never waits for a computation."""

import asyncio
import contextlib
import dataclasses
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from latentuq.web.jobs import Job, State
from latentuq.web.problems import RefusedError
from latentuq.web.tasks import Cancel, Catalogue, Done, Event, Failed, Model, Order, Ready, Stopped

Work = Callable[[Connection, Mapping[str, str], str], None]
"""What a worker process does with its pipe, see `run_worker`."""

_DIED = "The process that computed this has died; it was replaced. Try again."
_STOPPING = "The server is stopping."
# Starting may take as long as compiling everything anew.
_START_LIMIT = 600.0
# A worker that does not start is tried again after so many seconds.
_PAUSE = 5.0


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much is done at once, and for how long.

    Attributes:
        workers: The number of processes.
        queue: The number of jobs that may wait.
        seconds: The seconds that one job may take; a first one of its kind also compiles.
    """

    workers: int = 2
    queue: int = 32
    seconds: float = 120.0


class _Process:
    """A worker process, and our end of its pipe."""

    def __init__(self, work: Work, models: Mapping[str, str], warm: str):
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=work, args=(theirs, models, warm), daemon=True)
        self.process.start()
        theirs.close()
        self.number = 0


class Pool:
    """Worker processes that do jobs, first come first served."""

    def __init__(self, models: Mapping[str, str], warm: str, limits: Limits, work: Work):
        """Takes the models that may be named, the one to be warm, limits, and what workers do."""
        self.work = work
        self.models = models
        self.warm = warm
        self.limits = limits
        self.running: dict[Job, _Process] = {}
        self._waiting: deque[Job] = deque()
        self._news = asyncio.Event()
        self._first_is_up = asyncio.Event()
        self._described = asyncio.Event()
        self._models: list[Model] = []
        self._processes: set[_Process] = set()
        self._threads = ThreadPoolExecutor(limits.workers, "latentuq-pipe")
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    def open(self) -> None:
        """Starts the processes; jobs may come already."""
        self._tasks = [
            asyncio.create_task(self._keep(place)) for place in range(self.limits.workers)
        ]

    async def describe(self) -> list[Model]:
        """The models with their examples, which the first worker tells."""
        await self._described.wait()
        return self._models

    def submit(self, job: Job) -> Job:
        """Lets a job wait for a worker.

        Raises:
            RefusedError: Too many are waiting already.
        """
        self._waiting = deque(each for each in self._waiting if not each.finished)
        if self._closed:
            raise RefusedError(503, _STOPPING)
        if len(self._waiting) >= self.limits.queue:
            raise RefusedError(503, "Busy: too many reconstructions are waiting; try again soon.")
        self._waiting.append(job)
        self._news.set()
        return job

    def cancel(self, job: Job) -> None:
        """Ends a job that waits, and one that is under way at its next stage."""
        if job.finished or job.cancelling:
            return
        job.cancelling = True
        process = self.running.get(job)
        if process is None:
            job.move(State.CANCELLED, failure=Failed("This was cancelled."))
        else:
            with contextlib.suppress(OSError):  # Whoever reads notices that it has died.
                process.pipe.send(Cancel(process.number))

    def kill(self) -> None:
        """Ends all processes at once, from whatever thread."""
        self._closed = True
        for each in [*self._processes]:
            each.process.kill()

    def close(self) -> None:
        """Ends all processes, and every job with a sentence."""
        self.kill()
        for job in [*self._waiting, *self.running]:
            job.move(State.FAILED, failure=Failed(_STOPPING, fault=True))
        for task in self._tasks:
            task.cancel()
        self._threads.shutdown(wait=False)

    @property
    def pids(self) -> list[int]:
        """The processes that are alive."""
        found = [each.process.pid for each in self._processes if each.process.is_alive()]
        return [pid for pid in found if pid is not None]

    async def _keep(self, place: int) -> None:
        """Keeps one worker going: whatever it dies of, another takes its place."""
        if place:  # The first leaves what it compiles to the others.
            await self._first_is_up.wait()
        while not self._closed:
            process = await asyncio.to_thread(self._start)
            try:
                if await self._is_up(process):
                    self._first_is_up.set()
                    await self._work(process)
                else:
                    await asyncio.sleep(_PAUSE)
            finally:
                self._processes.discard(process)
                process.process.kill()
                process.pipe.close()

    def _start(self) -> _Process:
        process = _Process(self.work, self.models, self.warm)
        self._processes.add(process)
        if self._closed:
            process.process.kill()
        return process

    async def _is_up(self, process: _Process) -> bool:
        deadline = time.monotonic() + _START_LIMIT
        while isinstance(heard := await self._hear(process, deadline), Catalogue):
            self._models = heard.models
            self._described.set()
        return isinstance(heard, Ready)

    async def _work(self, process: _Process) -> None:
        """Hands jobs to a process until it has died, or had to be ended."""
        while process.process.is_alive():
            if (job := await self._next()) is None:
                continue
            if not process.process.is_alive():
                self._waiting.appendleft(job)
                return
            self.running[job] = process
            process.number += 1
            job.move(State.RUNNING)
            try:
                process.pipe.send(Order(process.number, job.task))
                alive = await self._attend(process, job)
            except OSError:
                alive = False
            finally:
                del self.running[job]
            if not alive:
                job.move(State.FAILED, failure=Failed(_DIED, fault=True))
                return

    async def _next(self) -> Job | None:
        """The next job; None after a while, so that a process that died idle is noticed."""
        while self._waiting:
            job = self._waiting.popleft()
            if not job.finished:
                return job
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), 1.0)
        return None

    async def _attend(self, process: _Process, job: Job) -> bool:
        """Follows a job to its end; says whether the process lives on."""
        deadline = time.monotonic() + self.limits.seconds
        while True:
            match await self._hear(process, deadline):
                case Event() as event:
                    job.tell(event)
                case Done(result):
                    job.move(State.DONE, result)
                    return True
                case Failed() as failure:
                    job.move(State.FAILED, failure=failure)
                    return True
                case Stopped():
                    job.move(State.CANCELLED, failure=Failed("This was cancelled."))
                    return True
                case None:
                    return False
                case _:
                    limit = f"{self.limits.seconds:g} seconds"
                    late = f"This took more than {limit} and was ended: use a smaller problem."
                    job.move(State.FAILED, failure=Failed(late, fault=True))
                    return False

    async def _hear(self, process: _Process, deadline: float) -> Any:
        """The next message; None if the process has died, a `TimeoutError` if it is late."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _receive, process.pipe, deadline)


def _receive(pipe: Any, deadline: float) -> Any:
    try:
        if pipe.poll(max(0.0, deadline - time.monotonic())):
            return pipe.recv()
    except (EOFError, OSError):
        return None
    return TimeoutError()
