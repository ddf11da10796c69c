"""A worker process: one task at a time, from one pipe, with its programs warm."""

import contextlib
import os
import signal
import tempfile
import time
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

import jax
import numpy as np

from latentuq.app.progress import Event as Message
from latentuq.app.progress import Stages
from latentuq.app.reconstruct import Request, reconstruct
from latentuq.app.solving import Given, Solver
from latentuq.core.compilation import keep_compiled
from latentuq.core.errors import UserError
from latentuq.core.reading import VARIABLE, most_bytes
from latentuq.data.digits import load_digits
from latentuq.data.observation import Units, read_observation
from latentuq.posterior.maps import decode_images
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_file import load_prior
from latentuq.report.figures import data_range
from latentuq.web.answer import make_answer
from latentuq.web.pictures import picture
from latentuq.web.schema import Found, Stated
from latentuq.web.statement import IMAGE, Statement
from latentuq.web.tasks import (
    Cancel,
    Catalogue,
    Done,
    Event,
    Example,
    Failed,
    MakeReport,
    Model,
    ModelView,
    Order,
    ReadImage,
    Ready,
    Result,
    Solve,
    Solved,
    Stopped,
    Task,
)

# What an image that somebody sends may take in memory: 33 million pixels.
_MOST_BYTES = 2**28
# Priors that stay in memory.
_MOST_PRIORS = 4
# Images of a model that come along as examples.
_MOST_EXAMPLES = 40
_SAMPLED_EXAMPLES = 12


class CancelledTaskError(Exception):
    """The server has asked to stop."""


class Worker:
    """Does tasks, and tells a pipe what comes of them."""

    def __init__(self, pipe: Connection, models: Mapping[str, str]):
        """Takes the pipe, and the models that may be named: a name or a file for each."""
        self.pipe = pipe
        self.models = models
        self.number = 0
        self.priors: OrderedDict[str, GenerativePrior] = OrderedDict()

    def do(self, task: Task) -> Result:
        """Does one task."""
        match task:
            case ReadImage():
                return self._read(task)
            case Solve():
                return self._solve(task.statement)
            case MakeReport():
                return self._report(task.statement)

    def warm_up(self, name: str) -> None:
        """Loads or compiles what the first strokes on images of a model will need."""
        prior = self._prior(name)
        image = np.asarray(prior.sample(jax.random.key(0), 1)[0], np.float64)
        mask = np.ones(prior.shape, bool)
        mask[: len(mask) // 2] = False
        for blur in (0.0, 1.0):
            statement = Statement(name, np.clip(image, 0, 1), mask, 0.1, blur)
            self._solve(statement, quiet=True)

    def _prior(self, name: str) -> GenerativePrior:
        prior = self.priors.pop(name, None) or load_prior(self.models[name])
        if len(prior.shape) != 2:
            raise UserError(f"The page needs a model of grey images, which {name} is not.")
        self.priors[name] = prior
        while len(self.priors) > _MOST_PRIORS:
            self.priors.popitem(last=False)
        return prior

    def describe(self, name: str) -> Model:
        """A model, with images that may be damaged."""
        prior = self._prior(name)
        card, digits = prior.card, load_digits()
        if card.held_out is not None:
            found = [
                (f"held-out image {place + 1}", each) for place, each in enumerate(card.held_out)
            ]
        elif card.training.get("data") == "mnist" and prior.shape == digits.images.shape[1:]:
            found = [
                (f"a {label}, MNIST test image {index}", image)
                for label, index, image in zip(
                    digits.labels, digits.indices, digits.images, strict=True
                )
            ]
        else:
            drawn = np.asarray(prior.sample(jax.random.key(0), _SAMPLED_EXAMPLES))
            found = [
                (f"drawn from the model, number {place + 1}", np.clip(each, 0, 1))
                for place, each in enumerate(drawn)
            ]
        found = found[:_MOST_EXAMPLES]
        view = ModelView(
            name=name,
            height=prior.shape[0],
            width=prior.shape[1],
            dim=prior.dim,
            check=None if card.check is None else card.check.word,
            examples=[Example(label=label, image=picture(image)) for label, image in found],
        )
        return Model(view, [np.asarray(image, np.float64) for _, image in found])

    def _read(self, task: ReadImage) -> np.ndarray:
        prior = self._prior(task.model)
        with tempfile.TemporaryDirectory(prefix="latentuq-") as folder:
            path = Path(folder) / f"picture{task.suffix}"
            path.write_bytes(task.content)
            try:
                with warnings.catch_warnings(action="ignore"):
                    found = read_observation(path, prior.scaling, 2, Units(invert=task.invert))
                    if found.raw.shape != prior.shape:
                        found = found.resized(prior.shape, task.resize)
            except UserError as error:
                raise UserError(str(error).replace(f"{folder}/", "")) from None
        return (found.raw - found.scaling.offset) / found.scaling.scale

    def _solve(self, statement: Statement, quiet: bool = False) -> Solved:
        began = time.perf_counter()
        prior, key = self._prior(statement.model), jax.random.key(statement.seed)
        solver = Solver(prior, statement.specification, corrupt=statement.corrupt)
        given = Given(statement.image, IMAGE)

        def follow(message: Message) -> None:
            if quiet:
                return
            found, images, weights = message.found, [], None
            if found is not None and len(found.modes):
                images = [picture(np.asarray(x)) for x in decode_images(prior, found.modes)]
                weights = None if found.weights is None else np.asarray(found.weights).tolist()
            stage = found.stage if found is not None else message.stage
            seconds = time.perf_counter() - began
            told = Found(
                stage=stage, message=message.message, seconds=seconds, modes=images, weights=weights
            )
            self._tell("found", told.model_dump_json())

        if not quiet:
            data = np.asarray(solver.state(key, given).y)
            stated = Stated(data=picture(data, *data_range(data)))
            self._tell("stated", stated.model_dump_json())
        solved = solver.solve(key, given, Stages(follow), quiet=True)
        answer, draws = make_answer(key, solved, time.perf_counter() - began)
        return Solved(answer.model_dump_json(), draws)

    def _report(self, statement: Statement) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory(prefix="latentuq-") as name:
            folder = Path(name)
            (folder / IMAGE).write_bytes(statement.files[IMAGE])
            request = Request(
                image=folder / IMAGE,
                folder=folder / "report",
                specification=statement.specification,
                corrupt=statement.corrupt,
                seed=statement.seed,
                command=statement.command,
            )
            with warnings.catch_warnings(action="ignore"):
                reconstruct(request, lambda _: self._check(), prior=self._prior(statement.model))
            files = sorted(path for path in request.folder.rglob("*") if path.is_file())
            return {str(path.relative_to(request.folder)): path.read_bytes() for path in files}

    def _tell(self, name: str, data: str) -> None:
        self._check()
        self.pipe.send(Event(name, data))

    def _check(self) -> None:
        """Stops the task if the server has said so; it says nothing else while a task is done."""
        while self.pipe.poll():
            if self.pipe.recv() == Cancel(self.number):
                raise CancelledTaskError


def run_worker(pipe: Connection, models: Mapping[str, str], warm: str) -> None:
    """What a worker process does from its beginning to the end of its pipe.

    Args:
        pipe: Where orders come from, and messages go to.
        models: The models that may be named: a name or a file for each.
        warm: The model whose programs are made ready before the first order.
    """
    # An interrupt is for the server, which ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ[VARIABLE] = str(min(most_bytes(), _MOST_BYTES))
    keep_compiled()
    worker = Worker(pipe, models)
    with contextlib.suppress(EOFError, OSError):
        pipe.send(Catalogue([worker.describe(name) for name in models]))
        worker.warm_up(warm)
        pipe.send(Ready())
        while True:
            if isinstance(order := pipe.recv(), Order):
                worker.number = order.number
                pipe.send(_outcome(worker, order.task))


def _outcome(worker: Worker, task: Task) -> Done | Failed | Stopped:
    """What came of a task; whatever goes wrong in it must not end the process."""
    try:
        return Done(worker.do(task))
    except CancelledTaskError:
        return Stopped()
    except UserError as error:
        return Failed(str(error))
    except (EOFError, BrokenPipeError):
        raise
    except MemoryError:
        return Failed("There is not enough memory for this: use a smaller image.", fault=True)
    except Exception:
        traceback.print_exc()
        return Failed("Something went wrong in the worker, which has logged it.", fault=True)
