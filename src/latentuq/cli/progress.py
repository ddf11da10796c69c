"""What long commands show while they work, and how long each stage took."""

import sys
import time
from typing import TYPE_CHECKING, Any

from latentuq.cli import STARTED

if TYPE_CHECKING:
    from latentuq.core.compilation import CompileClock

SEARCHING = "Searching for modes (a first run compiles, some 15 seconds)."
# The stage that each message of the inference ends.
_STAGES = {"map": "search", "modes": "search", "fitted": "fit", "certified": "certify"}


class Stages:
    """Seconds of each stage, and of compiling apart from them."""

    def __init__(self, clock: "CompileClock"):
        self.clock = clock
        self.last, self.compiled = STARTED, 0.0
        self.seconds: dict[str, float] = {"start-up": 0.0, "compile": 0.0}

    def mark(self, stage: str) -> None:
        """What has passed since the last mark belongs to this stage."""
        now, compiled = time.perf_counter(), self.clock.seconds
        spent = now - self.last - (compiled - self.compiled)
        self.seconds[stage] = round(self.seconds.get(stage, 0.0) + spent, 3)
        self.seconds["compile"] = round(compiled, 3)
        self.last, self.compiled = now, compiled

    def follow(self, progress: Any) -> None:
        """Marks what a message of the inference ends."""
        self.mark(_STAGES[progress.stage])


class Bar:
    """A line that says what is going on, where people look.

    It measures the progress of one inference; with `pulsing` it only shows that work goes on.
    """

    def __init__(self, quiet: bool, pulsing: bool = False):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=quiet or not sys.stderr.isatty(),
        )
        total = None if pulsing else len(_STAGES) + 1
        self.task = self.progress.add_task(SEARCHING, total=total)

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def say(self, text: str) -> None:
        """Shows what is being done."""
        self.progress.update(self.task, description=text)

    def show(self, progress: Any) -> None:
        """Moves on to the next stage."""
        done = [*_STAGES].index(progress.stage) + 1
        self.progress.update(self.task, completed=done, description=progress.message)
