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


def this_command() -> str:
    """The command as it was typed, for reports."""
    return printable(shlex.join(["latentuq", *sys.argv[1:]]))


class Bar:
    """A line that says what is going on, where people look; it goes when the work is done."""

    def __init__(self, quiet: bool = False, clock: ProgressColumn | None = None):
        """Makes the line; `clock` is its column of time, by default of that which has passed."""
        console = Console(stderr=True)
        self.hidden = quiet or not console.is_terminal
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            clock or TimeElapsedColumn(),
            console=console,
            transient=True,
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
        if event.fraction is not None:
            self.progress.update(self.task, completed=event.fraction, total=1.0)
        self.progress.update(self.task, description=event.message)

    def count(self, message: str, done: int, total: int | None) -> None:
        """Shows how much of one thing has been done, such as the bytes of a download."""
        self.progress.update(self.task, description=message, completed=done, total=total)
