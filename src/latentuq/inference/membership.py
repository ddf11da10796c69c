"""Which mode each component of a proposal belongs to."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from latentuq.inference.el2o import EL2OFit
from latentuq.inference.importance import WeightedDraws, systematic_index
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.result import Counts
from latentuq.inference.search import ROUND, Mode, SearchState, explore
from latentuq.inference.target import Target

# Posterior draws that descend to their modes, in rounds of the search's shape.
_PROBE_ROUNDS = 2


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
        counts: Evaluations.
    """

    modes: tuple[Mode, ...]
    means: Float[np.ndarray, "modes dim"]
    factors: Float[np.ndarray, "modes dim dim"]
    el2o: tuple[float, ...]
    shares: Float[np.ndarray, "components modes"]
    probes: Float[np.ndarray, " components"]
    basins: Int[np.ndarray, " starts"]
    counts: Counts


def assign(
    key: Key[Array, ""],
    target: Target,
    found: SearchState,
    order: list[int],
    fits: list[EL2OFit],
    proposal: Defensive,
    draws: WeightedDraws,
    refined: bool,
) -> Membership:
    """Divides the components of the proposal among the modes.

    An unrefined proposal has one component per mode. For a refined one, posterior draws descend to
    their modes, and a component belongs to the modes of the draws that it is responsible for. That
    may find modes which the search has missed: they join the answer.
    """
    components = proposal.mixture.components
    if not order:
        return _without_modes(target, found, draws, components)
    if not refined:
        shares = np.eye(components, len(order))
        shares[len(order) :, 0] = 1
        return _membership(
            found.modes, order, fits, shares, np.full(components, np.inf), found, Counts()
        )
    state = found
    index = systematic_index(key, draws.log_weights, _PROBE_ROUNDS * ROUND)
    # Neighbours in the draws are independent of each other, so any order will do.
    probes = draws.draws[index]
    for rows in jnp.split(probes, _PROBE_ROUNDS):
        betas = jnp.ones(ROUND, rows.dtype)
        state = explore(state, target, rows, betas, np.zeros(ROUND, bool))
    reached = state.basins[len(found.values) :]
    order = order + sorted(set(reached[reached >= 0]) - set(order))
    place = {mode: rank for rank, mode in enumerate(order)}
    hits = np.zeros((len(reached), len(order)))
    for row, basin in enumerate(reached):
        if basin >= 0:
            hits[row, place[basin]] = 1
    responsible = np.asarray(_responsibilities(proposal.mixture, probes))
    seen = responsible.T @ hits
    number = seen.sum(axis=1)
    # A component that no probe speaks for goes to the mode in whose Gaussian it lies.
    guess = _nearest_mode(np.asarray(proposal.mixture.means), [state.modes[i] for i in order])
    shares = (seen + 0.1 * guess) / (number + 0.1)[:, None]
    spent = state.counts - found.counts
    return _membership(state.modes, order, fits, shares, number + 0.1, found, spent)


def _membership(modes, order, fits, shares, probes, found: SearchState, counts) -> Membership:
    chosen = tuple(modes[index] for index in order)
    means = [np.asarray(fit.mean) for fit in fits]
    factors = [np.asarray(fit.factor) for fit in fits]
    for mode in chosen[len(fits) :]:
        means.append(mode.point)
        factors.append(np.linalg.cholesky(np.linalg.inv(mode.hessian)))
    place = {mode: rank for rank, mode in enumerate(order)}
    return Membership(
        chosen,
        np.array(means),
        np.array(factors),
        tuple(float(fit.value) for fit in fits) + (float("nan"),) * (len(order) - len(fits)),
        shares,
        probes,
        np.array([place.get(int(basin), -1) for basin in found.basins], int),
        counts,
    )


def _without_modes(
    target: Target, found: SearchState, draws: WeightedDraws, components: int
) -> Membership:
    """No minimum was found: the highest draw stands for the answer, and the verdict says so."""
    best = int(jnp.argmax(draws.log_densities))
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
        Counts(),
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


@eqx.filter_jit
def _responsibilities(mixture: Mixture, points: Float[Array, "n dim"]) -> Array:
    return jax.vmap(mixture.responsibilities)(points)
