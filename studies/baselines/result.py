"""What every baseline is given and returns, and how independent runs are pooled."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Shaped

from latentuq import UserError

LogDensity = Callable[[Float[Array, " dim"]], Float[Array, ""]]
"""Unnormalised log density of one point."""


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """Draws from an approximation of a density, its evidence and what they cost.

    Attributes:
        draws: Equally weighted draws.
        log_evidence: An estimate of the logarithm of the density's integral; None if the method has
            none.
        log_evidence_error: The standard error of that; None if one run cannot tell.
        seconds: Time of the computation, without compilation.
        compile_seconds: Time of tracing and compilation.
        gradients: Gradients evaluated.
        forward_equivalents: Cost with a forward evaluation as 1 and a gradient as 3.
        history: What the method recorded on its way, by name.
        facts: What else a table of the bench says of it.
    """

    draws: Float[np.ndarray, "n dim"]
    log_evidence: float | None
    log_evidence_error: float | None
    seconds: float
    compile_seconds: float
    gradients: int
    forward_equivalents: int
    history: Mapping[str, Shaped[np.ndarray, "..."]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def pool_evidence(log_evidences: Sequence[float]) -> tuple[float, float]:
    """The logarithm of the mean evidence of independent runs, and its standard error.

    Evidences are averaged, not their logarithms: the mean of unbiased estimates is unbiased. The
    error is that of the mean, relative to it: to first order the error of its logarithm.
    """
    values = np.asarray(log_evidences, np.float64)
    if values.size < 2:
        raise UserError(f"The spread of evidences needs two runs or more, not {values.size}.")
    ratios = np.exp(values - values.max())
    mean = ratios.mean()
    error = ratios.std(ddof=1) / np.sqrt(values.size) / mean
    return float(values.max() + np.log(mean)), float(error)
