"""Everything about a posterior as xarray datasets, and back."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.inference.importance import WeightedDraws
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.result import Counts, Diagnostics, Inference, ProbeRecord, SearchRecord
from latentuq.inference.verdict import Verdict

if TYPE_CHECKING:
    import xarray

    from latentuq.problem.inverse import InverseProblem

KIND = "latentuq posterior"
FORMAT = 4
# Not `draw`: groups inherit dimensions, and ArviZ's `draw` has another length.
_DRAW = "weighted_draw"
_PACKAGES = ("latentuq", "jax", "jaxlib", "equinox", "numpy")
_PROVENANCE = (
    *(f"{package}_version" for package in _PACKAGES),
    "model",
    "model_checksum",
    "command",
    "seed",
)
_OPTIONAL = ("reduced_chi_squared", "predictive_p_value")
_COUNTS = ("forwards", "gradients", "jacobians", "hessians")
_FLOATS = ("khat", "khat_limit", "ess", "missed_mass", "new_basin_chance")
_INTEGERS = ("draws", "rounds", "forward_equivalents")


class SavedImages(NamedTuple):
    """The image part of a posterior that needs neither prior nor problem."""

    mean: Float[Array, "*shape"]
    std: Float[Array, "*shape"]
    levels: Float[np.ndarray, " levels"]
    quantiles: Float[Array, "levels *shape"]
    mode_images: Float[Array, "modes *shape"]


class Contents(NamedTuple):
    """Everything that a posterior file holds.

    Attributes:
        inference: What the engine returned.
        key: The key that `solve` was called with.
        provenance: Versions of the packages, name and checksum of the model.
        problem: The problem; None if there is none, or if it could not be stored or restored.
        no_problem: A sentence that says why there is no problem, where there is none.
        chi_squared: The chi-squared of the data at each mode; None without data.
        images: Maps and mode images; None if there are none.
    """

    inference: Inference
    key: Key[Array, ""]
    provenance: Mapping[str, str]
    problem: "InverseProblem | None" = None
    no_problem: str = ""
    chi_squared: Float[Array, " modes"] | None = None
    images: SavedImages | None = None


def make_dataset(contents: Contents) -> "xarray.Dataset":
    """The root dataset: see `Posterior.to_xarray`."""
    import xarray

    inference, draws = contents.inference, contents.inference.draws
    variables: dict[str, tuple[tuple[str, ...], Any]] = {
        "modes": (("mode", "latent"), inference.modes),
        "weights": (("mode",), inference.weights),
        "weight_errors": (("mode",), inference.weight_errors),
        "log_densities": (("mode",), inference.log_densities),
        "el2o": (("mode",), np.asarray(inference.diagnostics.el2o, np.float64)),
        "draws": ((_DRAW, "latent"), draws.draws),
        "log_weights": ((_DRAW,), draws.log_weights),
        "draw_log_densities": ((_DRAW,), draws.log_densities),
        "log_evidence": ((), draws.log_evidence),
        "log_evidence_error": ((), draws.log_evidence_error),
    }
    if contents.chi_squared is not None:
        variables["chi_squared"] = (("mode",), contents.chi_squared)
    if contents.problem is not None:
        y = contents.problem.y
        variables["y"] = (tuple(f"data_{dim}" for dim in _axes(y.ndim)), y)
    coordinates = {}
    if contents.images is not None:
        images = contents.images
        axes = _axes(images.mean.ndim)
        variables["mean"] = (axes, images.mean)
        variables["std"] = (axes, images.std)
        variables["quantiles"] = (("quantile", *axes), images.quantiles)
        variables["mode_images"] = (("mode", *axes), images.mode_images)
        coordinates["quantile"] = images.levels
    return xarray.Dataset(
        {name: (dims, np.asarray(values)) for name, (dims, values) in variables.items()},
        coordinates,
        _attributes(contents),
    )


def make_rest(inference: Inference) -> "xarray.Dataset":
    """What the root leaves out of an inference."""
    import xarray

    mixture, search, probes = inference.proposal.mixture, inference.search, inference.probes
    variables = {
        "means": (("mode", "latent"), inference.means),
        "factors": (("mode", "latent", "latent_2"), inference.factors),
        "membership": (("component", "mode"), inference.membership),
        "component_log_weights": (("component",), mixture.log_weights),
        "component_means": (("component", "latent"), mixture.means),
        "component_factors": (("component", "latent", "latent_2"), mixture.factors),
        "log_proposals": ((_DRAW,), inference.draws.log_proposals),
        "khat": ((), inference.draws.khat),
        "ess": ((), inference.draws.ess),
        "search_log_densities": (("start",), search.log_densities),
        "search_modes": (("start",), search.modes),
        "search_independent": (("start",), search.independent),
        "probe_points": (("probe", "latent"), probes.points),
        "probe_modes": (("probe",), probes.modes),
    }
    attributes = {
        "degrees": float(mixture.degrees),
        "share": float(inference.proposal.share),
        "scale": float(inference.proposal.scale),
    }
    return xarray.Dataset(
        {name: (dims, np.asarray(values)) for name, (dims, values) in variables.items()},
        attrs=attributes,
    )


def make_samples(
    us: Float[Array, "n dim"], images: Float[Array, "n *shape"] | None
) -> "xarray.Dataset":
    """Equally weighted draws as one chain, which is how ArviZ wants them."""
    import xarray

    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        "u": (("chain", "draw", "latent"), np.asarray(us)[None])
    }
    if images is not None:
        axes = _axes(images.ndim - 1)
        variables["x"] = (("chain", "draw", *axes), np.asarray(images)[None])
    return xarray.Dataset(variables, {"chain": [0], "draw": np.arange(len(us))})


def read_contents(root: "xarray.Dataset", rest: "xarray.Dataset") -> Contents:
    """What `make_dataset` and `make_rest` were given, but for the problem."""
    for dim in ("mode", "latent", _DRAW):
        if root.sizes[dim] != rest.sizes[dim]:
            raise ValueError(f"{root.sizes[dim]} and {rest.sizes[dim]} entries along {dim}")
    values = {name: jnp.asarray(variable.values) for name, variable in root.variables.items()}
    others = {name: jnp.asarray(variable.values) for name, variable in rest.variables.items()}
    mixture = Mixture(
        others["component_log_weights"],
        others["component_means"],
        others["component_factors"],
        rest.attrs["degrees"],
    )
    draws = WeightedDraws(
        values["draws"],
        values["log_weights"],
        values["draw_log_densities"],
        others["log_proposals"],
        values["log_evidence"],
        values["log_evidence_error"],
        others["khat"],
        others["ess"],
    )
    inference = Inference(
        **{name: values[name] for name in ("modes", "log_densities", "weights", "weight_errors")},
        **{name: others[name] for name in ("means", "factors", "membership")},
        proposal=Defensive(mixture, rest.attrs["share"], rest.attrs["scale"]),
        draws=draws,
        search=SearchRecord(
            others["search_log_densities"], others["search_modes"], others["search_independent"]
        ),
        probes=ProbeRecord(others["probe_points"], others["probe_modes"]),
        diagnostics=_read_diagnostics(root),
        verdict=Verdict.from_json(json.loads(root.attrs["verdict_json"])),
    )
    images = None
    if "mean" in values:
        # In float64, so that levels can be looked up.
        levels = root["quantile"].values
        images = SavedImages(
            values["mean"], values["std"], levels, values["quantiles"], values["mode_images"]
        )
    data = jnp.asarray(np.asarray(root.attrs["key"], np.uint32))
    return Contents(
        inference=inference,
        key=jax.random.wrap_key_data(data, impl=root.attrs["key_kind"]),
        provenance={name: root.attrs[name] for name in _PROVENANCE if name in root.attrs},
        no_problem=root.attrs.get("no_problem", ""),
        chi_squared=values.get("chi_squared"),
        images=images,
    )


def _attributes(contents: Contents) -> dict[str, Any]:
    inference, diagnostics = contents.inference, contents.inference.diagnostics
    attributes = {
        "kind": KIND,
        "format": FORMAT,
        **contents.provenance,
        "key": np.asarray(jax.random.key_data(contents.key)),
        "key_kind": str(jax.random.key_impl(contents.key)),
        "verdict": str(inference.verdict),
        "verdict_json": json.dumps(inference.verdict.to_json(), allow_nan=False),
        **{name: getattr(diagnostics, name) for name in _FLOATS + _INTEGERS},
        **{name: getattr(diagnostics.counts, name) for name in _COUNTS},
        **{f"seconds_{stage}": seconds for stage, seconds in diagnostics.seconds.items()},
    }
    for name in _OPTIONAL:
        if (value := getattr(diagnostics, name)) is not None:
            attributes[name] = value
    if contents.no_problem:
        attributes["no_problem"] = contents.no_problem
    return attributes


def _axes(dimensions: int) -> tuple[str, ...]:
    """Names of the axes of an image."""
    named = {1: ("pixel",), 2: ("row", "column")}
    return named.get(dimensions, tuple(f"axis_{axis}" for axis in range(dimensions)))


def _optional(attributes: Mapping[str, Any], name: str) -> float | None:
    return float(attributes[name]) if name in attributes else None


def _read_diagnostics(root: "xarray.Dataset") -> Diagnostics:
    attributes = root.attrs
    stages = [name for name in attributes if name.startswith("seconds_")]
    return Diagnostics(
        **{name: float(attributes[name]) for name in _FLOATS},
        **{name: int(attributes[name]) for name in _INTEGERS},
        el2o=tuple(root["el2o"].values.tolist()),
        counts=Counts(**{name: int(attributes[name]) for name in _COUNTS}),
        seconds={name.removeprefix("seconds_"): float(attributes[name]) for name in stages},
        reduced_chi_squared=_optional(attributes, "reduced_chi_squared"),
        predictive_p_value=_optional(attributes, "predictive_p_value"),
    )
