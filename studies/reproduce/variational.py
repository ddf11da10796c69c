"""Stochastic variational inference under the paper's claims: convergence, draws, stability."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.core.compilation import bounded_jit
from latentuq.inference.mixture import normal_draws
from studies.baselines.result import LogDensity
from studies.baselines.svi import Family, Settings, descend_noisy, svi
from studies.reproduce.gaussians import BOUND_DRAWS

DIAGONALS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "softplus": (jax.nn.softplus, float(np.log(np.e - 1))),
    "exponential": (jnp.exp, 0.0),
}
"""What keeps the diagonal of a Cholesky factor positive, and the argument at which it is one."""

# The ELBO has converged where its mean over so many steps is this close, in nats, to the last one.
_WINDOW = 100
_CLOSE = 0.1
# A run has fallen if it ends this many nats below the best that it had reached.
_FALL = 10.0


def steps_to_converge(elbos: Float[np.ndarray, " steps"]) -> int | None:
    """The step from which on the smoothed ELBO stays within 0.1 nats of its end; None: never."""
    smooth = _smooth(np.asarray(elbos, np.float64))
    if not np.isfinite(smooth[-1]):
        return None
    far = np.flatnonzero(~(np.abs(smooth - smooth[-1]) < _CLOSE))
    last = int(far[-1]) + 1 if far.size else 0
    # What only the last window reaches may still be on its way.
    return last + _WINDOW if last < len(smooth) - _WINDOW else None


def _smooth(elbos: Float[np.ndarray, "*runs steps"]) -> Float[np.ndarray, "*runs windows"]:
    """Means over windows; -inf where the ELBO was not finite."""
    window = min(_WINDOW, elbos.shape[-1])
    means = np.lib.stride_tricks.sliding_window_view(elbos, window, axis=-1).mean(axis=-1)
    return np.where(np.isfinite(means), means, -np.inf)


def measure_svi(
    key: Key[Array, ""], log_density_fn: LogDensity, dim: int, family: Family, settings: Settings
) -> dict[str, Any]:
    """One fit: what it cost, its ELBO, where it is, and when it had converged."""
    result = svi(key, log_density_fn, dim, family=family, settings=settings, draws=BOUND_DRAWS)
    elbos = result.history["elbo"]
    return {
        "samples": settings.samples,
        "steps": int(sum(settings.steps)),
        "converged": steps_to_converge(elbos),
        "seconds": result.seconds,
        "forward_equivalents": result.forward_equivalents,
        "elbo": result.log_evidence,
        "elbo_error": result.log_evidence_error,
        "finite": bool(np.all(np.isfinite(elbos))),
        "mean": result.history["mean"].tolist(),
        "factor": result.history["factor"].tolist(),
    }


def measure_stability(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    dim: int,
    diagonal: str,
    rate: float,
    *,
    steps: int = 600,
    repeats: int = 4,
) -> dict[str, Any]:
    """Full-rank SVI with the paper's gradient at one learning rate, from a standard normal.

    Returns:
        `broken`: runs whose ELBO was not finite at some step. `fallen`: runs that ended more than
        10 nats below the best that they had reached. `elbos`: the mean over the last steps.
    """
    samples = 32
    keys, rates = jax.random.split(key, repeats), jnp.full(steps, rate)
    _, _, traces = climb(keys, log_density_fn, dim, rates, samples, diagonal)
    elbos = np.asarray(traces, np.float64)
    smooth = _smooth(elbos)
    last = smooth[:, -1]
    return {
        "runs": repeats,
        "broken": int(np.sum(~np.all(np.isfinite(elbos), axis=1))),
        "fallen": int(np.sum(last < np.max(smooth, axis=1) - _FALL)),
        "elbos": [float(value) if np.isfinite(value) else None for value in last],
        "steps": steps,
        "samples": samples,
    }


@bounded_jit
def climb(
    keys: Key[Array, " runs"],
    log_density_fn: LogDensity,
    dim: int,
    rates: Float[Array, " steps"],
    samples: int,
    diagonal: str,
) -> tuple[Float[Array, "runs dim"], Float[Array, "runs dim dim"], Float[Array, "runs steps"]]:
    """Full-rank SVI as the paper has it, many runs at once: means, factors, ELBO at every step.

    ELBO = <ln p>_q + entropy of q, the second in closed form, with the whole gradient of the first
    and no offset on the diagonal. `studies.baselines.svi` differs in the gradient.
    """
    transform, start = DIAGONALS[diagonal]
    constant = 0.5 * dim * (1 + np.log(2 * np.pi))

    def factor(raw):
        return jnp.tril(raw, -1) + jnp.diag(transform(jnp.diagonal(raw)))

    def loss(q, key):
        mean, raw = q
        L = factor(raw)
        u = mean + normal_draws(key, (samples, dim), mean.dtype) @ L.T
        entropy = constant + jnp.sum(jnp.log(jnp.diagonal(L)))
        return -jnp.mean(jax.vmap(log_density_fn)(u)) - entropy

    def run(key):
        first = (jnp.zeros(dim), start * jnp.eye(dim))
        (mean, raw), elbos = descend_noisy(key, loss, first, rates)
        return mean, factor(raw), elbos

    return jax.vmap(run)(keys)
