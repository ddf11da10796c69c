"""Stochastic variational inference: the Gaussian of the highest evidence lower bound.

ELBO(q) = E_q[ln p(u) - ln q(u)] = ln evidence - KL(q | p), climbed by Adam on draws
u = mean + L noise. The gradient is that of the path alone ("sticking the landing", Roeder, Wu and
Duvenaud 2017): ln q keeps its parameters fixed, which leaves out a term of mean zero and makes the
noise vanish where q fits.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, ArrayLike, Float, Key

from latentuq.core.compilation import bounded_jit
from latentuq.inference.mixture import normal_draws
from latentuq.inference.result import Counts
from latentuq.inference.target import BATCH, Target
from studies.baselines.result import BaselineResult, LogDensity
from studies.baselines.schedule import run_adam, staged_rates
from studies.baselines.timing import Timer

Family = Literal["mean-field", "full-rank"]


class Settings(NamedTuple):
    """Draws of each gradient, and the steps and learning rates of the stages."""

    samples: int
    steps: Sequence[int]
    learning_rates: Sequence[float]


PAPER: dict[Family, Settings] = {
    "mean-field": Settings(512, (4000, 2000, 1000), (1e-3, 1e-4, 1e-5)),
    "full-rank": Settings(512, (5000, 3000, 2000), (1e-3, 1e-4, 1e-6)),
}
"""The notebook published with arXiv 1910.10046, whose text says 512 draws and about 8000 steps."""
FAST = Settings(32, (500, 500, 500), (3e-2, 1e-2, 2e-3))


class _Gaussian(NamedTuple):
    """N(mean, L L^T); `raw` holds ln of L's diagonal, and below it L itself if it is a matrix."""

    mean: Float[Array, " dim"]
    raw: Float[Array, "..."]

    def factor(self) -> Float[Array, "dim dim"]:
        if self.raw.ndim == 1:
            return jnp.diag(jnp.exp(self.raw))
        return jnp.tril(self.raw, -1) + jnp.diag(jnp.exp(jnp.diagonal(self.raw)))

    def sample(self, key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
        noise = normal_draws(key, (n, self.mean.size), self.mean.dtype)
        return self.mean + noise @ self.factor().T

    def log_prob(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        factor = self.factor()
        whitened = solve_triangular(factor, u - self.mean, lower=True)
        log_det = jnp.sum(jnp.log(jnp.diagonal(factor)))
        return jnp.sum(jax.scipy.stats.norm.logpdf(whitened)) - log_det


def svi(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    dim: int,
    *,
    family: Family = "full-rank",
    settings: Settings = FAST,
    draws: int = 1000,
    scale: float = 1.0,
) -> BaselineResult:
    """Fits one Gaussian and draws from it.

    `log_evidence` is the ELBO of the fit, estimated with the draws that are returned: a lower bound
    of the evidence, low by KL(q | p); its error is that of the estimate and knows nothing of the
    gap. It is NaN if the fit left the region where the density is finite. `history` holds the
    ELBO's estimate at every step, and the fit: its mean and the Cholesky factor of its covariance.

    The fit starts from N(0, scale^2 I); `settings` are `FAST`, `PAPER[family]` or your own, and a
    "mean-field" fit has a diagonal covariance.
    """
    rates = staged_rates(settings.learning_rates, settings.steps)
    target = Target(log_density_fn, dim, scale=scale)
    fit_key, draw_key = jax.random.split(key)
    shape = (dim,) if family == "mean-field" else (dim, dim)
    # The strict lower triangle starts at zero, whatever the diagonal.
    raw = jnp.full(shape, np.log(scale)) * (1 if len(shape) == 1 else jnp.eye(dim))
    timer = Timer()
    start = _Gaussian(jnp.zeros(dim), raw)
    fit, elbos = timer.run(_fit, fit_key, target.log_density_fn, start, rates, settings.samples)
    u, gaps = timer.run(_gaps, draw_key, target.log_density_fn, fit, draws)
    counts = Counts(forwards=draws, gradients=rates.size * settings.samples)
    error = np.std(gaps, ddof=1) / np.sqrt(draws)
    history = {"elbo": elbos, "mean": fit.mean, "factor": fit.factor()}
    return timer.result(u, counts, np.mean(gaps), error, **history)


@bounded_jit
def _fit(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    start: _Gaussian,
    rates: Float[Array, " steps"],
    samples: int,
) -> tuple[_Gaussian, Float[Array, " steps"]]:
    """The Gaussian after all steps, and the ELBO's estimate before each."""

    def loss(q, step_key):
        u = q.sample(step_key, samples)
        fixed = jax.lax.stop_gradient(q)
        return jnp.mean(jax.vmap(lambda v: fixed.log_prob(v) - log_density_fn(v))(u))

    return descend_noisy(key, loss, start, rates)


def descend_noisy(
    key: Key[Array, ""],
    loss: Callable[[Any, Key[Array, ""]], Float[Array, ""]],
    start: Any,
    rates: Float[ArrayLike, " steps"],
) -> tuple[Any, Float[Array, " steps"]]:
    """Adam on a loss with fresh randomness at each step: its end, and -loss before each step."""
    rates = jnp.asarray(rates)
    end, values = run_adam(loss, start, rates, jax.random.split(key, rates.size))
    return end, -values


@bounded_jit
def _gaps(
    key: Key[Array, ""], log_density_fn: LogDensity, q: _Gaussian, n: int
) -> tuple[Float[Array, "n dim"], Float[Array, " n"]]:
    """Draws of q, and ln p - ln q at each."""
    u = q.sample(key, n)

    def gap(point):
        return log_density_fn(point) - q.log_prob(point)

    return u, jax.lax.map(gap, u, batch_size=min(BATCH, n))
