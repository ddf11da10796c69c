"""What a worker process is asked to do, and what it answers: messages between our own processes."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8
from pydantic import BaseModel

from latentuq.web.pictures import Picture
from latentuq.web.statement import Statement


class ReadImage(NamedTuple):
    """Read an image that somebody sent, for a model.

    Attributes:
        model: The name of the model, whose images have the shape that is wanted.
        suffix: The end of the name of the file, which tells its kind.
        content: The bytes of the file.
        resize: How it may be resized, "crop" or "pad".
        invert: Whether it is dark on white.
    """

    model: str
    suffix: str
    content: bytes
    resize: str
    invert: bool


class Solve(NamedTuple):
    """Solve a problem, telling every stage."""

    statement: Statement


class MakeReport(NamedTuple):
    """Do what the command of a statement does, and return the files of its report."""

    statement: Statement


Task = ReadImage | Solve | MakeReport


class Event(NamedTuple):
    """Something that happened to a task; the data are JSON."""

    name: str
    data: str


class Failed(NamedTuple):
    """Why a task was not done: a sentence; `fault` says that the client could not help it."""

    detail: str
    fault: bool = False


class Draws(NamedTuple):
    """Posterior images for the flip-book and for the distributions of pixels.

    Attributes:
        images: One byte per pixel, see `pictures`.
        modes: The place of each draw's mode among those shown; -1 for any other.
        low: The value of byte 0.
        high: The value of the highest byte.
    """

    images: UInt8[np.ndarray, "n height width"]
    modes: Int[np.ndarray, " n"]
    low: float
    high: float


class Solved(NamedTuple):
    """The answer to `Solve`: the JSON that the page shows, and draws."""

    data: str
    draws: Draws


class Example(BaseModel):
    """An image of a model that may be damaged; `label` says what it is."""

    label: str
    image: Picture


class ModelView(BaseModel):
    """A model, and images that may be damaged; `check` is what calibration has shown of it."""

    name: str
    height: int
    width: int
    dim: int
    check: str | None
    examples: list[Example]


class Model(NamedTuple):
    """A model as clients see it, and the images of its examples as they are."""

    view: ModelView
    images: list[Float[np.ndarray, "height width"]]


Result = Solved | dict[str, bytes] | Float[np.ndarray, "height width"]


class Order(NamedTuple):
    """From the server: do this; numbers tell orders of one worker apart."""

    number: int
    task: Task


class Cancel(NamedTuple):
    """From the server: stop doing the order of this number."""

    number: int


class Catalogue(NamedTuple):
    """From a worker, first of all: the models with their examples."""

    models: list[Model]


class Ready(NamedTuple):
    """From a worker: its programs are warm."""


class Done(NamedTuple):
    """From a worker: the result of the order."""

    result: Result


class Stopped(NamedTuple):
    """From a worker: the order was cancelled."""
