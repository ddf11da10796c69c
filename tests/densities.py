"""Densities with known answers; parameters are leaves, so that a whole family compiles once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from latentuq.inference.mixture import Mixture, gaussian_mixture


def two_gaussians(
    dim: int, gap: float, weights: tuple[float, float] = (0.5, 0.5), widths=(1.0, 1.0)
) -> Mixture:
    """Two round Gaussians on the first axis, `gap` apart."""
    means = np.zeros((2, dim), np.float32)
    means[:, 0] = -gap / 2, gap / 2
    covariances = [width**2 * np.eye(dim, dtype=np.float32) for width in widths]
    return gaussian_mixture(jnp.asarray(weights), jnp.asarray(means), jnp.asarray(covariances))


class Odd(eqx.Module):
    """Two-dimensional shapes that no Gaussian fits, and densities that are not densities.

    With v = (u_0, (u_1 - bend u_0^2) exp(-neck u_0 / 2)) and s = sum precision (v - mean)^2,

        ln p = -(s / 2 or 5/2 ln(1 + s / 3)) - neck u_0 / 2 + slope.u - ring ((|u| - 2) / 0.2)^2 / 2

    between `low` and `high`, and `outside` elsewhere.
    """

    bend: jax.Array
    neck: jax.Array
    mean: jax.Array
    precision: jax.Array
    heavy: jax.Array
    slope: jax.Array
    ring: jax.Array
    low: jax.Array
    high: jax.Array
    outside: jax.Array

    def log_density(self, u):
        v = jnp.stack([u[0], (u[1] - self.bend * u[0] ** 2) * jnp.exp(-0.5 * self.neck * u[0])])
        s = jnp.sum(self.precision * (v - self.mean) ** 2)
        energy = jnp.where(self.heavy, 2.5 * jnp.log1p(s / 3), 0.5 * s)
        radius = jnp.sqrt(jnp.sum(u**2) + 1e-12)
        energy += 0.5 * self.neck * u[0] + 0.5 * self.ring * ((radius - 2) / 0.2) ** 2
        inside = jnp.all((u > self.low) & (u < self.high))
        return jnp.where(inside, self.slope @ u - energy, self.outside)


def odd(
    *,
    bend: float = 0.0,
    neck: float = 0.0,
    mean: ArrayLike = (0.0, 0.0),
    precision: ArrayLike = (1.0, 1.0),
    heavy: bool = False,
    slope: ArrayLike = (0.0, 0.0),
    ring: float = 0.0,
    low: ArrayLike = (-np.inf, -np.inf),
    high: ArrayLike = (np.inf, np.inf),
    outside: float = -np.inf,
) -> Odd:
    parts = (bend, neck, mean, precision, heavy, slope, ring, low, high, outside)
    return Odd(*(jnp.asarray(part, bool if part is heavy else float) for part in parts))


class Quadratic(eqx.Module):
    """ln p = ln N(u; mean, precision^-1) + log_evidence, for any symmetric precision."""

    mean: jax.Array
    precision: jax.Array
    log_evidence: jax.Array

    def log_density(self, u):
        gap = u - self.mean
        log_det = jnp.linalg.slogdet(self.precision)[1]
        constant = 0.5 * (log_det - u.size * np.log(2 * np.pi)) + self.log_evidence
        return constant - 0.5 * gap @ self.precision @ gap


def quadratic(mean: ArrayLike, covariance: ArrayLike, log_evidence: float = 0.0) -> Quadratic:
    precision = jnp.linalg.inv(jnp.asarray(covariance, float))
    return Quadratic(jnp.asarray(mean, float), precision, jnp.asarray(log_evidence))
