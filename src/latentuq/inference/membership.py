"""Which mode each component of a proposal belongs to."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from latentuq.core.batches import in_chunks
from latentuq.core.randomness import host_generator
from latentuq.inference.el2o import EL2OFit
from latentuq.inference.importance import WeightedDraws, systematic_index
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.modes import Mode
from latentuq.inference.search import ROUND, SearchState, explore
from latentuq.inference.target import BATCH, Target

# Posterior draws that descend to their modes, in rounds of the search's shape: so many rounds at
# most, and no more than tell the share of the heaviest mode to this standard error.
_PROBE_ROUNDS = 7
_SHARE_ERROR = 0.02


class Membership(NamedTuple):
    """The modes of the answer and the components that make them up.

    Attributes:
        modes: All modes that the answer names.
        means: Of each mode's Gaussian: EL2O's, or Laplace's for a mode that the probes found.
        factors: Lower Cholesky factors of their covariances.
        el2o: EL2O values; NaN for Laplace's.
        shares: How much of each component belongs to each mode; rows sum to one.
        probes: Effective number of probes behind each row of `shares`; inf where it is exact.
        basins: Index into `modes` of each start of the search, -1 for none.
        probed: Where each probe began, none for an unrefined proposal, and its index.
    """

    modes: tuple[Mode, ...]
    means: Float[np.ndarray, "modes dim"]
    factors: Float[np.ndarray, "modes dim dim"]
    el2o: tuple[float, ...]
    shares: Float[np.ndarray, "components modes"]
    probes: Float[np.ndarray, " components"]
    basins: Int[np.ndarray, " starts"]
    probed: tuple[Float[np.ndarray, "probes dim"], Int[np.ndarray, " probes"]]


class Probes(NamedTuple):
    """Posterior draws that have descended to their modes.

    Attributes:
        state: What the search knows after them.
        points: Where they began; none for an unrefined proposal.
        basins: Index of the mode of each, -1 for none.
        worth: How many independent draws each of them is, at most one.
    """

    state: SearchState
    points: Float[np.ndarray, "probes dim"]
    basins: Int[np.ndarray, " probes"] = np.zeros(0, int)
    worth: float = 1.0


def probe(key: Key[Array, ""], target: Target, found: SearchState, draws: WeightedDraws) -> Probes:
    """Descends from posterior draws, which may find modes that the search has missed."""
    chosen = systematic_index(host_generator(key), draws.log_weights, _PROBE_ROUNDS * ROUND)
    # Each round has its share of the places, which are in the order of the draws.
    points, state = np.asarray(draws.draws)[chosen], found
    points = np.concatenate([points[first::_PROBE_ROUNDS] for first in range(_PROBE_ROUNDS)])
    basins = np.zeros(0, int)
    while len(basins) < len(points) and _share_error(basins) > _SHARE_ERROR:
        state = explore(state, target, points[len(basins) :][:ROUND])
        basins = state.basins[len(found.values) :]
    worth = min(1.0, float(draws.ess) / len(basins))
    return Probes(state, points[: len(basins)], basins, worth)


def _share_error(basins: Int[np.ndarray, " probes"]) -> float:
    """Standard error of the share of the mode that most probes have ended in."""
    if not len(basins):
        return np.inf
    share = np.bincount(basins[basins >= 0], minlength=1).max() / len(basins)
    return float(np.sqrt(share * (1 - share) / len(basins)))


def assign(
    target: Target,
    found: SearchState,
    fits: dict[int, EL2OFit],
    proposal: Defensive,
    draws: WeightedDraws,
    probes: Probes,
) -> Membership:
    """Divides the components of the proposal among the modes.

    An unrefined proposal has one component per mode. A component of a refined one belongs to the
    modes of the probes that it is responsible for; modes that only probes found join the answer.
    """
    components = proposal.mixture.components
    order = list(fits)
    if not order:
        return _without_modes(target, found, draws, components)
    if not len(probes.points):
        shares = np.eye(components, len(order))
        shares[len(order) :, 0] = 1
        exact = np.full(components, np.inf)
        return _membership(found.modes, order, fits, shares, exact, found, probes)
    order += sorted({int(basin) for basin in probes.basins if basin >= 0} - set(order))
    hits = probes.basins[:, None] == np.array(order)
    responsible = responsibilities(proposal.mixture, probes.points)
    seen = probes.worth * (responsible.T @ hits)
    number = seen.sum(axis=1)
    # A component that no probe speaks for goes to the mode in whose Gaussian it lies.
    modes = probes.state.modes
    guess = _nearest_mode(np.asarray(proposal.mixture.means), [modes[index] for index in order])
    shares = (seen + 0.1 * guess) / (number + 0.1)[:, None]
    return _membership(modes, order, fits, shares, number + 0.1, found, probes)


def _membership(
    modes: tuple[Mode, ...],
    order: list[int],
    fits: dict[int, EL2OFit],
    shares: Float[np.ndarray, "components modes"],
    number: Float[np.ndarray, " components"],
    found: SearchState,
    probes: Probes,
) -> Membership:
    chosen = tuple(modes[index] for index in order)
    means = [np.asarray(fit.mean) for fit in fits.values()]
    factors = [np.asarray(fit.factor) for fit in fits.values()]
    for mode in chosen[len(fits) :]:
        means.append(mode.point)
        factors.append(np.linalg.cholesky(np.linalg.inv(mode.hessian)))
    place = {mode: rank for rank, mode in enumerate(order)}
    return Membership(
        chosen,
        np.array(means),
        np.array(factors),
        tuple(float(fit.value) for fit in fits.values())
        + (float("nan"),) * (len(order) - len(fits)),
        shares,
        number,
        np.array([place.get(int(basin), -1) for basin in found.basins], int),
        (probes.points, np.array([place.get(int(basin), -1) for basin in probes.basins], int)),
    )


def _without_modes(
    target: Target, found: SearchState, draws: WeightedDraws, components: int
) -> Membership:
    """No minimum was found: the highest draw stands for the answer, and the verdict says so."""
    best = int(np.argmax(draws.log_densities))
    point = np.asarray(draws.draws[best], np.float64)
    eye = np.eye(target.dim)
    mode = Mode(point, -float(draws.log_densities[best]), eye / target.scale**2, -np.inf)
    return Membership(
        (mode,),
        point[None],
        target.scale * eye[None],
        (float("nan"),),
        np.ones((components, 1)),
        np.full(components, np.inf),
        np.full(len(found.values), -1),
        (np.zeros((0, target.dim)), np.zeros(0, int)),
    )


def _nearest_mode(
    points: Float[np.ndarray, "n dim"], modes: list[Mode]
) -> Float[np.ndarray, "n modes"]:
    """One-hot rows: the mode whose Laplace density is the highest."""
    log_terms = []
    for mode in modes:
        gaps = points - mode.point
        _, log_det = np.linalg.slogdet(mode.hessian)
        distances = np.einsum("ni,ij,nj->n", gaps, mode.hessian, gaps)
        log_terms.append(mode.log_mass + 0.5 * log_det - 0.5 * distances)
    return np.eye(len(modes))[np.argmax(np.array(log_terms), axis=0)]


def responsibilities(
    mixture: Mixture, points: Float[np.ndarray, "n dim"]
) -> Float[np.ndarray, "n components"]:
    """Responsibilities of each component for each point."""
    return in_chunks(partial(_responsibilities, mixture), BATCH, points)


@eqx.filter_jit
def _responsibilities(mixture: Mixture, points: Float[Array, "n dim"]) -> Array:
    return jax.vmap(mixture.responsibilities)(points)
