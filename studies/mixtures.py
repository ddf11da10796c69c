"""Mixtures of Gaussians: their modes, what each attracts, and which of them a posterior has.

As densities all mixtures of one dimension are arrays of equal shapes, so that they share compiled
programs. What is true of them is computed in float64 with NumPy.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from latentuq import Posterior

SCALE = 1.0
"""The standard deviation of the reference normal that a search starts from."""

_PADDED = 64
# Ascents have arrived when a step is shorter than this, and ends this near are one mode. The
# narrowest components are about 0.02 wide.
_ARRIVED, _SAME = 1e-7, 2e-3
_MOST_STEPS = 5000
# The points that climb together, so that their matrices stay in the processor's cache.
_CHUNK = 500


class MixtureDensity(eqx.Module):
    """ln p(u) = ln sum_k exp(h_k - |W_k (u - m_k)|^2 / 2).

    Attributes:
        heights: The values h_k at the centres, -inf for components that only pad the shape.
        centres: The centres m_k.
        whitenings: The matrices W_k, whose inverses are the Cholesky factors of the covariances.
    """

    heights: Float[Array, " components"]
    centres: Float[Array, "components dim"]
    whitenings: Float[Array, "components dim dim"]

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        return logsumexp(self.terms(u))

    def terms(self, u: Float[Array, " dim"]) -> Float[Array, " components"]:
        """Computes the logarithm of what each component adds to p(u)."""
        whitened = jnp.einsum("kij,kj->ki", self.whitenings, u - self.centres)
        return self.heights - 0.5 * jnp.sum(whitened**2, axis=1)


class Shares(eqx.Module):
    """The probabilities that a point belongs to each mode, the components' own if all is true."""

    density: MixtureDensity
    membership: Float[Array, "components modes"]

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, " modes"]:
        return jax.nn.softmax(self.density.terms(u)) @ self.membership


class GaussianMixture(NamedTuple):
    """A mixture sum_k w_k N(u; m_k, C_k) times its evidence.

    Attributes:
        weights: The normalised weights w_k.
        centres: The centres m_k.
        covariances: The covariances C_k.
        log_evidence: The logarithm of the density's integral.
    """

    weights: Float[np.ndarray, " components"]
    centres: Float[np.ndarray, "components dim"]
    covariances: Float[np.ndarray, "components dim dim"]
    log_evidence: float = 0.0

    @property
    def dim(self) -> int:
        return self.centres.shape[1]

    @property
    def heights(self) -> Float[np.ndarray, " components"]:
        """The logarithms of what the components add to the density at their centres."""
        _, log_dets = np.linalg.slogdet(2 * np.pi * self.covariances)
        with np.errstate(divide="ignore"):
            return np.log(self.weights) - 0.5 * log_dets + self.log_evidence

    @property
    def density(self) -> MixtureDensity:
        """The log density, padded to the same number of components for all targets."""
        number, dim = self.centres.shape
        padding = [(0, _PADDED - number)]
        whitenings = np.tile(np.eye(dim), (_PADDED, 1, 1))
        whitenings[:number] = np.linalg.inv(np.linalg.cholesky(self.covariances))
        return MixtureDensity(
            jnp.asarray(np.pad(self.heights, padding, constant_values=-np.inf), float),
            jnp.asarray(np.pad(self.centres, [*padding, (0, 0)]), float),
            jnp.asarray(whitenings, float),
        )


class Modes(NamedTuple):
    """The true modes of a target.

    Attributes:
        points: The maxima of the density.
        masses: The sums of the weights of the components that belong to each.
        members: The mode that each component belongs to.
    """

    points: Float[np.ndarray, "modes dim"]
    masses: Float[np.ndarray, " modes"]
    members: Int[np.ndarray, " components"]


class Found(NamedTuple):
    """The masses that a posterior puts near the true modes, and their standard errors."""

    masses: Float[np.ndarray, " modes"]
    errors: Float[np.ndarray, " modes"]


def ascend(
    target: GaussianMixture, points: Float[np.ndarray, "n dim"], arrived: float = _ARRIVED
) -> Float[np.ndarray, "n dim"]:
    """Follows points up to modes by u <- (sum_k r_k P_k)^-1 sum_k r_k P_k m_k.

    The r_k are the probabilities that u belongs to each component, the P_k their precisions. It is
    the EM algorithm for the place of the mixture's maximum, so no step lowers the density.
    """
    precisions = np.linalg.inv(target.covariances)
    pulls = np.einsum("kij,kj->ki", precisions, target.centres)
    heights = target.heights - 0.5 * np.sum(pulls * target.centres, axis=1)
    flat = precisions.reshape(len(precisions), -1)

    def step(u: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
        squares = (u[:, :, None] * u[:, None, :]).reshape(len(u), -1)
        terms = heights + u @ pulls.T - 0.5 * squares @ flat.T
        shares = np.exp(terms - terms.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        matrices = (shares @ flat).reshape(-1, target.dim, target.dim)
        return np.linalg.solve(matrices, (shares @ pulls)[:, :, None])[:, :, 0]

    ends = np.array(points, np.float64)
    for first in range(0, len(ends), _CHUNK):
        moving = np.arange(first, min(first + _CHUNK, len(ends)))
        for _ in range(_MOST_STEPS):
            before, ends[moving] = ends[moving], step(ends[moving])
            moving = moving[np.linalg.norm(ends[moving] - before, axis=1) > arrived]
            if not len(moving):
                break
    return ends


def modes_of(target: GaussianMixture) -> Modes:
    """Finds the modes; components whose centres lead up to the same point are one mode."""
    ends = ascend(target, target.centres)
    gaps = np.linalg.norm(ends[:, None] - ends, axis=2)
    first = np.argmax(gaps < _SAME, axis=1)
    kept, members = np.unique(first, return_inverse=True)
    masses = np.bincount(members, target.weights)
    order = np.argsort(-masses, kind="stable")
    return Modes(ends[kept][order], masses[order], np.argsort(order)[members])


def attraction(
    target: GaussianMixture, modes: Modes, draws: int = 20_000
) -> Float[np.ndarray, " modes"]:
    """Computes the share of draws of the reference N(0, scale^2 I) whose ascent ends in each mode.

    A mode that no component's centre leads to is rare; its draws count for the nearest of the
    modes.
    """
    points = SCALE * np.random.default_rng(0).standard_normal((draws, target.dim))
    ends = ascend(target, points, arrived=1e-4)
    squares = np.sum(modes.points**2, axis=1) - 2 * ends @ modes.points.T
    return np.bincount(np.argmin(squares, axis=1), minlength=len(modes.masses)) / draws


def find_masses(target: GaussianMixture, modes: Modes, post: Posterior) -> Found:
    """Computes the mass that the draws of a posterior put near each true mode.

    A draw is shared among the modes by the true mixture's probabilities, so that the masses of an
    exact posterior are the true ones even where modes overlap. They are zero if it has no draws.
    """
    membership = np.zeros((_PADDED, _PADDED))
    membership[np.arange(len(modes.members)), modes.members] = 1
    mean, error = post.expect(Shares(target.density, jnp.asarray(membership, float)))
    number = len(modes.masses)
    return Found(*(np.nan_to_num(np.asarray(each, np.float64))[:number] for each in (mean, error)))


def missing_mass(modes: Modes, found: Found) -> float:
    """Adds up the true masses of the modes of which less than half was found.

    Only the draws count: a mode that is listed, but has no draws, is missing from all that is
    computed with them.
    """
    return float(np.sum(modes.masses[found.masses < 0.5 * modes.masses]))
