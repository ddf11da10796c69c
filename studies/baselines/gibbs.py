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

from latentuq import GaussianNoise, InverseProblem, Mask
from latentuq.core.compilation import bounded_jit
from latentuq.inference.result import Counts
from studies.baselines.encoding import gaussian_log_prob, to_base, to_latent
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

    The prior must have an encoder. Every chain starts from its own draw of the prior and makes
    `burn_in` steps that are dropped and `steps` that are kept; draws are returned chain by chain.
    """
    problem = _with_likelihood_error(problem)
    start_key, run_key = jax.random.split(key)
    timer = Timer()
    states = timer.run(_start, start_key, problem, chains)
    _, visited, _ = timer.run(_walk, run_key, problem, None, states, burn_in + steps)
    counts = Counts(forwards=chains * (1 + _PSEUDO_COST * (burn_in + steps)))
    return timer.result(_by_chain(visited[burn_in:]), counts)


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

    The model error must not be singular. Before the chains begin, they make `warm_up` steps of
    pseudo-Gibbs, without which those that start where the encoder is of no use stay there. All
    else is as in `pseudo_gibbs`.
    """
    problem = _with_likelihood_error(problem)
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
    acceptances = np.asarray(accepted, np.float64).mean(axis=1)
    counts = Counts(forwards=chains * forwards)
    return timer.result(_by_chain(visited[burn_in:]), counts, acceptances=acceptances)


def _by_chain(visited: Float[Array, "steps chains dim"]) -> Float[Array, "n dim"]:
    return jnp.swapaxes(visited, 0, 1).reshape(-1, visited.shape[-1])


@bounded_jit
def _start(key: Key[Array, ""], problem: InverseProblem, chains: int) -> State:
    """Draws of the prior, and images that go with them and the data."""
    u_key, x_key = jax.random.split(key)
    u = jax.random.normal(u_key, (chains, problem.dim))
    return State(u, jax.vmap(problem.conditional_images)(jax.random.split(x_key, chains), u))


@bounded_jit
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
