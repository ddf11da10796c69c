"""What stands between requests and workers: the settings, the jobs, and what is remembered."""

import dataclasses
from collections.abc import Mapping

from latentuq.web.guard import Access
from latentuq.web.jobs import Job, Store
from latentuq.web.pool import Limits, Pool, Work
from latentuq.web.problems import RefusedError
from latentuq.web.statement import Statement
from latentuq.web.tasks import Draws, MakeReport, Model, Solve, Solved
from latentuq.web.worker import run_worker

_MEMORY = 256 * 2**20


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the page is made of.

    Attributes:
        models: The models that may be named: a name or a file for each.
        default: The one that is warm from the start.
        access: Who may ask.
        limits: How much is done at once.
        memory: The bytes that all results together may take.
        work: What a worker process does.
    """

    models: Mapping[str, str]
    default: str
    access: Access = Access()
    limits: Limits = Limits()
    memory: int = _MEMORY
    work: Work = run_worker


class Desk:
    """Takes requests, hands them to workers, and remembers what came of them."""

    def __init__(self, settings: Settings):
        """Makes a desk without any worker; `pool.open` starts them."""
        self.settings = settings
        self.pool = Pool(settings.models, settings.default, settings.limits, settings.work)
        self.store = Store(settings.memory)

    async def model(self, name: str) -> Model:
        """A model by its name."""
        for each in await self.pool.describe():
            if each.view.name == name:
                return each
        raise RefusedError(422, f"The models are {', '.join(self.settings.models)}.")

    def solve(self, statement: Statement, replaces: str | None) -> Job:
        """Begins to solve, and gives up what it replaces."""
        for each in self.store.jobs:
            if each.name == replaces:
                self.pool.cancel(each)
        job = self.pool.submit(Job(Solve(statement)))
        self.store.add(job)
        return job

    async def files(self, job: Job) -> dict[str, bytes]:
        """The files of a job's report, which is written when it is first asked for."""
        if job.report is None or job.report.failure is not None:
            job.report = self.pool.submit(Job(MakeReport(statement_of(job))))
        files = await job.report.end()
        assert isinstance(files, dict)
        self.store.trim()
        return files


def statement_of(job: Job) -> Statement:
    """What a job solves."""
    assert isinstance(job.task, Solve)  # Only such jobs are remembered.
    return job.task.statement


def draws_of(job: Job) -> Draws:
    """The draws of a job that is done."""
    if isinstance(job.result, Solved):
        return job.result.draws
    if job.failure is not None:
        raise RefusedError(404, f"This reconstruction has no result: {job.failure.detail}")
    raise RefusedError(404, "This reconstruction is not done yet.")
