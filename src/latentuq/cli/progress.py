"""What long commands show while they work."""

import shlex
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from latentuq.core.text import printable

if TYPE_CHECKING:
    from latentuq.app.progress import Event

# Seconds between two lines of a log file.
_PAUSE = 1.0


def this_command() -> str:
    """The command as it was typed, for reports."""
    return printable(shlex.join(["latentuq", *sys.argv[1:]]))


class Bar:
    """A line that says what is going on, where people look; it goes when the work is done.

    In a log file, which is no terminal, it is one line after another instead, and they stay.
    """

    def __init__(self, quiet: bool = False, clock: ProgressColumn | None = None):
        """Makes the line; `clock` is its column of time, by default of that which has passed."""
        console = Console(stderr=True)
        self.hidden = quiet or not console.is_terminal
        self.quiet = quiet
        self.last: tuple[str, float] | None = None
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            clock or TimeElapsedColumn(),
            console=console,
            transient=True,
            # What is printed meanwhile must not go where the line is if it is on its way to a file.
            redirect_stdout=sys.stdout.isatty(),
            disable=self.hidden,
        )
        self.task = self.progress.add_task("Starting.", total=None)

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show(self, event: "Event") -> None:
        """Shows what is being done, and how much of it is done if that is known."""
        if self.hidden:
            self._print(event)
            return
        if event.fraction is not None:
            self.progress.update(self.task, completed=event.fraction, total=1.0)
        self.progress.update(self.task, description=printable(event.message))

    def _print(self, event: "Event") -> None:
        """Prints what is being done, at most once a second within a stage."""
        stage, seconds = self.last or ("", -_PAUSE)
        if not self.quiet and (event.stage != stage or event.seconds >= seconds + _PAUSE):
            self.last = (event.stage, event.seconds)
            message = printable(event.message)
            print(f"{event.seconds:6.1f} s  {message}", file=sys.stderr, flush=True)

    def count(self, message: str, done: int, total: int | None) -> None:
        """Shows how much of one thing has been done, such as the bytes of a download."""
        self.progress.update(self.task, description=message, completed=done, total=total)
