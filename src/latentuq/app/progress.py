"""What a long piece of work says while it goes on, and how long its stages took."""

import time
from collections.abc import Callable
from typing import NamedTuple

from latentuq.core.compilation import compile_clock
from latentuq.inference.result import COMPILING, Progress

# The stage that each message of the inference ends.
_INFERENCE = {"map": "search", "modes": "search", "fitted": "fit", "certified": "certify"}


class Event(NamedTuple):
    """Something that a person who waits would like to know.

    Attributes:
        stage: The stage that ended last; empty at the very beginning.
        message: A sentence on what was found, or on what is done now.
        fraction: The share of the work that is done, between 0 and 1; None if it is not known.
        seconds: The seconds since the work began.
        found: What the inference has found so far, where that is what there is to say.
    """

    stage: str
    message: str
    fraction: float | None
    seconds: float
    found: Progress | None = None


Listener = Callable[[Event], None]


class Stages:
    """Measures the seconds of each stage, those of compiling apart, and tells a listener."""

    def __init__(self, listen: Listener | None = None, started: float | None = None):
        """Begins the first stage.

        Args:
            listen: Called with every event.
            started: When the work began, on the clock of `time.perf_counter`; now, if not given.
        """
        self.listen = listen
        self.started = self.last = time.perf_counter() if started is None else started
        self.clock = compile_clock()
        self.compiled = self.clock.seconds
        self.stage = ""
        self.seconds: dict[str, float] = {"start-up": 0.0, "compile": 0.0}

    def end(self, stage: str) -> None:
        """Counts to this stage what has passed since the last one ended."""
        now, compiled = time.perf_counter(), self.clock.seconds
        compiling = compiled - self.compiled
        for name, spent in ((stage, now - self.last - compiling), ("compile", compiling)):
            self.seconds[name] = round(self.seconds.get(name, 0.0) + spent, 3)
        self.stage, self.last, self.compiled = stage, now, compiled

    def say(
        self, message: str, fraction: float | None = None, found: Progress | None = None
    ) -> None:
        """Tells the listener what is being done."""
        if self.listen is not None:
            seconds = time.perf_counter() - self.started
            self.listen(Event(self.stage, message, fraction, seconds, found))

    def follow(self, progress: Progress) -> None:
        """Ends the stage that a message of the inference ends, and passes the message on."""
        if progress.stage == COMPILING:
            self.say(progress.message)
            return
        self.end(_INFERENCE[progress.stage])
        done = [*_INFERENCE].index(progress.stage) + 1
        self.say(progress.message, done / (len(_INFERENCE) + 1), progress)
