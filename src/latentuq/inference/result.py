"""What the engine returns: plain values that know nothing of images."""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from latentuq.core.arrays import to_device
from latentuq.core.modules import with_fields
from latentuq.inference.importance import WeightedDraws
from latentuq.inference.mixture import Defensive
from latentuq.inference.target import Counts
from latentuq.inference.verdict import Verdict

COMPILING = "compiling"
"""The stage of a message that says why nothing is found for a while."""


class Progress(NamedTuple):
    """A partial answer.

    Attributes:
        stage: "map", "modes", "fitted" or "certified"; or "compiling", once and at any time, if
            programs have to be compiled.
        message: One sentence for people.
        modes: The modes that were found so far; in the stage "map" the deepest alone.
        weights: The weights of these modes; None if they are not known yet.
        seconds: The time since the start of the inference.
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
        khat: The shape of the tail of the weights of the draws.
        khat_limit: The largest k-hat that the verdict allows; inf if there were chains.
        ess: The effective number of the draws.
        draws: The number of the draws.
        el2o: The EL2O value of each mode's Gaussian; zero for a Gaussian target.
        missed_mass: The mass in modes that at most one start found, an estimate of the mass of the
            modes that no start found.
        new_basin_chance: Good and Turing's estimate of the chance that one more start from the
            prior ends in a basin that none has reached.
        rounds: The number of rounds of chains that were needed; 0 if Gaussians at the modes
            sufficed.
        turns: How many independent draws a chain has made on average, of the slowest among the
            coordinates, their squares and ln p; inf without chains.
        drift: How far ln p has shifted along the chains, in its standard deviations.
        counts: The number of evaluations of the density and its derivatives.
        forward_equivalents: The cost of these in units of one evaluation of the density.
        seconds: The wall time of each stage, compilation included.
        reduced_chi_squared: The chi-squared per datum at the deepest mode; None without data.
        predictive_p_value: The chance that the model makes data and u that fit it worse than these
            do, averaged over the posterior; None without data.
        information: How much the data told about u, in nats: KL(posterior || prior). None where no
            prior is known.
        variance_left: The share of the prior's variance of u that the data leave; None likewise.
    """

    khat: float
    khat_limit: float
    ess: float
    draws: int
    el2o: tuple[float, ...]
    missed_mass: float
    new_basin_chance: float
    rounds: int
    turns: float
    drift: float
    counts: Counts
    forward_equivalents: int
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    reduced_chi_squared: float | None = None
    predictive_p_value: float | None = None
    information: float | None = None
    variance_left: float | None = None

    @property
    def learned(self) -> str:
        """How much the data told, in a sentence; empty where no prior is known."""
        if self.information is None or self.variance_left is None:
            return ""
        return (
            f"The data leave {100 * self.variance_left:.0f} % of the prior's variance and tell"
            f" {self.information:.3g} nats: of images that the prior makes, about one in"
            f" {self._possibilities} remains possible."
        )

    @property
    def _possibilities(self) -> str:
        """The exponential of the information, as people write numbers."""
        decades = (self.information or 0.0) / math.log(10)
        return f"{10**decades:,.0f}" if decades < 5 else f"10^{decades:.0f}"

    @property
    def quality(self) -> str:
        """The number that tells most about the draws, in words."""
        if not self.rounds:
            return f"k-hat {self.khat:.2f} (usable up to {self.khat_limit:.2f})"
        return f"{self.turns:.1f} from each chain for the slowest coordinate"

    @property
    def course(self) -> str:
        """How the answer was found, in a sentence."""
        if not self.rounds:
            return "The draws come from one Gaussian at each mode; no chains were needed."
        rounds = "one round" if self.rounds == 1 else f"{self.rounds} rounds"
        return (
            f"Gaussians at the modes did not suffice: chains ran for {rounds}, and bridge sampling"
            " weighed their draws."
        )


class SearchRecord(eqx.Module):
    """Where every start ended, for the figure of sorted minima.

    Attributes:
        log_densities: The value of ln p at the end of each start.
        modes: The mode that it belongs to, as an index into the result's modes; -1 for none.
        independent: Whether the start was an independent draw of the reference normal.
    """

    log_densities: Float[Array, " starts"]
    modes: Int[Array, " starts"]
    independent: Bool[Array, " starts"]


class ProbeRecord(eqx.Module):
    """Posterior draws that were followed down to their modes.

    Attributes:
        points: The places where they began, equally weighted; none if every mode has a component
            of the proposal to itself, or if there is one alone.
        modes: The modes where they ended, as indices into the result's modes; -1 for none.
    """

    points: Float[Array, "probes dim"]
    modes: Int[Array, " probes"]

    @property
    def lost(self) -> float:
        """The share of these draws that ended in no mode."""
        ended = np.asarray(self.modes)
        return float(np.mean(ended < 0)) if len(ended) else 0.0


class Inference(eqx.Module):
    """The answer of the engine: modes, weights, evidence, weighted draws and certificate.

    Attributes:
        modes: The places of the modes, the heaviest first.
        log_densities: The values of ln p at the modes.
        weights: The posterior mass of each mode.
        weight_errors: The standard errors of the weights.
        means: The mean of each mode's Gaussian: EL2O's, or Laplace's for a mode found late.
        factors: The lower Cholesky factors of the Gaussians' covariances.
        proposal: The mixture of the Gaussians at the modes. Where chains ran, draws come from
            other mixtures and from the chains.
        membership: How much of each component of the proposal's mixture belongs to each mode.
        draws: Draws of proposals and of chains, with their weights, evidence and k-hat.
        search: Where every start ended.
        probes: Where the posterior draws ended that were followed.
        diagnostics: The numbers of the certificate, and the cost.
        verdict: How far to trust the answer, and why.
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
    verdict: Verdict = eqx.field(static=True)

    @property
    def map_index(self) -> int:
        """The index of the deepest mode."""
        return int(jax.numpy.argmax(self.log_densities))

    def shifted(self, constant: float) -> "Inference":
        """The answer for a log density that is larger by a constant."""

        def shift(values: Array | np.ndarray) -> Array:
            return to_device(np.asarray(values) + constant)

        draws, search = self.draws, self.search
        return with_fields(
            self,
            log_densities=shift(self.log_densities),
            draws=with_fields(
                draws,
                log_densities=shift(draws.log_densities),
                log_evidence=shift(draws.log_evidence),
            ),
            search=with_fields(search, log_densities=shift(search.log_densities)),
        )
