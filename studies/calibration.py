"""Calibration of latentuq and of other methods on the same problems."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from latentuq import GenerativePrior, UserError, solve
from latentuq.calibration.measure import DRAWS
from latentuq.core.cells import Cells
from studies.baselines.laplace_mixture import laplace_mixture
from studies.baselines.result import BaselineResult
from studies.baselines.svi import Family, svi
from studies.calibration_cases import (
    KINDS,
    Case,
    Infer,
    Inferred,
    Study,
    default_model_error,
    infer_posterior,
    run_study,
)

OURS = "latentuq"


def run_calibration(
    study: Study,
    prior: GenerativePrior,
    problems: int,
    folder: Path,
    seed: int,
    report: Callable[[str, dict[str, Any]], None],
) -> Cells:
    """Measures a study; a model error that is not named is chosen."""
    if study.method not in METHODS:
        raise UserError(f"There is no method {study.method!r}; there are {', '.join(METHODS)}.")
    if study.kind not in KINDS:
        raise UserError(f"There is no study {study.kind!r}; there are {', '.join(KINDS)}.")
    if not study.model_error:
        # All methods are compared where simulation and likelihood are one Gaussian.
        kind = study.kind if study.method == OURS else "simulated"
        study = study._replace(model_error=default_model_error(prior, kind))
    return run_study(study, prior, problems, folder, seed, report, METHODS[study.method])


def _laplace(key: Key[Array, ""], case: Case) -> Inferred:
    solve_key, draw_key = jax.random.split(key)
    modes = solve(solve_key, case.problem, budget="preview").modes
    return _drawn(laplace_mixture(draw_key, case.problem.log_density, modes, draws=DRAWS))


def _svi(family: Family, key: Key[Array, ""], case: Case) -> Inferred:
    problem = case.problem
    return _drawn(svi(key, problem.log_density, problem.dim, family=family, draws=DRAWS))


def _drawn(result: BaselineResult) -> Inferred:
    facts = {
        "log_evidence": round(result.log_evidence or np.nan, 3),
        "forward_equivalents": result.forward_equivalents,
    }
    return jnp.asarray(result.draws), facts


METHODS: dict[str, Infer] = {
    OURS: infer_posterior,
    "laplace": _laplace,
    "mean-field": partial(_svi, "mean-field"),
    "full-rank": partial(_svi, "full-rank"),
}
