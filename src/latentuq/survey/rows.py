"""What is kept of a posterior, as arrays of fixed shapes, and the posterior made of them again."""

import json
import math
import time
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from latentuq.app.solving import Solved
from latentuq.core.errors import UserError
from latentuq.core.randomness import host_generator
from latentuq.core.text import printable
from latentuq.inference.causes import Standing
from latentuq.inference.importance import WeightedDraws
from latentuq.inference.membership import responsibilities
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.result import Inference, ProbeRecord, SearchRecord
from latentuq.inference.verdict import Verdict
from latentuq.posterior.dataset import COUNTS, FLOATS, INTEGERS, OPTIONAL, read_diagnostics
from latentuq.posterior.maps import SavedImages
from latentuq.posterior.posterior import Posterior
from latentuq.problem.inverse import InverseProblem
from latentuq.survey.layout import (
    FAILED,
    LEVELS,
    MOST_MODES,
    Layout,
)

Row = dict[str, Any]
"""What is kept of one image, by the names of `Layout.variables`."""


def make_row(layout: Layout, name: str, solved: Solved, started: float) -> Row:
    """Makes the row of an image that was solved.

    Args:
        layout: What is kept.
        name: What the image is called.
        solved: The image with its posterior.
        started: When work on it began, on the clock of `time.perf_counter`.
    """
    scaling = solved.observation.scaling
    row = posterior_row(layout, solved.posterior)
    row |= {"name": name, "notes": " ".join(solved.notes)}
    row |= {"seconds": time.perf_counter() - started}
    row |= {"offset": scaling.offset, "scale": scaling.scale}
    if solved.truth is not None:
        row["truth"] = solved.truth
    return fill_row(layout, row)


def error_row(layout: Layout, name: str, error: str, seconds: float = math.nan) -> Row:
    """Makes the row of an image that could not be solved, and of the time spent on it."""
    row = {"name": name, "status": FAILED, "error": error, "seconds": seconds}
    return fill_row(layout, row)


def posterior_row(layout: Layout, post: Posterior) -> Row:
    """What is kept of a posterior with its problem; modes that are not kept are counted."""
    problem, inference, diagnostics = post.problem, post.inference, post.diagnostics
    assert problem is not None
    kept = _kept_modes(post)
    verdict = post.verdict
    bad = [each.cause.name for each in verdict.reasons if each.cause.standing is Standing.BAD]
    mean, std = np.asarray(post.mean), np.asarray(post.std)
    row: Row = {
        "status": verdict.word,
        "verdict": str(verdict),
        "reasons": ", ".join(bad),
        "verdict_json": json.dumps(verdict.to_json(), allow_nan=False),
        "log_evidence": post.log_evidence,
        "log_evidence_error": post.log_evidence_error,
        "uncertainty": math.sqrt(np.mean(std.astype(np.float64) ** 2)),
        "surprise": measure_surprise(post),
        "modes_found": len(post.weights),
        "map_index": kept.index(post.map_index),
        **{name: getattr(diagnostics, name) for name in FLOATS + INTEGERS},
        **{name: getattr(diagnostics.counts, name) for name in COUNTS},
        **{name: value for name in OPTIONAL if (value := getattr(diagnostics, name)) is not None},
        "y": problem.y,
        "mean": mean,
        "std": std,
        "quantiles": post.quantile(np.asarray(LEVELS)),
        "most_probable": np.asarray(post.mode_images)[post.map_index],
        "mode_images": np.asarray(post.mode_images)[kept],
        "modes": np.asarray(post.modes)[kept],
        "weights": np.asarray(post.weights)[kept],
        "weight_errors": np.asarray(post.weight_errors)[kept],
        "log_densities": np.asarray(inference.log_densities)[kept],
        "el2o": np.asarray(diagnostics.el2o)[kept],
    }
    if post.chi_squared is not None:
        row["chi_squared"] = np.asarray(post.chi_squared)[kept]
    if layout.noise is not None:
        row["noise_std"] = problem.noise.std
    if layout.draws:
        places = np.full(len(post.weights) + 1, -1)  # The last place is that of no mode.
        places[kept] = np.arange(len(kept))
        us, modes = _draw(jax.random.fold_in(post.key, 5), post, layout.draws)
        starts = np.unique(
            np.linspace(0, len(inference.search.modes) - 1, layout.sizes["start"]).astype(int)
        )
        row |= {
            "means": np.asarray(inference.means)[kept],
            "factors": np.asarray(inference.factors)[kept],
            "u": us,
            "u_modes": places[modes],
            "search_log_densities": np.asarray(inference.search.log_densities)[starts],
            "search_modes": places[np.asarray(inference.search.modes)[starts]],
        }
    return row


def measure_surprise(post: Posterior) -> float:
    """How unlike what the prior makes the data are: (chi^2 + u.u - n) / sqrt(2 n) of n data.

    The sum is that at the modes, averaged by their weights. If the model made the data it follows
    chi-squared with about n degrees, whatever is hidden and however large the noise: so the number
    compares images with each other, and counts standard deviations.
    """
    problem = post.problem
    assert problem is not None
    data = int(np.count_nonzero(problem.observed))
    if not data or post.chi_squared is None:
        return math.nan
    distances = np.asarray(post.chi_squared) + np.sum(np.asarray(post.modes) ** 2, axis=1)
    return (float(np.asarray(post.weights) @ distances) - data) / math.sqrt(2 * data)


def read_posterior(
    row: Mapping[str, np.ndarray],
    problem: InverseProblem,
    key: Key[Array, ""],
    provenance: Mapping[str, str],
) -> Posterior:
    """Makes a posterior of what was kept of it: fewer draws, of equal weight, and fewer modes.

    Args:
        row: What was kept.
        problem: The problem that was solved.
        key: The key that it was solved with.
        provenance: What else is known about its making.
    """
    if "u" not in row:
        raise UserError("The store was made with --draws 0, which keeps too little for a report.")
    count = min(int(row["modes_found"]), MOST_MODES)

    def of_modes(name: str) -> Array:
        return jnp.asarray(row[name][:count])

    us, modes = jnp.asarray(row["u"]), jnp.asarray(row["u_modes"], int)
    started = np.isfinite(row["search_log_densities"])
    ends = jnp.asarray(row["search_modes"][started], int)
    n, weights = len(us), of_modes("weights")
    # Each mode has a Gaussian to itself here, whatever proposals the draws came from.
    mixture = Mixture(jnp.log(weights), of_modes("means"), of_modes("factors"), degrees=math.inf)
    inference = Inference(
        modes=of_modes("modes"),
        log_densities=of_modes("log_densities"),
        weights=weights,
        weight_errors=of_modes("weight_errors"),
        means=of_modes("means"),
        factors=of_modes("factors"),
        proposal=Defensive(mixture),
        membership=jnp.eye(count),
        draws=WeightedDraws(
            us,
            log_weights=jnp.full(n, -math.log(n)),
            log_densities=jnp.full(n, jnp.nan),
            log_proposals=jnp.full(n, jnp.nan),
            log_evidence=jnp.asarray(row["log_evidence"], jnp.float32),
            log_evidence_error=jnp.asarray(row["log_evidence_error"], jnp.float32),
            khat=jnp.asarray(row["khat"], jnp.float32),
            ess=jnp.asarray(row["ess"], jnp.float32),
            islands=jnp.arange(n),
            sources=jnp.arange(n),
        ),
        search=SearchRecord(
            jnp.asarray(row["search_log_densities"][started]), ends, jnp.ones(len(ends), bool)
        ),
        probes=ProbeRecord(us, modes),
        diagnostics=read_diagnostics(row, row["el2o"][:count].tolist()),
        verdict=Verdict.from_json(json.loads(str(row["verdict_json"]))),
    )
    images = SavedImages(
        jnp.asarray(row["mean"]),
        jnp.asarray(row["std"]),
        np.asarray(LEVELS),
        jnp.asarray(row["quantiles"]),
        of_modes("mode_images"),
    )
    return Posterior(
        inference,
        key,
        problem,
        problem.log_density,
        of_modes("chi_squared"),
        provenance,
        saved_images=images,
    )


def fill_row(layout: Layout, row: Row) -> Row:
    """The row with every variable of the layout in its shape and type, missing if not given."""
    whole: Row = {}
    for name, variable in layout.variables.items():
        given = row.get(name, variable.missing)
        if variable.dtype is str:
            whole[name] = printable(str(given))
            continue
        values = np.asarray(given, variable.dtype)
        filled = np.full(variable.shape, variable.missing, variable.dtype)
        # What has fewer entries than there is room for ends earlier.
        filled[tuple(slice(0, length) for length in values.shape)] = values
        whole[name] = filled
    return whole


def _kept_modes(post: Posterior) -> list[int]:
    """The heaviest modes, and the deepest in any case."""
    kept = list(range(min(len(post.weights), MOST_MODES)))
    return kept if post.map_index in kept else [*kept[:-1], post.map_index]


def _draw(
    key: Key[Array, ""], post: Posterior, number: int
) -> tuple[Float[np.ndarray, "number dim"], Int[np.ndarray, " number"]]:
    """Equally weighted draws of u, each with its mode, -1 for none; NaN if there are no draws.

    Those that were followed to their modes come first. The modes of others are drawn from the
    shares of the Gaussians that they belong to.
    """
    if not np.any(np.asarray(post.log_weights) > -np.inf):
        return np.full((number, post.dim), np.nan, np.float32), np.full(number, -1)
    rng, inference = host_generator(key), post.inference
    probes = rng.permutation(len(inference.probes.modes))[:number]
    us = np.asarray(post.sample(key, number))[len(probes) :]
    if not len(us):
        return np.asarray(inference.probes.points)[probes], np.asarray(inference.probes.modes)[
            probes
        ]
    by_component = responsibilities(inference.proposal.mixture, us)
    shares = np.cumsum(by_component @ np.asarray(inference.membership, np.float64), axis=1)
    modes = np.sum(rng.uniform(size=(len(us), 1)) * shares[:, -1:] > shares, axis=1)
    return (
        np.concatenate([np.asarray(inference.probes.points)[probes], us]),
        np.concatenate([np.asarray(inference.probes.modes)[probes], modes]),
    )
