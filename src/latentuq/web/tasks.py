"""What a worker process is asked to do, and what it answers: messages between our own processes."""

import dataclasses

import numpy as np
from jaxtyping import Float, Int, UInt8

from latentuq.web.statement import Statement


@dataclasses.dataclass(frozen=True)
class ReadImage:
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


@dataclasses.dataclass(frozen=True)
class Solve:
    """Solve a problem, telling every stage."""

    statement: Statement


@dataclasses.dataclass(frozen=True)
class MakeReport:
    """Do what the command of a statement does, and return the files of its report."""

    statement: Statement


Task = ReadImage | Solve | MakeReport


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to a task; the data are JSON."""

    name: str
    data: str


@dataclasses.dataclass(frozen=True)
class Failed:
    """Why a task was not done: a sentence; `fault` says that the client could not help it."""

    detail: str
    fault: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
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


@dataclasses.dataclass(frozen=True, eq=False)
class Solved:
    """The answer to `Solve`: the JSON that the page shows, and draws."""

    data: str
    draws: Draws


@dataclasses.dataclass(frozen=True, eq=False)
class Example:
    """An image of a model that may be damaged; `label` says what it is."""

    label: str
    image: Float[np.ndarray, "height width"]


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A model that clients may name."""

    name: str
    shape: tuple[int, ...]
    dim: int
    check: str | None
    examples: list[Example]


Result = Solved | dict[str, bytes] | Float[np.ndarray, "height width"]


@dataclasses.dataclass(frozen=True)
class Order:
    """From the server: do this; numbers tell orders of one worker apart."""

    number: int
    task: Task


@dataclasses.dataclass(frozen=True)
class Cancel:
    """From the server: stop doing the order of this number."""

    number: int


@dataclasses.dataclass(frozen=True, eq=False)
class Catalogue:
    """From a worker, first of all: the models with their examples."""

    models: list[Model]


@dataclasses.dataclass(frozen=True)
class Ready:
    """From a worker: its programs are warm."""


@dataclasses.dataclass(frozen=True)
class Done:
    """From a worker: the result of the order."""

    result: Result


@dataclasses.dataclass(frozen=True)
class Stopped:
    """From a worker: the order was cancelled."""
