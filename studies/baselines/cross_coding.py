"""Cross-coding: a small network, fitted to one query, that turns noise into posterior draws.

Wu, Domke and Sanner (2018), "Conditional inference in pre-trained variational autoencoders via
cross-coding". Their XCoder is a map T from noise to the decoder's latent, trained anew for each
query (it sees neither mask nor data; nothing is amortised) while the decoder is left as it is. They
compare three maps: affine (a full-rank Gaussian), planar normalising flow and fully connected
network; the first two are the quick ones, because the third needs the determinant of a Jacobian at
every draw. Ours is those two in a row, u = location + L h(noise) with h a planar flow: the affine
part places and scales what the flow shapes. `layers=0` is their Gaussian.

Their latent is N(0, I) a priori, so here it is u.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq import InverseProblem
from latentuq.core.compilation import bounded_jit
from latentuq.inference.result import Counts
from latentuq.prior.flow import standard_normal_log_prob
from studies.baselines.result import BaselineResult, LogDensity
from studies.baselines.svi import descend_noisy
from studies.baselines.timing import Timer

# Draws evaluated together: activations of a small network then stay in the processor's cache.
# A divisor of round numbers: there is no remainder to compile for.
_CHUNK = 250


class Planar(eqx.Module):
    """v -> v + push tanh(direction . v + offset), one step of a planar flow."""

    direction: Float[Array, " dim"]
    raw_push: Float[Array, " dim"]
    offset: Float[Array, ""]

    def __call__(self, v: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """The moved point, and ln |det| of the map's Jacobian."""
        along = self.direction @ self.raw_push
        # Invertible if direction . push > -1; the shift makes raw_push = 0 the identity.
        kept = jax.nn.softplus(along + jnp.log(jnp.expm1(1.0))) - 1.0
        push = self.raw_push + (kept - along) * self.direction / (self.direction @ self.direction)
        bent = jnp.tanh(self.direction @ v + self.offset)
        return v + push * bent, jnp.log1p((1 - bent**2) * kept)


class XCoder(eqx.Module):
    """u = location + L h(noise), L lower triangular, h a stack of planar steps."""

    planar: Planar
    location: Float[Array, " dim"]
    lower: Float[Array, "dim dim"]
    log_diagonal: Float[Array, " dim"]

    def __call__(
        self, noise: Float[Array, " dim"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """Returns u and ln q(u) for one draw of N(0, I)."""
        v, log_dets = jax.lax.scan(lambda v, step: step(v), noise, self.planar)
        L = jnp.tril(self.lower, -1) + jnp.diag(jnp.exp(self.log_diagonal))
        log_det = jnp.sum(log_dets) + jnp.sum(self.log_diagonal)
        return self.location + L @ v, standard_normal_log_prob(noise) - log_det


def cross_coding(
    key: Key[Array, ""],
    problem: InverseProblem,
    *,
    steps: int = 2000,
    batch: int = 64,
    layers: int = 8,
    learning_rate: float = 0.02,
    draws: int = 4000,
) -> BaselineResult:
    """Fits q(u) to the posterior of this one problem by maximising the ELBO, and draws from it.

    ELBO = E_q[ln p(y, u) - ln q(u)] with gradients through u = T(noise), by Adam with a rate that
    falls to zero (cosine). `log_evidence` is the ELBO of the fitted q on the returned draws, which
    the fit has not seen: a lower bound, short of ln p(y) by KL(q || posterior). As every fit of
    KL(q || p) it may leave out modes; nothing in one run tells.

    Any operator will do, and no encoder is needed. `batch` draws are made at every step, and there
    are `layers` planar steps; none make a Gaussian.
    """
    start_key, fit_key, draw_key = jax.random.split(key, 3)
    timer = Timer()
    density = problem.log_density
    rate = jnp.asarray(learning_rate, jnp.float32)
    start = _start(start_key, problem.dim, layers)
    xcoder, elbos = timer.run(_fit, fit_key, density, start, rate, steps, batch)
    u, terms = timer.run(_draw, draw_key, density, xcoder, draws)
    counts = Counts(forwards=draws, gradients=steps * batch)
    return timer.result(u, counts, np.mean(np.asarray(terms, np.float64)), elbos=elbos)


def _start(key: Key[Array, ""], dim: int, layers: int) -> XCoder:
    """The XCoder that gives the prior: the identity, with planar directions drawn at random."""
    directions = jax.random.normal(key, (layers, dim)) / jnp.sqrt(dim)
    planar = Planar(directions, jnp.zeros((layers, dim)), jnp.zeros(layers))
    return XCoder(planar, jnp.zeros(dim), jnp.zeros((dim, dim)), jnp.zeros(dim))


@bounded_jit
def _fit(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    xcoder: XCoder,
    learning_rate: Float[Array, ""],
    steps: int,
    batch: int,
) -> tuple[XCoder, Float[Array, " steps"]]:
    """The fitted XCoder, and the ELBO of each step's batch."""
    import optax

    def loss(xcoder, step_key):
        noise = jax.random.normal(step_key, (batch, xcoder.location.size))
        u, log_q = jax.vmap(xcoder)(noise)
        return jnp.mean(log_q - jax.vmap(log_density_fn)(u))

    falling: Any = optax.cosine_decay_schedule(learning_rate, steps)  # pyright: ignore
    return descend_noisy(key, loss, xcoder, falling(jnp.arange(steps)))


@bounded_jit
def _draw(
    key: Key[Array, ""], log_density_fn: LogDensity, xcoder: XCoder, draws: int
) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
    """Draws of q, and ln p - ln q at each."""

    def one(noise):
        u, log_q = xcoder(noise)
        return u, log_density_fn(u) - log_q

    noise = jax.random.normal(key, (draws, xcoder.location.size))
    return jax.lax.map(one, noise, batch_size=_CHUNK)
