"""How a fit reports where it stands."""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Progress(NamedTuple):
    """Where a stage stands.

    Attributes:
        step: The number of steps that are done.
        steps: The number of all steps.
        values: The metrics of a recent step.
        message: What is done now, in words, where metrics do not tell it.
    """

    step: int
    steps: int
    values: Mapping[str, float]
    message: str = ""


OnProgress = Callable[[str, Progress], None]
"""Called with the stage ("vae", "flow", "measure" or "check") and its progress."""
