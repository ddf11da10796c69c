"""A whole survey: every chunk of it solved by a worker, and nothing lost on the way."""

import json
import logging
import math
import os
import secrets
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from latentuq.core.cores import available_cores
from latentuq.core.errors import UserError
from latentuq.core.files import exclusive, make_folder
from latentuq.core.text import show_time
from latentuq.survey.layout import STATUSES
from latentuq.survey.page import write_page
from latentuq.survey.prepare import BatchRequest, plan_store, prepare_store
from latentuq.survey.store import Store, needs_zarr, open_store
from latentuq.survey.work import (
    MOST_DEATHS,
    Job,
    begin_run,
    end_run,
    progress_path,
    read_progress,
    solve_chunk,
)

# Seconds between two looks at what the workers say; the rate is that of the last two minutes.
_PAUSE, _WINDOW = 0.5, 120.0
# Seconds to wait for a scheduler, and for workers of our own.
_PATIENCE, _LONELY = 10, 120.0

# Dask would set MALLOC_TRIM_THRESHOLD_ too, so that memory goes back to the system at once: a solve
# then takes nearly twice as long, half of it in the kernel.
_ENVIRONMENT = {"DASK_LOGGING__DISTRIBUTED": "critical", "OMP_NUM_THREADS": "1"}
_CLUSTER = {
    "distributed.nanny.pre-spawn-environ": _ENVIRONMENT,
    # Dask would give up a worker for good whose successor needs more than 15 seconds to begin,
    # which on a busy machine it does.
    "distributed.deploy.lost-worker-timeout": "1 day",
}

RESUMABLE = "Finished images are kept; the same command with --resume goes on."
"""What to say when a run has to stop."""
_GONE = f"The scheduler is gone, or has dropped the work. {RESUMABLE}"
_LOUD = ("distributed", "tornado", "bokeh")


class Tally(NamedTuple):
    """How far a survey has come.

    Attributes:
        doing: What is being done, in a sentence.
        images: The number of images of the survey.
        counts: How many have become what.
        seconds: The time since the run began.
        rate: The images that are solved in a second at the moment; NaN if it is not known yet.
    """

    doing: str
    images: int = 0
    counts: Mapping[str, int] = {}
    seconds: float = 0.0
    rate: float = math.nan

    @property
    def done(self) -> int:
        """The images that are solved or have failed."""
        return sum(self.counts.values())

    @property
    def seconds_left(self) -> float:
        """The time that the rest will take; NaN if the rate is not known."""
        return (self.images - self.done) / self.rate if self.rate > 0 else math.nan

    def __str__(self) -> str:
        if not self.images:
            return self.doing.rstrip(".")
        pace = ""
        if self.rate > 0 and self.done < self.images:
            pace = f", {self.rate:.2g} per second, {show_time(self.seconds_left)} left"
        found = ", ".join(f"{self.counts.get(status, 0):,} {status}" for status in STATUSES)
        return f"{self.done:,} of {self.images:,} images{pace}: {found}"

    def to_json(self) -> dict[str, Any]:
        """The numbers for a line of JSON, which knows no NaN."""
        numbers = {"rate": self.rate, "seconds_left": self.seconds_left}
        known = {name: round(v, 3) if math.isfinite(v) else None for name, v in numbers.items()}
        counts = {status: self.counts.get(status, 0) for status in STATUSES}
        head = {"message": self.doing, "images": self.images, "done": self.done}
        return head | counts | {"seconds": round(self.seconds, 1)} | known


Listener = Callable[[Tally], None]


def run_batch(request: BatchRequest, listen: Listener = lambda _: None) -> Store:
    """Solves all images of a survey and writes a store, and a page on it beside it.

    What is finished is never lost: a run that ends early, for whatever reason, can be resumed, and
    its results are those of a run that was not interrupted.

    Args:
        request: What is to be solved.
        listen: Called with a `Tally` about twice a second.

    Raises:
        UserError: Something is wrong with the request, or the run had to stop.
    """
    needs_zarr()
    listen(Tally("Reading the survey."))
    planned, problem = plan_store(request)
    make_folder(planned.path.resolve().parent)
    with exclusive(planned.path.resolve()):
        prepare_store(request, planned, problem)
        store = open_store(planned.path)
        tally = _Counter(store, listen)
        if tally.missing:
            _solve(request, store, tally)
        tally.tell("Writing the page.")
        write_page(store)
    return store


class _Counter:
    """Counts images and tells how far the survey has come."""

    def __init__(self, store: Store, listen: Listener):
        self.store, self.listen = store, listen
        self.doing, self.started = "", time.monotonic()
        done = store.finished()
        self.finished = Counter[str]()
        for counts in done.values():
            self.finished.update(counts)
        self.missing = [chunk for chunk in store.chunks if chunk not in done]
        # When how many images were done.
        self.history: deque[tuple[float, int]] = deque()

    def add(self, chunk: int) -> None:
        """Counts the images of a chunk that has been finished."""
        self.finished.update(json.loads(self.store.marker(chunk).read_text()))

    def tell(self, doing: str = "", under_way: tuple[int, ...] = ()) -> None:
        """Tells how many images are done, those of chunks that are under way included."""
        self.doing = doing or self.doing
        counts = Counter(self.finished)
        for chunk in under_way:
            counts.update(read_progress(progress_path(self.store, chunk)).get("counts", {}))
        now, done = time.monotonic(), sum(counts.values())
        if not self.history or done > self.history[-1][1]:
            self.history.append((now, done))
        while self.history[0][0] < now - _WINDOW and len(self.history) > 2:
            self.history.popleft()
        then, before = self.history[0]
        rate = (done - before) / (now - then) if done > before else math.nan
        seconds = now - self.started
        self.listen(Tally(self.doing, self.store.images, counts, seconds, rate))


def _solve(request: BatchRequest, store: Store, tally: _Counter) -> None:
    """Gives all chunks that are missing to workers."""
    waiting, kills = deque(tally.missing), Counter[int]()
    pending: dict[Future[None], int] = {}
    local = request.scheduler is None and request.workers != 0
    job = Job(request.plan.absolute(), str(store.path.resolve()), secrets.token_hex(8), local)
    begin_run(store, job.token)
    try:
        with _workers(request, len(waiting), tally) as (pool, room):
            while waiting or pending:
                free = room() - len(pending)
                for _ in range(min(free, len(waiting))):
                    chunk = waiting.popleft()
                    pending[pool.submit(solve_chunk, job, chunk)] = chunk
                if not pending:  # Nobody is there to work.
                    time.sleep(_PAUSE)
                done, _ = wait(pending, _PAUSE, FIRST_COMPLETED)
                for future in done:
                    chunk = pending.pop(future)
                    if _was_killed(store, chunk, future, kills):
                        waiting.append(chunk)
                    else:
                        tally.add(chunk)
                tally.tell(under_way=tuple(pending.values()))
    finally:
        end_run(store)


def _was_killed(store: Store, chunk: int, future: Future[None], kills: Counter[int]) -> bool:
    """Whether the workers of a chunk have died, and it is worth another try.

    Raises:
        UserError: The chunk failed, or its workers die whatever is tried.
    """
    try:
        error = future.exception()
    except CancelledError:
        raise UserError(_GONE) from None
    if error is None:
        return False
    if isinstance(error, UserError):
        raise UserError(f"{error} {RESUMABLE}")
    if type(error).__name__ != "KilledWorker":  # The class is Dask's, which may not be here.
        raise UserError(f"Chunk {chunk} failed: {type(error).__name__}: {error}.") from error
    # Dask gives up after four deaths, of which three make an image an error: every try ends with
    # one image less, at least, unless the chunk only waited at a worker that another one killed.
    kills[chunk] += 1
    begun = "image" in read_progress(progress_path(store, chunk))
    if kills[chunk] > MOST_DEATHS + begun * len(store.members(chunk)):
        raise UserError(
            "The workers die before they can solve anything, perhaps for lack of memory: try fewer"
            f" workers. {RESUMABLE}"
        )
    return True


@contextmanager
def _workers(
    request: BatchRequest, chunks: int, tally: _Counter
) -> Iterator[tuple[Executor, Callable[[], int]]]:
    """Yields what solves chunks, and a function that says how many to give it at once."""
    if request.scheduler is None and request.workers == 0:
        pool = ThreadPoolExecutor(1)
        tally.tell("Solving in this process.")
        try:
            yield pool, lambda: 1
        finally:
            end_run(tally.store)
            pool.shutdown(cancel_futures=True)
        return
    with _client(request, chunks, tally) as client:
        seen = time.monotonic()

        def room() -> int:
            # One for each process: work that waits at a worker is suspected if that dies.
            nonlocal seen
            try:
                found = len(client.nthreads())
            except OSError:
                raise UserError(_GONE) from None
            if found:
                seen = time.monotonic()
            # Workers of a cluster may be on their way; those of our own are replaced in seconds.
            elif request.scheduler is None and time.monotonic() > seen + _LONELY:
                raise UserError(f"The workers died, and none starts any more. {RESUMABLE}")
            return found

        yield client.get_executor(pure=False), room


@contextmanager
def _client(request: BatchRequest, chunks: int, tally: _Counter) -> Iterator[Any]:
    """Yields a client of the scheduler that was named, or of one with processes on this machine."""
    try:
        import distributed
        from dask.config import set as set_config
    except ImportError as error:
        raise UserError(
            "Workers need Dask: install it with pip install latentuq[batch], or solve in this"
            " process with --workers 0."
        ) from error
    # Each of their loggers has a level of its own.
    for name in (*_LOUD, *logging.root.manager.loggerDict):
        if name.partition(".")[0] in _LOUD:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    if request.scheduler is not None:
        try:
            client = distributed.Client(request.scheduler, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UserError(f"There is no scheduler at {request.scheduler}: {error}.") from error
        with client:
            where = f"{request.scheduler}; dashboard {client.dashboard_link}"
            tally.tell(f"Solving with the workers of {where}.")
            yield client
        return
    count = min(request.workers or len(available_cores()), chunks)
    workers = "1 worker" if count == 1 else f"{count} workers"
    tally.tell(f"Starting {workers}.")
    with set_config(_CLUSTER):
        cluster = distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )
        client = distributed.Client(cluster, set_as_default=False)
        try:
            tally.tell(f"Solving with {workers}; dashboard {client.dashboard_link}.")
            yield client
        finally:
            # All that is worth keeping is on the disk; waiting for workers to end would take long.
            for nanny in cluster.workers.values():
                with suppress(OSError, TypeError):
                    os.kill(nanny.pid, signal.SIGKILL)
            client.close(timeout=1)
            cluster.close()
