"""What the page on a survey needs to know of all images."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from latentuq.core.text import printable
from latentuq.report.palette import MODES
from latentuq.survey.layout import FAILED, RELIABLE, STATUSES, UNRELIABLE
from latentuq.survey.store import Store

UNSOLVED = "not yet solved"
COLOURS = {RELIABLE: MODES[0], UNRELIABLE: MODES[1], FAILED: "#3d3d3d", UNSOLVED: "#d0d0d0"}
NUMBERS = (
    "log_evidence",
    "reduced_chi_squared",
    "predictive_p_value",
    "uncertainty",
    "surprise",
    "seconds",
)


@dataclass(frozen=True, eq=False)
class Findings:
    """What the page needs to know of all images.

    Attributes:
        store: The store.
        status: What each image is, as a place in `COLOURS`.
        numbers: The numbers of all images by name, NaN where there are none.
        texts: The names, reasons and errors of all images.
        times: When each chunk was finished; NaN if it is not.
    """

    store: Store
    status: Int[np.ndarray, " images"]
    numbers: Mapping[str, Float[np.ndarray, " images"]]
    texts: Mapping[str, np.ndarray]
    times: Float[np.ndarray, " chunks"]

    def are(self, word: str) -> Bool[np.ndarray, " images"]:
        return self.status == [*COLOURS].index(word)

    def word(self, image: int) -> str:
        return [*COLOURS][self.status[image]]

    def text(self, kind: str, image: int) -> str:
        return printable(str(self.texts[kind][image]))


def read_findings(store: Store) -> Findings:
    """Reads numbers and texts of all images, and when their chunks were finished."""
    times = np.full(len(store.chunks), np.nan)
    for marker in store.run.glob("[0-9]*.done"):
        times[int(marker.stem)] = marker.stat().st_mtime
    # What is there of a chunk without a marker may be half of it.
    done = np.repeat(np.isfinite(times), store.chunk)[: store.images]
    word = store.column("status")
    status = np.select([done & (word == each) for each in STATUSES], [0, 1, 2], 3)
    numbers = {name: np.where(done, store.column(name), np.nan) for name in NUMBERS}
    modes, weights = store.column("modes_found"), store.column("weights")
    numbers["modes_found"] = np.where(done & (modes >= 0), modes, np.nan)
    numbers["heaviest"] = np.where(done, np.fmax.reduce(weights, axis=1), np.nan)
    texts = {name: store.column(name) for name in ("name", "reasons", "error")}
    return Findings(store, status, numbers, texts, times)


def measure_rate(found: Findings) -> float:
    """Images solved per second, from when their chunks were finished; 0 if there are none.

    Pauses do not count: of the time between two chunks no more than what the later one took.
    """
    seconds, firsts = found.numbers["seconds"], np.arange(0, found.store.images, found.store.chunk)
    work = np.add.reduceat(np.nan_to_num(seconds), firsts)
    order = np.argsort(found.times)[: np.count_nonzero(np.isfinite(found.times))]
    gaps = np.diff(found.times[order], prepend=-math.inf)
    elapsed = float(np.sum(np.minimum(gaps, work[order])))
    return np.count_nonzero(np.isfinite(seconds)) / elapsed if elapsed > 0 else 0.0
