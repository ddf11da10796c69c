"""Fitting a mixture of Student-t components to points by expectation maximisation."""

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float

from latentuq.inference.mixture import Mixture

# A component with fewer points than this for each dimension borrows from the pooled shape.
_ENOUGH_POINTS = 8.0


def fit_mixture(
    points: Float[Array, "n dim"],
    start: Mixture,
    iterations: int,
    counted: Bool[Array, " n"] | None = None,
) -> Mixture:
    """Maximises the likelihood of points, from a given mixture on.

    The scale matrix of a component that has few points is shrunk towards the mean of all. One that
    has enough keeps its own: the mean is far too wide for a thin arm that turns. Degrees of freedom
    stay as they are.

    Args:
        points: The points, which have equal weights.
        start: The mixture that is improved; its components of weight zero stay as they are.
        iterations: The number of iterations.
        counted: Whether each point counts or only pads the shape; by default all do.
    """
    n, dim = points.shape
    counted = jnp.ones(n, bool) if counted is None else counted
    n, columns = jnp.sum(counted), points.T
    nu = start.degrees

    def iterate(mixture: Mixture, _):
        log_terms, distances = mixture.component_terms(points)
        shares = jax.nn.softmax(mixture.log_weights + log_terms, axis=1) * counted[:, None]
        # Student-t: a point far out counts less for where a component is and how wide.
        pulls = shares * (nu + dim) / (nu + distances)
        counts = jnp.sum(shares, axis=0)
        totals = jnp.sum(pulls, axis=0)

        def gather(component: tuple[Float[Array, " n"], Float[Array, " dim"]]):
            # About the old mean: sums about the origin would cancel far away from it.
            pull, mean = component
            gaps = columns - mean[:, None]
            pulled = pull * gaps
            return jnp.sum(pulled, axis=1), pulled @ gaps.T

        # One component at a time: what it needs stays in the processor's cache.
        sums, scatter = jax.lax.map(gather, (pulls.T, mixture.means))
        shifts = sums / jnp.maximum(totals, 1e-6)[:, None]
        scatter -= totals[:, None, None] * shifts[:, :, None] * shifts[:, None, :]
        pooled = jnp.sum(scatter, axis=0) / n
        pseudo = dim * jnp.clip(1 - counts / (_ENOUGH_POINTS * dim), 0, 1)
        scales = scatter + pseudo[:, None, None] * pooled
        scales /= jnp.maximum(counts + pseudo, 1e-6)[:, None, None]
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
