"""How a fit reports where it stands."""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Progress(NamedTuple):
    """Where a fit stands; `values` are the metrics of a recent step."""

    step: int
    steps: int
    values: Mapping[str, float]


OnProgress = Callable[[str, Progress], None]
"""Called with the stage ("vae", "flow" or "measure") and its progress."""
