"""Published ground truth of image posteriors: draws of many runs of SMC, sharpened evidences."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from latentuq.core.errors import UserError
from latentuq.core.tensors import read_tensors
from latentuq.prior import GenerativePrior

KIND = "references"
MODEL_ERROR = "low-rank"
"""Under which the references were computed: their posteriors are not those of another."""


class Reference(NamedTuple):
    """Ground truth of one posterior."""

    log_evidence: float
    error: float
    draws: Float[np.ndarray, "n dim"]


def read_references(path: Path, prior: GenerativePrior) -> dict[tuple[str, int], Reference]:
    """References by (corruption, image), checked to be of this prior."""
    header, arrays = read_tensors(path, KIND)
    if header["setup"]["model"]["checksum"] != prior.card.checksum:
        raise UserError(f"{path} is of another model: run python benchmarks/references.py.")
    found = {}
    for name, cell in header["problems"].items():
        corruption, image = name.rsplit("-", 1)
        found[corruption, int(image)] = Reference(cell["log_evidence"], cell["error"], arrays[name])
    return found
