"""Jobs, what became of them, and how many results are remembered."""

import asyncio
import enum
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator

import numpy as np

from latentuq.web.problems import RefusedError
from latentuq.web.tasks import Event, Failed, MakeReport, Result, Solve, Solved, Task

# Names of forgotten jobs that are remembered, so that these can be told from others.
_MOST_FORGOTTEN = 10_000


class State(enum.StrEnum):
    """What has become of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Job:
    """A task on its way; only the event loop changes it.

    Attributes:
        name: What clients call it.
        task: What is to be done.
        state: What has become of it.
        events: What has happened so far.
        result: What came of it, if it is done.
        failure: Why it failed or was cancelled.
        report: The job that makes the files of its report, once one was asked for.
    """

    def __init__(self, task: Task):
        """Makes a job that nobody works at yet."""
        self.name = secrets.token_urlsafe(12)
        self.task = task
        self.state = State.QUEUED
        self.events: list[Event] = []
        self.result: Result | None = None
        self.failure: Failed | None = None
        self.report: Job | None = None
        self.asked = time.monotonic()
        self.cancelling = False
        self._news = asyncio.Event()

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state not in (State.QUEUED, State.RUNNING)

    @property
    def size(self) -> int:
        """The bytes that it keeps in memory, nearly."""
        size = sum(len(event.data) for event in self.events)
        if isinstance(self.task, Solve | MakeReport):
            size += self.task.statement.image.nbytes
        if isinstance(self.result, Solved):
            size += len(self.result.data) + self.result.draws.images.nbytes
        if isinstance(self.result, dict):
            size += sum(map(len, self.result.values()))
        if isinstance(self.result, np.ndarray):
            size += self.result.nbytes
        return size + (0 if self.report is None else self.report.size)

    def tell(self, event: Event) -> None:
        """Adds what has happened."""
        self.events.append(event)
        self._wake()

    def move(
        self, state: State, result: Result | None = None, failure: Failed | None = None
    ) -> None:
        """Changes the state; what is finished stays as it is."""
        if not self.finished:
            self.state, self.result, self.failure = state, result, failure
            self._wake()

    async def follow(self, first: int = 0) -> AsyncIterator[tuple[int, Event]]:
        """Yields events from one on, as they come, until the job is finished."""
        while True:
            news, finished = self._news, self.finished
            while first < len(self.events):
                yield first, self.events[first]
                first += 1
            if finished:
                return
            await news.wait()

    async def end(self) -> Result:
        """Waits for the result; a failure is raised as a problem."""
        while not self.finished:
            await self._news.wait()
        if self.result is None:
            assert self.failure is not None
            raise RefusedError(500 if self.failure.fault else 422, self.failure.detail)
        return self.result

    def _wake(self) -> None:
        before, self._news = self._news, asyncio.Event()
        before.set()


class Store:
    """Jobs by name: the latest ones, within a fixed amount of memory."""

    def __init__(self, most_bytes: int, most_jobs: int = 500):
        """Takes what all jobs together may keep in memory, and their largest number."""
        self.most_bytes = most_bytes
        self.most_jobs = most_jobs
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._forgotten: OrderedDict[str, None] = OrderedDict()

    def add(self, job: Job) -> None:
        """Remembers a job, and forgets old ones that are finished for it."""
        self._jobs[job.name] = job
        self.trim()

    def trim(self) -> None:
        """Forgets what was asked for longest ago until the rest is small enough."""
        size = sum(job.size for job in self._jobs.values())
        for name, job in [*self._jobs.items()]:
            if size <= self.most_bytes and len(self._jobs) <= self.most_jobs:
                break
            if job.finished:
                size -= job.size
                del self._jobs[name]
                self._forgotten[name] = None
        while len(self._forgotten) > _MOST_FORGOTTEN:
            self._forgotten.popitem(last=False)

    def find(self, name: str) -> Job:
        """The job of a name, which thereby becomes the last one to be forgotten."""
        if name in self._jobs:
            self._jobs.move_to_end(name)
            return self._jobs[name]
        if name in self._forgotten:
            raise RefusedError(
                410, "This result was forgotten to make room for newer ones: solve again."
            )
        raise RefusedError(404, "There is no job of this name.")

    @property
    def jobs(self) -> list[Job]:
        """All jobs that are remembered, the latest last."""
        return [*self._jobs.values()]
