"""What clients send, and what they get: the JSON of the API."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from latentuq.web.answer import Answer
from latentuq.web.jobs import Job, State
from latentuq.web.pictures import Picture
from latentuq.web.problems import RefusedError
from latentuq.web.statement import Statement
from latentuq.web.tasks import Model, ModelView, Solved

# The largest width and height of what a client sends pixel by pixel.
_MOST_SIDE = 512

Side = Annotated[list[float | None], Field(min_length=1, max_length=_MOST_SIDE)]
Bits = Annotated[list[Literal[0, 1]], Field(min_length=1, max_length=_MOST_SIDE)]


class SolveRequest(BaseModel):
    """A picture, what has happened to it, and the prior under which it is reconstructed."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: Annotated[str, Field(description="A name from the list of models.", max_length=200)]
    example: Annotated[
        int | None, Field(ge=0, description="The place of an example of the model.")
    ] = None
    pixels: Annotated[
        list[Side] | None,
        Field(
            min_length=1,
            max_length=_MOST_SIDE,
            description="Else the picture row by row, black 0 and white 1; null is missing.",
        ),
    ] = None
    mask: Annotated[
        list[Bits] | None,
        Field(
            min_length=1, max_length=_MOST_SIDE, description="1 where a pixel is observed, else 0."
        ),
    ] = None
    noise: Annotated[
        float, Field(ge=0, le=2, description="Standard deviation, as a share of white.")
    ] = 0.1
    blur: Annotated[
        float, Field(ge=0, le=10, description="Standard deviation in pixels; 0 for none.")
    ] = 0.0
    clean: Annotated[
        bool, Field(description="Whether the picture is clean and is to be corrupted first.")
    ] = True
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    replaces: Annotated[
        str | None, Field(max_length=40, description="A job that is no longer wanted.")
    ] = None

    def state(self, model: Model) -> Statement:
        """What is to be solved, once it is known to be possible."""
        return Statement(
            model.view.name,
            self._image(model),
            None if self.mask is None else _table(self.mask, model, "mask").astype(bool),
            self.noise,
            self.blur,
            self.clean,
            self.seed,
        )

    def _image(self, model: Model) -> np.ndarray:
        if (self.example is None) == (self.pixels is None):
            raise RefusedError(
                422, "Give either the place of an example or the pixels of a picture."
            )
        if self.pixels is not None:
            return _table(self.pixels, model, "picture")
        assert self.example is not None
        if self.example >= len(model.images):
            last = len(model.images) - 1
            raise RefusedError(
                422, f"{model.view.name} has examples 0 to {last}, no {self.example}."
            )
        return model.images[self.example]


def _table(rows: Sequence[Sequence[float | None]], model: Model, what: str) -> np.ndarray:
    """Rows as an array of the shape of the model's images; what is missing is NaN."""
    name, height, width = model.view.name, model.view.height, model.view.width
    if len(rows) != height or any(len(row) != width for row in rows):
        raise RefusedError(422, f"The {what} of {name} needs {height} rows of {width} pixels.")
    table = np.array([[math.nan if each is None else each for each in row] for row in rows])
    if np.isnan(table).all():
        raise RefusedError(422, f"The {what} holds nothing but missing pixels.")
    return table


class Models(BaseModel):
    """The models that a request may name, and the one that is warm from the start."""

    default: str
    models: list[ModelView]


class Read(BaseModel):
    """A picture that was read, brought to the size of a model's images."""

    pixels: list[list[float | None]]


class Stated(BaseModel):
    """The event `stated`: the data that the reconstruction starts from."""

    data: Picture


class Found(BaseModel):
    """The event `found`: modes so far, with their weights once these are certified."""

    stage: str
    message: str
    seconds: float
    modes: list[Picture]
    weights: list[float] | None


class JobView(BaseModel):
    """A job: what has become of it, and its answer if it is done."""

    id: str
    state: State
    detail: str | None = None
    answer: Answer | None = None
    command: str
    python: str


class Samples(BaseModel):
    """Posterior images; `modes` are the places of their modes, -1 for one that is not shown."""

    first: int
    total: int
    images: list[Picture]
    modes: list[int]


class Marginal(BaseModel):
    """The distribution of one pixel: what each bin holds of the posterior, mode by mode.

    The last row of `shares` is that of all modes that are not shown. All shares add up to 1.
    """

    row: int
    column: int
    edges: list[float]
    shares: list[list[float]]
    mean: float
    low: float
    high: float


def view(job: Job, statement: Statement) -> JobView:
    """A job as clients see it."""
    return JobView(
        id=job.name,
        state=job.state,
        detail=None if job.failure is None else job.failure.detail,
        answer=Answer.model_validate_json(job.result.data)
        if isinstance(job.result, Solved)
        else None,
        command=statement.command,
        python=statement.program,
    )
