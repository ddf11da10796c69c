"""What the engine returns: plain values, without an image in sight."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from latentuq.inference.importance import WeightedDraws
from latentuq.inference.mixture import Defensive
from latentuq.inference.target import Counts


class Progress(NamedTuple):
    """A partial answer.

    Attributes:
        stage: "map", "modes", "fitted" or "certified".
        message: One sentence for people.
        modes: Found so far; in the stage "map" the deepest alone.
        weights: Their weights, as far as known.
        seconds: Since the start.
    """

    stage: str
    message: str
    modes: Float[Array, "modes dim"]
    weights: Float[Array, " modes"] | None
    seconds: float


@dataclasses.dataclass(frozen=True)
class Diagnostics:
    """How far the answer can be trusted, and what it cost.

    Attributes:
        khat: Shape of the tail of the importance weights of fresh draws; usable up to 0.7.
        ess: Effective number of those draws.
        draws: How many there were.
        el2o: EL2O value of each mode's Gaussian; zero for a Gaussian target.
        missed_mass: Posterior mass in modes that at most one start found: an estimate of the mass
            of the modes that no start found.
        new_basin_chance: Good-Turing: the chance that one more start from the prior ends in a
            basin that none has reached.
        rounds: Refinements of the proposal that were needed.
        counts: Evaluations of the density.
        forward_equivalents: The same in units of one evaluation.
        seconds: Wall time of each stage, compilation included.
        reduced_chi_squared: Of the data at the deepest mode; None without data.
        predictive_p_value: Chance that the model makes data and u that fit it worse than these do,
            averaged over the posterior; None without data.
    """

    khat: float
    ess: float
    draws: int
    el2o: tuple[float, ...]
    missed_mass: float
    new_basin_chance: float
    rounds: int
    counts: Counts
    forward_equivalents: int
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    reduced_chi_squared: float | None = None
    predictive_p_value: float | None = None


class SearchRecord(eqx.Module):
    """Where every start ended, for the figure of sorted minima.

    Attributes:
        log_densities: Ln p at the end of each start.
        modes: The mode that it belongs to, as an index into the result's modes; -1 for none.
        independent: Whether the start was an independent draw of the reference normal.
    """

    log_densities: Float[Array, " starts"]
    modes: Int[Array, " starts"]
    independent: Bool[Array, " starts"]


class ProbeRecord(eqx.Module):
    """Posterior draws that were followed down to their modes.

    Attributes:
        points: Where they began, equally weighted; none where every mode has a component of the
            proposal to itself.
        modes: Where they ended, as an index into the result's modes; -1 for none.
    """

    points: Float[Array, "probes dim"]
    modes: Int[Array, " probes"]

    @property
    def lost(self) -> float:
        """Share of them that ended in no mode."""
        ended = np.asarray(self.modes)
        return float(np.mean(ended < 0)) if len(ended) else 0.0


class Inference(eqx.Module):
    """Modes, weights, evidence, weighted draws, certificate.

    Attributes:
        modes: Heaviest first.
        log_densities: Ln p at the modes.
        weights: Posterior mass of each mode.
        weight_errors: Their standard errors.
        means: Of each mode's Gaussian: EL2O's, or Laplace's for a mode that was found late.
        factors: Lower Cholesky factors of the Gaussians' covariances.
        proposal: Where the draws came from.
        membership: How much of each component of the proposal's mixture belongs to each mode.
        draws: Fresh draws of the proposal with their weights, evidence and k-hat.
        search: Where every start ended.
        probes: Where posterior draws ended that were followed.
        diagnostics: Certificate and cost.
        verdict: Starts with "reliable", "refined" or "unreliable", then one sentence why.
    """

    modes: Float[Array, "modes dim"]
    log_densities: Float[Array, " modes"]
    weights: Float[Array, " modes"]
    weight_errors: Float[Array, " modes"]
    means: Float[Array, "modes dim"]
    factors: Float[Array, "modes dim dim"]
    proposal: Defensive
    membership: Float[Array, "components modes"]
    draws: WeightedDraws
    search: SearchRecord
    probes: ProbeRecord
    diagnostics: Diagnostics = eqx.field(static=True)
    verdict: str = eqx.field(static=True)

    @property
    def map_index(self) -> int:
        """Index of the deepest mode."""
        return int(jax.numpy.argmax(self.log_densities))
