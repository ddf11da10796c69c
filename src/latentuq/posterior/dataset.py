"""Everything about a posterior as xarray datasets, and back."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from latentuq.inference.importance import WeightedDraws
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.result import Counts, Diagnostics, Inference, ProbeRecord, SearchRecord
from latentuq.inference.verdict import Verdict
from latentuq.posterior.maps import SavedImages
from latentuq.posterior.posterior import Posterior

if TYPE_CHECKING:
    import xarray


KIND = "latentuq posterior"
FORMAT = 5
LEVELS = (0.005, 0.025, 0.05, 0.1, 0.16, 0.25, 0.5, 0.75, 0.84, 0.9, 0.95, 0.975, 0.995)
"""The levels of the quantile maps that are exported; others need the problem."""

# Not `draw`: groups inherit dimensions, and ArviZ's `draw` has another length.
_DRAW = "weighted_draw"
# The variables of the root and of the group `inference`: where an `Inference` holds each of them,
# and its dimensions.
_ROOT = {
    "modes": ("modes", ("mode", "latent")),
    "weights": ("weights", ("mode",)),
    "weight_errors": ("weight_errors", ("mode",)),
    "log_densities": ("log_densities", ("mode",)),
    "draws": ("draws.draws", (_DRAW, "latent")),
    "log_weights": ("draws.log_weights", (_DRAW,)),
    "draw_log_densities": ("draws.log_densities", (_DRAW,)),
    "log_evidence": ("draws.log_evidence", ()),
    "log_evidence_error": ("draws.log_evidence_error", ()),
}
_REST = {
    "means": ("means", ("mode", "latent")),
    "factors": ("factors", ("mode", "latent", "latent_2")),
    "membership": ("membership", ("component", "mode")),
    "component_log_weights": ("proposal.mixture.log_weights", ("component",)),
    "component_means": ("proposal.mixture.means", ("component", "latent")),
    "component_factors": ("proposal.mixture.factors", ("component", "latent", "latent_2")),
    "log_proposals": ("draws.log_proposals", (_DRAW,)),
    "khat": ("draws.khat", ()),
    "ess": ("draws.ess", ()),
    "islands": ("draws.islands", (_DRAW,)),
    "sources": ("draws.sources", (_DRAW,)),
    "search_log_densities": ("search.log_densities", ("start",)),
    "search_modes": ("search.modes", ("start",)),
    "search_independent": ("search.independent", ("start",)),
    "probe_points": ("probes.points", ("probe", "latent")),
    "probe_modes": ("probes.modes", ("probe",)),
}
# The provenance besides the versions of packages.
_PROVENANCE = ("model", "model_checksum", "command", "seed")
FLOATS = ("khat", "khat_limit", "ess", "missed_mass", "new_basin_chance", "turns", "drift")
INTEGERS = ("draws", "rounds", "forward_equivalents")
OPTIONAL = ("reduced_chi_squared", "predictive_p_value", "information", "variance_left")
COUNTS = ("forwards", "gradients", "jacobians", "hessians")
"""The diagnostics by their types, those that may be None apart, and the counts of evaluations."""


def image_axes(dimensions: int) -> tuple[str, ...]:
    """Names the axes of an image."""
    named = {1: ("pixel",), 2: ("row", "column")}
    return named.get(dimensions, tuple(f"axis_{axis}" for axis in range(dimensions)))


def make_dataset(post: Posterior) -> "xarray.Dataset":
    """Makes the root dataset, see `Posterior.to_xarray`."""
    import xarray

    variables = _variables(post.inference, _ROOT)
    variables["el2o"] = (("mode",), np.asarray(post.diagnostics.el2o, np.float64))
    if post.chi_squared is not None:
        variables["chi_squared"] = (("mode",), np.asarray(post.chi_squared))
    images = post.saved_images
    if post.problem is not None:
        y = np.asarray(post.problem.y)
        variables["y"] = (tuple(f"data_{axis}" for axis in image_axes(y.ndim)), y)
        levels = np.asarray(LEVELS)
        images = SavedImages(post.mean, post.std, levels, post.quantile(levels), post.mode_images)
    coordinates = {}
    if images is not None:
        axes = image_axes(images.mean.ndim)
        variables["mean"] = (axes, np.asarray(images.mean))
        variables["std"] = (axes, np.asarray(images.std))
        variables["quantiles"] = (("quantile", *axes), np.asarray(images.quantiles))
        variables["mode_images"] = (("mode", *axes), np.asarray(images.mode_images))
        coordinates["quantile"] = images.levels
    return xarray.Dataset(variables, coordinates, _attributes(post))


def make_rest(inference: Inference) -> "xarray.Dataset":
    """Makes the dataset of what the root leaves out of an inference."""
    import xarray

    proposal = inference.proposal
    attributes = {
        "degrees": float(proposal.mixture.degrees),
        "share": float(proposal.share),
        "scale": float(proposal.scale),
    }
    return xarray.Dataset(_variables(inference, _REST), attrs=attributes)


def make_samples(
    us: Float[Array, "n dim"], images: Float[Array, "n *shape"] | None
) -> "xarray.Dataset":
    """Makes a dataset of equally weighted draws as one chain, which is how ArviZ wants them."""
    import xarray

    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        "u": (("chain", "draw", "latent"), np.asarray(us)[None])
    }
    if images is not None:
        axes = image_axes(images.ndim - 1)
        variables["x"] = (("chain", "draw", *axes), np.asarray(images)[None])
    return xarray.Dataset(variables, {"chain": [0], "draw": np.arange(len(us))})


def read_datasets(root: "xarray.Dataset", rest: "xarray.Dataset") -> Posterior:
    """Makes the posterior that `make_dataset` and `make_rest` were given, but for its problem."""
    for dim in ("mode", "latent", _DRAW):
        if root.sizes[dim] != rest.sizes[dim]:
            raise ValueError(f"{root.sizes[dim]} and {rest.sizes[dim]} entries along {dim}")
    parts: dict[str, dict[str, Array]] = defaultdict(dict)
    for dataset, table in ((root, _ROOT), (rest, _REST)):
        for name, (place, _) in table.items():
            part, _, field = place.rpartition(".")
            parts[part][field] = jnp.asarray(dataset.variables[name].values)
    mixture = Mixture(**parts["proposal.mixture"], degrees=rest.attrs["degrees"])
    inference = Inference(
        **parts[""],
        proposal=Defensive(mixture, rest.attrs["share"], rest.attrs["scale"]),
        draws=WeightedDraws(**parts["draws"]),
        search=SearchRecord(**parts["search"]),
        probes=ProbeRecord(**parts["probes"]),
        diagnostics=read_diagnostics(root.attrs, root["el2o"].values.tolist()),
        verdict=Verdict.from_json(json.loads(root.attrs["verdict_json"])),
    )
    values = {name: jnp.asarray(variable.values) for name, variable in root.variables.items()}
    images = None
    if "mean" in values:
        # In float64, so that levels can be looked up.
        levels = root["quantile"].values
        images = SavedImages(
            values["mean"], values["std"], levels, values["quantiles"], values["mode_images"]
        )
    key = jnp.asarray(np.asarray(root.attrs["key"], np.uint32))
    return Posterior(
        inference,
        jax.random.wrap_key_data(key, impl=root.attrs["key_kind"]),
        chi_squared=values.get("chi_squared"),
        provenance={
            name: value
            for name, value in root.attrs.items()
            if name in _PROVENANCE or name.endswith("_version")
        },
        no_problem=root.attrs.get("no_problem", ""),
        saved_images=images,
    )


def read_diagnostics(attributes: Mapping[str, Any], el2o: Sequence[float]) -> Diagnostics:
    """Makes diagnostics of the attributes of a dataset; those that are missing or NaN are None."""
    stages = [name for name in attributes if name.startswith("seconds_")]
    known = {name: float(attributes[name]) for name in OPTIONAL if name in attributes}
    optional: Any = {name: value for name, value in known.items() if not math.isnan(value)}
    return Diagnostics(
        **{name: float(attributes[name]) for name in FLOATS},
        **{name: int(attributes[name]) for name in INTEGERS},
        **optional,
        el2o=tuple(el2o),
        counts=Counts(**{name: int(attributes[name]) for name in COUNTS}),
        seconds={name.removeprefix("seconds_"): float(attributes[name]) for name in stages},
    )


def _variables(
    inference: Inference, table: dict[str, tuple[str, tuple[str, ...]]]
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    return {
        name: (dims, np.asarray(attrgetter(place)(inference)))
        for name, (place, dims) in table.items()
    }


def _attributes(post: Posterior) -> dict[str, Any]:
    diagnostics = post.diagnostics
    attributes = {
        "kind": KIND,
        "format": FORMAT,
        **post.provenance,
        "key": np.asarray(jax.random.key_data(post.key)),
        "key_kind": str(jax.random.key_impl(post.key)),
        "verdict": str(post.verdict),
        "verdict_json": json.dumps(post.verdict.to_json(), allow_nan=False),
        **{name: getattr(diagnostics, name) for name in FLOATS + INTEGERS},
        **{name: getattr(diagnostics.counts, name) for name in COUNTS},
        **{f"seconds_{stage}": seconds for stage, seconds in diagnostics.seconds.items()},
    }
    for name in OPTIONAL:
        if (value := getattr(diagnostics, name)) is not None:
            attributes[name] = value
    if post.no_problem:
        attributes["no_problem"] = post.no_problem
    return attributes
