"""Fitting a mixture of Student-t components to points by expectation maximisation."""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float

from latentuq.inference.mixture import Mixture

# Points per dimension that the pooled shape counts for in the shape of each component.
_PSEUDO_POINTS = 1.0


def fit_mixture(
    points: Float[Array, "n dim"],
    start: Mixture,
    iterations: int,
    counted: Bool[Array, " n"] | None = None,
) -> Mixture:
    """Maximises the likelihood of points, from a given mixture on.

    The scale matrix of each component is shrunk towards their mean, the more the fewer points it
    has, which keeps every component as wide as a typical one: an importance proposal may be too
    wide, never too narrow. Degrees of freedom stay as they are.

    Args:
        points: Equally weighted.
        start: Where to begin; components of weight zero keep it.
        iterations: How many.
        counted: Which points count, the others only pad the shape; by default all do.
    """
    n, dim = points.shape
    counted = jnp.ones(n, bool) if counted is None else counted
    n = jnp.sum(counted)
    nu, pseudo = start.degrees, _PSEUDO_POINTS * dim

    def iterate(mixture: Mixture, _):
        log_terms, distances = component_terms(mixture, points)
        shares = jax.nn.softmax(mixture.log_weights + log_terms, axis=1) * counted[:, None]
        # Student-t: a point far out counts less for where a component is and how wide.
        pulls = shares * (nu + dim) / (nu + distances)
        counts = jnp.sum(shares, axis=0)
        totals = jnp.sum(pulls, axis=0)
        # About the old means: sums about the origin would cancel far away from it.
        gaps = points[:, None] - mixture.means
        shifts = jnp.einsum("nk,nki->ki", pulls, gaps) / jnp.maximum(totals, 1e-6)[:, None]
        scatter = jnp.einsum("nki,nkj->kij", pulls[:, :, None] * gaps, gaps)
        scatter -= totals[:, None, None] * shifts[:, :, None] * shifts[:, None, :]
        pooled = jnp.sum(scatter, axis=0) / n
        scales = (scatter + pseudo * pooled) / (counts + pseudo)[:, None, None]
        jitter = 1e-6 * jnp.diag(jnp.diagonal(pooled))
        factors = jnp.linalg.cholesky(scales + jitter)
        usable = (counts > 1e-3) & jnp.all(jnp.isfinite(factors), axis=(1, 2))
        log_weights = jnp.where(usable, jnp.log(counts + 1), -jnp.inf)
        log_weights = jnp.where(jnp.any(usable), log_weights, mixture.log_weights)
        return Mixture(
            log_weights - logsumexp(log_weights),
            jnp.where(usable[:, None], mixture.means + shifts, mixture.means),
            jnp.where(usable[:, None, None], factors, mixture.factors),
            nu,
        ), None

    return jax.lax.scan(iterate, start, None, length=iterations)[0]


def component_terms(
    mixture: Mixture, points: Float[Array, "n dim"]
) -> tuple[Float[Array, "n components"], Float[Array, "n components"]]:
    """Ln q_k at many points, and squared Mahalanobis distances, by one matrix product."""
    dim = mixture.dim
    eye = jnp.eye(dim, dtype=points.dtype)
    inverses = jax.vmap(lambda factor: solve_triangular(factor, eye, lower=True))(mixture.factors)
    offsets = jnp.einsum("kij,kj->ki", inverses, mixture.means)
    whitened = jnp.einsum("nj,kij->nki", points, inverses) - offsets
    distances = jnp.sum(whitened**2, axis=2)
    return mixture.log_profile(distances), distances
