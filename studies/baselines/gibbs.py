"""Gibbs sampling with the VAE's encoder: impute the image, encode it, and so on.

Both methods alternate between the clean image and the latent. The image is drawn from p(x | z, y),
exactly: where the data are pixels without noise that is the hidden pixels alone, as published; with
noise or blur it is the whole image, so the methods hold for any linear operator. The latent is
drawn from the encoder's q(z | x), which is not p(z | x):

- Pseudo-Gibbs (Rezende, Mohamed and Wierstra 2014) takes it as if it were. What it converges to
  differs from the posterior as much as q differs from p(z | x).
- Metropolis-within-Gibbs (Mattei and Frellsen 2018) accepts it with probability
  min(1, p(x | z') p(z') q(z | x) / (p(x | z) p(z) q(z' | x))), which has the posterior as its
  limit.

Given the whole image, z is all but known; so chains move in steps of the width of p(z | x), however
wide p(z | y) is, and rarely change from one mode to another. Imputed images contain the model
error, which an encoder trained on clean images has not seen: on images drawn from the `mnist` prior
its mean is 3 to 4 of its standard deviations off in each dimension, and Metropolis refuses nearly
all.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from latentuq.core.errors import UserError
from latentuq.forward import Mask
from latentuq.likelihood.noise import GaussianNoise
from latentuq.problem import InverseProblem
from studies.baselines.encoding import check_encoder, gaussian_log_prob, to_base, to_latent
from studies.baselines.result import BaselineResult
from studies.baselines.timing import Timer
from studies.exact import gaussian_part

# Forward evaluations of a step: the encoder and p(x | z, y), for the ratio p(x | z) at both z too.
_PSEUDO_COST = 2
_METROPOLIS_COST = 4


class State(NamedTuple):
    """Where a chain is: base variable and clean image."""

    u: Float[Array, " dim"]
    x: Float[Array, "*shape"]


def pseudo_gibbs(
    key: Key[Array, ""],
    problem: InverseProblem,
    *,
    chains: int = 256,
    steps: int = 100,
    burn_in: int = 100,
) -> BaselineResult:
    """Alternates z ~ q(z | x) and x ~ p(x | z, y); there is no evidence.

    Args:
        key: Randomness.
        problem: Its prior must have an encoder.
        chains: Chains, each started from its own draw of the prior.
        steps: Steps that are kept of each; `chains * steps` draws are returned, chain by chain.
        burn_in: Steps before them.
    """
    _check(problem, "Pseudo-Gibbs", chains, steps, burn_in)
    problem = _with_likelihood_error(problem)
    start_key, run_key = jax.random.split(key)
    timer = Timer()
    states = timer.run(_start, start_key, problem, chains)
    _, visited, _ = timer.run(_walk, run_key, problem, None, states, burn_in + steps)
    return _result(timer, visited[burn_in:], 1 + _PSEUDO_COST * (burn_in + steps), {})


def metropolis_within_gibbs(
    key: Key[Array, ""],
    problem: InverseProblem,
    *,
    chains: int = 256,
    steps: int = 200,
    burn_in: int = 200,
    warm_up: int = 20,
) -> BaselineResult:
    """Pseudo-Gibbs with every z accepted or refused by Metropolis-Hastings; there is no evidence.

    Args:
        key: Randomness.
        problem: Its prior must have an encoder, and a model error that is not singular.
        chains: Chains, each started from its own draw of the prior.
        steps: Steps that are kept of each; `chains * steps` draws are returned, chain by chain.
        burn_in: Steps before them.
        warm_up: Steps of pseudo-Gibbs before those, without which chains that start where the
            encoder is of no use stay there.
    """
    _check(problem, "Metropolis-within-Gibbs", chains, steps, burn_in)
    problem = _with_likelihood_error(problem)
    if warm_up < 0:
        raise UserError(f"Metropolis-within-Gibbs needs warm_up >= 0, not {warm_up}.")
    start_key, warm_up_key, run_key = jax.random.split(key, 3)
    timer = Timer()
    states = timer.run(_start, start_key, problem, chains)
    if warm_up:
        states, _, _ = timer.run(_walk, warm_up_key, problem, None, states, warm_up)
    # Of a clean image that is seen as it is: its density at u is p(x | z) p(u).
    every_pixel = Mask(np.ones(problem.prior.shape))
    prior = dataclasses.replace(problem.prior, model_error=gaussian_part(problem).image_error)
    clean = InverseProblem(prior, every_pixel, GaussianNoise(0.0), every_pixel.mask)
    _, visited, accepted = timer.run(_walk, run_key, problem, clean, states, burn_in + steps)
    forwards = 1 + _PSEUDO_COST * warm_up + _METROPOLIS_COST * (burn_in + steps)
    history = {"acceptances": np.asarray(accepted, np.float64).mean(axis=1)}
    return _result(timer, visited[burn_in:], forwards, history)


def _check(problem: InverseProblem, method: str, chains: int, steps: int, burn_in: int) -> None:
    check_encoder(problem.prior, method)
    if chains < 1 or steps < 1 or burn_in < 0:
        raise UserError(
            f"{method} needs chains >= 1, steps >= 1 and burn_in >= 0, not"
            f" {chains}, {steps} and {burn_in}."
        )


def _result(
    timer: Timer,
    visited: Float[Array, "steps chains dim"],
    forwards: int,
    history: dict[str, Float[np.ndarray, " all_steps"]],
) -> BaselineResult:
    """The kept steps, chain by chain; `forwards` is the cost of one chain."""
    _, chains, dim = visited.shape
    return BaselineResult(
        draws=np.asarray(jnp.swapaxes(visited, 0, 1)).reshape(-1, dim),
        log_evidence=None,
        log_evidence_error=None,
        seconds=timer.seconds,
        compile_seconds=timer.compile_seconds,
        gradients=0,
        forward_equivalents=chains * forwards,
        history=history,
    )


@eqx.filter_jit
def _start(key: Key[Array, ""], problem: InverseProblem, chains: int) -> State:
    """Draws of the prior, and images that go with them and the data."""
    u_key, x_key = jax.random.split(key)
    u = jax.random.normal(u_key, (chains, problem.dim))
    return State(u, jax.vmap(problem.conditional_images)(jax.random.split(x_key, chains), u))


@eqx.filter_jit
def _walk(
    key: Key[Array, ""],
    problem: InverseProblem,
    clean: InverseProblem | None,
    states: State,
    steps: int,
) -> tuple[State, Float[Array, "steps chains dim"], Bool[Array, "steps chains"]]:
    """Moves all chains: their last states, every u on the way, and which moves were accepted."""
    chains = len(states.u)

    def step(states, step_key):
        keys = jax.random.split(step_key, chains)
        states, accepted = jax.vmap(lambda key, state: _move(key, problem, clean, state))(
            keys, states
        )
        return states, (states.u, accepted)

    last, (visited, accepted) = jax.lax.scan(step, states, jax.random.split(key, steps))
    return last, visited, accepted


def _move(
    key: Key[Array, ""], problem: InverseProblem, clean: InverseProblem | None, state: State
) -> tuple[State, Bool[Array, ""]]:
    """One step of one chain: z given x, then x given z; without `clean` every z is accepted."""
    z_key, accept_key, x_key = jax.random.split(key, 3)
    mean, std = problem.prior.encode(state.x)
    u, _ = to_base(problem.prior, mean + std * jax.random.normal(z_key, mean.shape))
    if clean is None:
        accepted = jnp.asarray(True)
    else:
        seen = clean.with_data(state.x)

        def log_weight(u):
            """Ln p(x | z) p(z) / q(z | x) at z = flow(u)."""
            z, log_det = to_latent(problem.prior, u)
            return seen.log_density(u) + log_det - gaussian_log_prob(z, mean, std)

        new, old = jax.vmap(log_weight)(jnp.stack([u, state.u]))
        # A ratio that is not a number is refused.
        accepted = jnp.log(jax.random.uniform(accept_key)) < new - old
    u = jnp.where(accepted, u, state.u)
    return State(u, problem.conditional_images(x_key, u)), accepted


def _with_likelihood_error(problem: InverseProblem) -> InverseProblem:
    """Images drawn with the error of N(y; A g(u), C): otherwise x and u would have no joint law.

    That is the posterior which is sampled, also of a problem with another `likelihood`.
    """
    gaussian = gaussian_part(problem)
    error = dataclasses.replace(gaussian.error, gain=None, most_data=None)
    gaussian = eqx.tree_at(lambda each: each.image_error, gaussian, error)
    return eqx.tree_at(lambda each: each.likelihood, problem, gaussian)
