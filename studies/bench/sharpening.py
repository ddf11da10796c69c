"""Ground truth beyond what a few thousand draws of SMC tell, by importance sampling."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq import Posterior
from latentuq.inference.em import fit_mixture
from latentuq.inference.importance import expectation, importance_sample, weigh
from latentuq.inference.mixture import Defensive, Mixture
from studies.bench.pool import gather

# Components fitted to the draws, how much they are shrunk to begin with, their degrees of freedom,
# rounds of fitting, widths of the copies of the fit that make up the proposal, and their shares.
COMPONENTS, SHRUNK, DEGREES, ITERATIONS = 32, 0.3, 10.0, 60
WIDTHS, SHARES = (1.1, 1.5, 2.2), (0.6, 0.25, 0.15)
# Draws of each of the proposals that masses are known from.
_DRAWS = 2**18

SHARPENING = {
    "components": COMPONENTS,
    "shrunk": SHRUNK,
    "degrees": DEGREES,
    "iterations": ITERATIONS,
    "widths": list(WIDTHS),
    "shares": list(SHARES),
    "draws": _DRAWS,
}
"""All that the masses depend on besides the problem."""


class Masses(NamedTuple):
    """Masses of modes.

    Attributes:
        values: The masses.
        errors: The standard errors of the masses.
        khat: The shape of the tail of the weights: above 0.7 the errors mean nothing.
    """

    values: Float[np.ndarray, " modes"]
    errors: Float[np.ndarray, " modes"]
    khat: float


def fit_proposal(draws: Float[Array, "n dim"]) -> Mixture:
    """A mixture that is fitted to draws, and wider copies of it for the tails."""
    chosen = np.random.default_rng(0).choice(len(draws), COMPONENTS, replace=False)
    factor = jnp.linalg.cholesky(SHRUNK * jnp.cov(draws.T))
    start = Mixture(
        jnp.full(COMPONENTS, -np.log(COMPONENTS)),
        draws[chosen],
        jnp.tile(factor, (COMPONENTS, 1, 1)),
        DEGREES,
    )
    return widened(_fit(draws, start), WIDTHS, SHARES)


def widened(fit: Mixture, widths: Sequence[float], shares: Sequence[float]) -> Mixture:
    """Makes a mixture of wider copies of another, each with its share."""
    log_weights = jnp.concatenate([fit.log_weights + math.log(share) for share in shares])
    factors = jnp.concatenate([width * fit.factors for width in widths])
    return Mixture(log_weights, jnp.tile(fit.means, (len(widths), 1)), factors, fit.degrees)


@eqx.filter_jit
def _fit(draws: Float[Array, "n dim"], start: Mixture) -> Mixture:
    return fit_mixture(draws, start, ITERATIONS)


def mode_masses(
    key: Key[Array, ""], post: Posterior, draws: Float[np.ndarray, "n dim"], number: int = _DRAWS
) -> Masses:
    """Masses of a posterior's modes, from what it and a reference know.

    Fresh draws of a mixture fitted to the reference's draws, and as many of the posterior's own
    proposal, are weighted as draws of both, and the weights smoothed: what either misses the other
    may have, and the masses owe neither more than the places where they looked.

    Args:
        key: Randomness.
        post: The posterior whose responsibilities tell the modes apart.
        draws: The reference's draws.
        number: The number of fresh draws of each proposal.
    """
    log_density = post.log_density_fn
    assert log_density is not None
    fitted, own = Defensive(fit_proposal(jnp.asarray(draws))), post.inference.proposal
    fitted_key, own_key = jax.random.split(key)
    pool = gather(None, fitted, importance_sample(fitted_key, log_density, fitted, number))
    pool = gather(pool, own, importance_sample(own_key, log_density, own, number))
    fresh = weigh(pool.points, pool.log_densities, pool.log_mixture)
    weights, errors = expectation(post.responsibilities(pool.points), fresh.log_weights)
    return Masses(weights, errors, float(fresh.khat))
