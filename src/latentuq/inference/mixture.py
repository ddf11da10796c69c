"""Mixtures of Gaussian or Student-t components, and the defensive importance proposal."""

import math
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Key

Arrays = TypeVar("Arrays", Array, np.ndarray)

# The number of draws whose factors are gathered at once, which bounds the memory at
# _BATCH * dim^2 numbers.
_BATCH = 1024
# Up to this many degrees of freedom a chi-squared number is a sum of squares.
_MOST_SQUARES = 32


class Mixture(eqx.Module):
    """q(u) = sum_k w_k t_nu(u; mean_k, L_k L_k^T); Gaussian components when nu is infinite.

    `degrees` is static: the constants of the Student-t are then computed in double precision
    (differences of log-gammas lose all digits in float32 at large nu) and a Gaussian mixture
    compiles to Gaussian code, without branches whose unused half could spoil a gradient. The price
    is one compilation per value of nu.

    Attributes:
        log_weights: The normalised log weights, -inf for components that only pad the shape.
        means: The centres of the components.
        factors: The lower Cholesky factors of the scale matrices (the covariances if Gaussian).
        degrees: The degrees of freedom nu of every component.
    """

    log_weights: Float[Array, " components"]
    means: Float[Array, "components dim"]
    factors: Float[Array, "components dim dim"]
    degrees: float = eqx.field(static=True, converter=float, default=math.inf)

    @property
    def components(self) -> int:
        return self.means.shape[0]

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    def component_log_probs(self, u: Float[Array, " dim"]) -> Float[Array, " components"]:
        """Computes ln q_k(u) of each component, without its weight."""
        whitened = jnp.einsum("kij,kj->ki", self._whitening(), u - self.means)
        return self._log_profile(jnp.sum(whitened**2, axis=1))

    def component_terms(
        self, points: Float[Array, "n dim"]
    ) -> tuple[Float[Array, "n components"], Float[Array, "n components"]]:
        """Computes ln q_k at many points, and squared distances, by one matrix product."""
        inverses = self._whitening()
        offsets = jnp.einsum("kij,kj->ki", inverses, self.means)
        whitened = (inverses.reshape(-1, self.dim) @ points.T).reshape(-1, self.dim, len(points))
        distances = jnp.sum((whitened - offsets[:, :, None]) ** 2, axis=1).T
        return self._log_profile(distances), distances

    def energies(self, distances: Arrays) -> Arrays:
        """Computes what squared Mahalanobis distances take off ln q_k, for NumPy and for JAX."""
        if math.isinf(self.degrees):
            return 0.5 * distances
        numpy = distances.__array_namespace__()
        return 0.5 * (self.degrees + self.dim) * numpy.log1p(distances / self.degrees)

    def log_prob(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Computes ln q(u)."""
        return logsumexp(self.log_weights + self.component_log_probs(u))

    def responsibilities(self, u: Float[Array, " dim"]) -> Float[Array, " components"]:
        """Computes w_k q_k(u) / q(u), or the weights w_k where every q_k(u) underflows."""
        terms = self.log_weights + self.component_log_probs(u)
        return jax.nn.softmax(jnp.where(jnp.max(terms) > -jnp.inf, terms, self.log_weights))

    def sample(self, key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
        """Makes independent draws."""
        noise_key, place_key = jax.random.split(key)
        noise = normal_draws(noise_key, (n, self.dim), self.means.dtype)
        return self.place(place_key, noise)

    def place(self, key: Key[Array, ""], noise: Float[Array, "n dim"]) -> Float[Array, "n dim"]:
        """Turns standard normal numbers into draws; the key chooses components and tails."""
        component_key, tail_key = jax.random.split(key)
        n = len(noise)
        # Inverting the distribution compiles faster than `jax.random.categorical`.
        levels = jax.random.uniform(component_key, (n,), noise.dtype)
        bounds = jnp.cumsum(jnp.exp(self.log_weights))
        index = jnp.searchsorted(bounds / bounds[-1], levels, side="right", method="compare_all")
        index = jnp.minimum(index, self.components - 1)
        if math.isfinite(self.degrees):
            squares = _chi_squared_draws(tail_key, self.degrees, n, noise.dtype)
            noise = noise * jnp.sqrt(self.degrees / squares)[:, None]
        return jax.lax.map(
            lambda pair: self.means[pair[0]] + self.factors[pair[0]] @ pair[1],
            (index, noise),
            batch_size=min(_BATCH, n),
        )

    def _whitening(self) -> Float[Array, "components dim dim"]:
        """Inverts the factors: many points share them, and multiply where they would solve."""
        eye = jnp.eye(self.dim, dtype=self.factors.dtype)
        # One after the other: see `cores` on batches of decompositions.
        return jax.lax.map(lambda L: solve_triangular(L, eye, lower=True), self.factors)

    def _log_profile(
        self, distances: Float[Array, "*n components"]
    ) -> Float[Array, "*n components"]:
        """Computes ln q_k at squared Mahalanobis distances from each component."""
        log_dets = jnp.sum(jnp.log(jnp.diagonal(self.factors, axis1=1, axis2=2)), axis=1)
        return self._log_constant() - log_dets - self.energies(distances)

    def _log_constant(self) -> float:
        """Computes ln of the constant of a component with unit scale matrix."""
        nu, dim = self.degrees, self.dim
        if math.isinf(nu):
            return -0.5 * dim * math.log(2 * math.pi)
        gammas = math.lgamma(0.5 * (nu + dim)) - math.lgamma(0.5 * nu)
        return gammas - 0.5 * dim * math.log(nu * math.pi)


class Defensive(eqx.Module):
    """The proposal (1 - share) mixture + share N(0, scale^2 I).

    Its second part bounds the importance weights wherever the prior rules.
    """

    mixture: Mixture
    share: float = 0.05
    scale: float = 1.0

    def log_prob(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Computes ln q(u)."""
        dim = self.mixture.dim
        normal = (
            -0.5 * jnp.sum((u / self.scale) ** 2)
            - dim * jnp.log(self.scale)
            - 0.5 * dim * math.log(2 * math.pi)
        )
        mixture = self.mixture.log_prob(u)
        return jnp.logaddexp(jnp.log1p(-self.share) + mixture, jnp.log(self.share) + normal)

    def sample(self, key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
        """Makes independent draws."""
        choice_key, mixture_key, noise_key = jax.random.split(key, 3)
        # A draw is made of its numbers in one of two ways, so that they can serve both.
        noise = normal_draws(noise_key, (n, self.mixture.dim), self.mixture.means.dtype)
        wide = jax.random.uniform(choice_key, (n, 1), noise.dtype) < self.share
        return jnp.where(wide, self.scale * noise, self.mixture.place(mixture_key, noise))


def gaussian_mixture(
    weights: Float[Array, " components"],
    means: Float[Array, "components dim"],
    covariances: Float[Array, "components dim dim"],
) -> Mixture:
    """Makes a Gaussian mixture of weights (normalised here), means and covariances."""
    weights, means = jnp.asarray(weights), jnp.asarray(means)
    log_weights = jnp.log(weights / jnp.sum(weights))
    return Mixture(log_weights, means, jnp.linalg.cholesky(jnp.asarray(covariances)))


def normal_draws(key: Key[Array, ""], shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    """Draws standard normal numbers, flat: XLA compiles that several times faster than a shape."""
    return jax.random.normal(key, (math.prod(shape),), dtype).reshape(shape)


@eqx.filter_jit
def lower_factor(root: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """Computes the lower Cholesky factor of root root^T without forming the product.

    Orthogonal triangularisation cannot fail where rounding makes the product indefinite.
    """
    upper = jnp.linalg.qr(root.T, mode="r")
    return (upper * jnp.where(jnp.diagonal(upper) < 0, -1, 1)[:, None]).T


def _chi_squared_draws(
    key: Key[Array, ""], degrees: float, n: int, dtype: jnp.dtype
) -> Float[Array, " n"]:
    # The gamma sampler's rejection loop alone would take seconds to compile.
    if degrees.is_integer() and degrees <= _MOST_SQUARES:
        return jnp.sum(normal_draws(key, (n, int(degrees)), dtype) ** 2, axis=1)
    return jax.random.chisquare(key, degrees, (n,), dtype)
