"""Training state on disk, so that an interrupted run continues to the same result."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latentuq.core.errors import UserError
from latentuq.core.tensors import TensorFile, flatten, read_tensors, unflatten, write_tensors
from latentuq.prior.training.loop import FitState

KIND = "checkpoint"


class Checkpoints:
    """Saves fit states to one file, replacing it whole each time.

    `identity` (configuration and data checksum) must match for a checkpoint to be continued.
    With `path=None` nothing is saved.
    """

    def __init__(self, path: Path | None, identity: dict[str, Any], interval: float = 30.0):
        self._path, self._identity, self._interval = path, identity, interval
        self._saved, self._started, self._earlier = time.monotonic(), time.monotonic(), 0.0
        self._found: TensorFile | None = None

    @property
    def seconds(self) -> float:
        """Training time so far, earlier sessions included."""
        return self._earlier + time.monotonic() - self._started

    def find(self) -> None:
        """Reads the checkpoint to resume from."""
        if self._path is None or not self._path.exists():
            raise UserError(f"There is no checkpoint {self._path} to resume from.")
        found = read_tensors(self._path, KIND)
        if found.header.get("identity") != self._identity:
            raise UserError(
                f"{self._path} belongs to other data or another configuration; "
                "repeat that command, or start anew without --resume."
            )
        self._found, self._earlier = found, float(found.header["seconds"])

    def resume(self, stage: str) -> Callable[[FitState], FitState]:
        """A function that replaces a stage's initial state by the saved one, if there is one."""

        def replace(state: FitState) -> FitState:
            if self._found is None or self._found.header["stage"] != stage:
                return state
            epoch = int(self._found.header["epoch"])
            return unflatten(state._replace(epoch=None), self._found.arrays, "state")._replace(  # pyright: ignore[reportArgumentType]
                epoch=epoch
            )

        return replace

    def finished(self, stage: str, model: Any) -> Any:
        """The stage's final model, if the checkpoint is past that stage; otherwise None."""
        if self._found is None or stage not in self._found.header["finished"]:
            return None
        return unflatten(model, self._found.arrays, stage)

    def saver(self, stage: str, finished: dict[str, Any]) -> Callable[[FitState], None]:
        """A callback that saves the state after an epoch, at most once per interval.

        `finished` holds the final models of earlier stages, which travel along.
        """

        def save(state: FitState) -> None:
            if self._path is None or time.monotonic() - self._saved < self._interval:
                return
            arrays = flatten(state._replace(epoch=None), "state")  # pyright: ignore[reportArgumentType]
            for name, model in finished.items():
                arrays |= flatten(model, name)
            header = {
                "kind": KIND,
                "identity": self._identity,
                "stage": stage,
                "epoch": state.epoch,
                "finished": list(finished),
                "seconds": self.seconds,
            }
            write_tensors(self._path, header, arrays)
            self._saved = time.monotonic()

        return save

    def remove(self) -> None:
        """Deletes the checkpoint of a run that is complete."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
