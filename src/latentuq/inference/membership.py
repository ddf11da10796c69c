"""Which mode each component of a proposal belongs to."""

import math
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from latentuq.core.arrays import to_device
from latentuq.core.batches import in_chunks
from latentuq.inference.el2o import EL2OFit
from latentuq.inference.importance import WeightedDraws
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.modes import Mode, Probes, SearchState
from latentuq.inference.target import BATCH, Target


class Membership(NamedTuple):
    """The modes of the answer and the components that make them up.

    Attributes:
        modes: All modes that the answer names.
        gaussians: The Gaussian of each mode, which is Laplace's for a mode that the probes found;
            its EL2O value is then NaN.
        shares: The share of each component that belongs to each mode; rows sum to one.
        probes: The effective number of probes behind each row of `shares`, inf where it is exact.
        basins: The index into `modes` of each start of the search, -1 for none.
        probed: The draw where each probe began, and the index into `modes` of where it ended; there
            are none if no draw was followed.
        minima: Whether the modes are minima; if none was found, a draw stands for the answer.
    """

    modes: tuple[Mode, ...]
    gaussians: tuple[EL2OFit, ...]
    shares: Float[np.ndarray, "components modes"]
    probes: Float[np.ndarray, " components"]
    basins: Int[np.ndarray, " starts"]
    probed: tuple[Float[np.ndarray, "probes dim"], Int[np.ndarray, " probes"]]
    minima: bool = True


def assign(
    target: Target,
    found: SearchState,
    fits: dict[int, EL2OFit],
    proposal: Defensive,
    draws: WeightedDraws,
    probes: Probes | None,
) -> Membership:
    """Divides the components of the proposal, one for each fitted mode, among the modes.

    A component belongs to its own mode, or if draws were followed, to the modes of those that it is
    responsible for; modes that these alone found join the answer.
    """
    if probes is None:
        probes = Probes(found, np.zeros((0, target.dim)))
    components = proposal.mixture.components
    if not fits:
        return _without_modes(target, found, draws, components)
    late = sorted({int(basin) for basin in probes.basins if basin >= 0} - set(fits))
    order = [*fits, *late]
    modes = tuple(probes.state.modes[index] for index in order)
    if len(probes.points):
        hits = probes.basins[:, None] == np.array(order)
        responsible = responsibilities(proposal.mixture, probes.points)
        seen = probes.worth * (responsible.T @ hits)
        # A component that no probe speaks for goes to the mode in whose Gaussian it lies.
        guess = _nearest_mode(np.asarray(proposal.mixture.means), modes)
        number = seen.sum(axis=1) + 0.1
        shares = (seen + 0.1 * guess) / number[:, None]
    else:
        number = np.full(components, np.inf)
        shares = np.eye(components, len(order))
        shares[len(order) :, 0] = 1
    gaussians = [*fits.values(), *map(_laplace, modes[len(fits) :])]
    place = {mode: rank for rank, mode in enumerate(order)}
    return Membership(
        modes,
        tuple(gaussians),
        shares,
        number,
        np.array([place.get(int(basin), -1) for basin in found.basins], int),
        (probes.points, np.array([place.get(int(basin), -1) for basin in probes.basins], int)),
    )


def _laplace(mode: Mode) -> EL2OFit:
    factor = np.linalg.cholesky(np.linalg.inv(mode.hessian))
    return EL2OFit(*map(to_device, (mode.point, factor, math.nan, mode.log_mass)))


def _without_modes(
    target: Target, found: SearchState, draws: WeightedDraws, components: int
) -> Membership:
    """Lets the highest draw stand for the answer, if no minimum was found; the verdict says so."""
    best = int(np.argmax(draws.log_densities))
    point = np.asarray(draws.draws[best], np.float64)
    precision = np.eye(target.dim) / target.scale**2
    mode = Mode(point, -float(draws.log_densities[best]), precision, -np.inf)
    return Membership(
        (mode,),
        (_laplace(mode),),
        np.ones((components, 1)),
        np.full(components, np.inf),
        np.full(len(found.values), -1),
        (np.zeros((0, target.dim)), np.zeros(0, int)),
        minima=False,
    )


def _nearest_mode(
    points: Float[np.ndarray, "n dim"], modes: tuple[Mode, ...]
) -> Float[np.ndarray, "n modes"]:
    """Finds the mode whose Laplace density is the highest, as one-hot rows."""
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
    """Computes the responsibility of each component for each point."""
    return in_chunks(partial(_responsibilities, mixture), BATCH, points)


@eqx.filter_jit
def _responsibilities(mixture: Mixture, points: Float[Array, "n dim"]) -> Array:
    return jax.vmap(mixture.responsibilities)(points)
