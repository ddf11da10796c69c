"""The JSON API and the page, on top of the pool of workers."""

import contextlib
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import PurePath
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Depends, FastAPI, Header, Path, Query, Request
from fastapi.responses import HTMLResponse, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from fastapi.staticfiles import StaticFiles

from latentuq import __version__
from latentuq.data.images import IMAGE_SUFFIXES, image_suffix
from latentuq.web.desk import Desk, Settings, draws_of, statement_of
from latentuq.web.guard import Guard
from latentuq.web.jobs import Job
from latentuq.web.pictures import Picture, picture, to_values
from latentuq.web.problems import Problem, RefusedError, explain_errors
from latentuq.web.schema import JobView, Marginal, Models, Read, Samples, SolveRequest, view
from latentuq.web.statement import zipped
from latentuq.web.tasks import Draws, ReadImage, Solved

_STATIC = resources.files("latentuq") / "web" / "static"
_BINS = 32
_KINDS = {
    "report.html": "text/html; charset=utf-8",
    "report.zip": "application/zip",
    "posterior.nc": "application/x-netcdf",
    "overview.png": "image/png",
    "summary.json": "application/json",
    "problem.zip": "application/zip",
}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        404: "There is no such thing.",
        410: "The result was forgotten.",
        422: "Something is wrong with the request.",
        503: "Busy: try again after the seconds in Retry-After.",
    }.items()
}


def make_app(settings: Settings) -> FastAPI:
    """Makes the application; `app.state.desk` is its desk, whose workers start with it."""
    desk = Desk(settings)

    @contextlib.asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        desk.pool.open()
        try:
            yield
        finally:
            desk.pool.close()

    app = FastAPI(
        title="latentuq",
        version=__version__,
        summary="Damaged images, what they could have been, and how far to trust that.",
        lifespan=living,
        docs_url=None,
        redoc_url=None,
        responses=_REFUSALS,
    )
    app.state.desk = desk
    explain_errors(app)
    _add_solving(app, desk)
    _add_results(app, desk)
    _add_page(app)
    app.add_middleware(Guard, access=settings.access)
    _describe_problems(app.openapi())
    return app


def _find(request: Request, name: Annotated[str, Path(max_length=40)]) -> Job:
    return request.app.state.desk.store.find(name)


_Found = Annotated[Job, Depends(_find)]


def _add_solving(app: FastAPI, desk: Desk) -> None:
    @app.get("/api/models", summary="The models and images to begin with")
    async def models() -> Models:
        found = [each.view for each in await desk.pool.describe()]
        return Models(default=desk.settings.default, models=found)

    @app.post("/api/images", summary="Read an image file, sent as the body of the request")
    async def images(
        request: Request,
        model: Annotated[str, Query(max_length=200)],
        name: Annotated[str, Query(max_length=300, description="Its ending tells the kind.")],
        resize: Annotated[Literal["crop", "pad"], Query()] = "crop",
        invert: Annotated[bool, Query(description="Whether it is dark on white.")] = False,
    ) -> Read:
        suffix = image_suffix(PurePath(name).name or "picture")
        known = (*IMAGE_SUFFIXES, ".npy", ".npz")
        if suffix not in known:
            raise RefusedError(422, f"The name of an image ends in {', '.join(known)}.")
        await desk.model(model)
        content = await request.body()
        job = desk.pool.submit(Job(ReadImage(model, suffix, content, resize, invert)))
        values = await job.end()
        assert isinstance(values, np.ndarray)
        rows = np.round(values, 6).tolist()
        return Read(pixels=[[None if each != each else each for each in row] for row in rows])

    @app.post("/api/solve", status_code=202, summary="Begin a reconstruction")
    async def solve(request: SolveRequest) -> JobView:
        statement = request.state(await desk.model(request.model))
        return view(desk.solve(statement, request.replaces), statement)


def _add_results(app: FastAPI, desk: Desk) -> None:
    @app.get("/api/jobs/{name}", summary="What has become of a reconstruction")
    async def job(job: _Found) -> JobView:
        return view(job, statement_of(job))

    @app.delete("/api/jobs/{name}", status_code=202, summary="Cancel it at its next stage")
    async def cancel(job: _Found) -> JobView:
        desk.pool.cancel(job)
        return view(job, statement_of(job))

    @app.get(
        "/api/jobs/{name}/events",
        response_class=EventSourceResponse,
        summary="Its stages as they come: stated, found, then done, failed or cancelled",
    )
    async def events(
        job: _Found, last_event_id: Annotated[int, Header(ge=-1, lt=2**31)] = -1
    ) -> AsyncIterator[ServerSentEvent]:
        async for place, event in job.follow(last_event_id + 1):
            yield ServerSentEvent(raw_data=event.data, event=event.name, id=str(place))
        if isinstance(job.result, Solved):
            yield ServerSentEvent(raw_data=job.result.data, event="done")
        else:
            detail = "" if job.failure is None else job.failure.detail
            yield ServerSentEvent(data={"detail": detail}, event=str(job.state))

    @app.get("/api/jobs/{name}/samples", summary="Posterior images, in random order, without end")
    async def samples(
        job: _Found,
        first: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        count: Annotated[int, Query(ge=1, le=128)] = 64,
        mode: Annotated[int | None, Query(ge=0, lt=100, description="Of one mode alone.")] = None,
    ) -> Samples:
        draws = draws_of(job)
        chosen = (
            np.arange(len(draws.modes)) if mode is None else np.flatnonzero(draws.modes == mode)
        )
        if not len(chosen):
            raise RefusedError(404, f"There are no samples of mode {mode}.")
        index = chosen[np.arange(first, first + count) % len(chosen)]
        return Samples(
            first=first,
            total=len(chosen),
            images=[_encoded(draws, place) for place in index],
            modes=draws.modes[index].tolist(),
        )

    @app.get("/api/jobs/{name}/pixels/{row}/{column}", summary="What one pixel could be")
    async def pixel(
        job: _Found,
        row: Annotated[int, Path(ge=0, lt=4096)],
        column: Annotated[int, Path(ge=0, lt=4096)],
    ) -> Marginal:
        draws = draws_of(job)
        _, height, width = draws.images.shape
        if row >= height or column >= width:
            raise RefusedError(404, f"The image has {height} rows and {width} columns.")
        return _marginal(draws, row, column)

    @app.get("/api/jobs/{name}/files/{file}", summary="A file to keep", response_class=Response)
    async def file(
        job: _Found,
        file: Literal[
            "report.html", "report.zip", "posterior.nc", "overview.png", "summary.json",
            "problem.zip",
        ],
    ) -> Response:  # fmt: skip
        statement = statement_of(job)
        if file == "problem.zip":
            content = zipped(statement.files)
        else:
            draws_of(job)  # What failed has no report.
            files = await desk.files(job)
            place = "figures/overview.png" if file == "overview.png" else file
            content = zipped(files) if file == "report.zip" else files[place]
        headers = {"Content-Disposition": f'attachment; filename="latentuq-{file}"'}
        return Response(content, media_type=_KINDS[file], headers=headers)


def _add_page(app: FastAPI) -> None:
    def page(name: str) -> HTMLResponse:
        return HTMLResponse((_STATIC / name).read_text(encoding="utf-8"))

    @app.get("/", include_in_schema=False)
    async def index() -> HTMLResponse:
        return page("index.html")

    @app.get("/api", include_in_schema=False)
    async def documentation() -> HTMLResponse:
        return page("api.html")

    app.mount("/static", StaticFiles(directory=str(_STATIC)), name="static")


def _describe_problems(document: dict[str, Any]) -> None:
    """Says in the description of the API that errors are problem details."""
    for methods in document["paths"].values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                if status.startswith(("4", "5")):
                    (schema,) = response["content"].values()
                    response["content"] = {"application/problem+json": schema}


def _encoded(draws: Draws, place: int) -> Picture:
    return picture(to_values(draws.images[place], draws.low, draws.high))


def _marginal(draws: Draws, row: int, column: int) -> Marginal:
    values = to_values(draws.images[:, row, column], draws.low, draws.high)
    edges = np.linspace(min(0.0, values.min()), max(1.0, values.max()), _BINS + 1)
    kinds = [*range(max(int(draws.modes.max()), 0) + 1), -1]
    shares = [np.histogram(values[draws.modes == kind], edges)[0] / len(values) for kind in kinds]
    low, high = np.quantile(values, [0.05, 0.95])
    return Marginal(
        row=row,
        column=column,
        edges=edges.tolist(),
        shares=[share.tolist() for share in shares],
        mean=float(values.mean()),
        low=float(low),
        high=float(high),
    )
