"""Draws of several proposals as draws of their mixture."""

import jax
import jax.numpy as jnp
import numpy as np

from densities import two_gaussians
from latentuq.inference.importance import effective_sample_size, importance_sample
from latentuq.inference.mixture import Defensive, gaussian_mixture
from latentuq.inference.target import Target
from studies.bench.pool import gather

DIM = 2
TARGET = Target(two_gaussians(DIM, 6.0).log_prob, DIM)
SIZES = (4096, 1000)


def one_sided(sign):
    """A proposal for one of the two Gaussians alone."""
    mean = jnp.zeros((1, DIM)).at[0, 0].set(3.0 * sign)
    return Defensive(gaussian_mixture(jnp.ones(1), mean, 1.2 * jnp.eye(DIM)[None]), scale=3.0)


def batches(number):
    proposals = [one_sided(1 - 2 * (place % 2)) for place in range(number)]
    draws = [
        importance_sample(jax.random.key(place), TARGET.log_density, proposal, SIZES[place % 2])
        for place, proposal in enumerate(proposals)
    ]
    return proposals, draws


def pooled(proposals, draws):
    pool = None
    for proposal, each in zip(proposals, draws, strict=True):
        pool = gather(pool, proposal, each)
    return pool


def test_two_halves_make_a_whole():
    proposals, draws = batches(2)
    pool = pooled(proposals, draws)
    density = np.exp(np.asarray(jax.vmap(TARGET.log_density)(jnp.asarray(pool.points))))
    shares = np.array(SIZES) / sum(SIZES)
    mixture = sum(
        share * np.exp(np.asarray(jax.vmap(proposal.log_prob)(jnp.asarray(pool.points))))
        for share, proposal in zip(shares, proposals, strict=True)
    )
    np.testing.assert_allclose(np.exp(pool.log_weights), density / mixture, rtol=1e-3)
    # The mean weight is the integral, here 1, within four standard errors.
    weights = np.exp(pool.log_weights)
    error = weights.std() / np.sqrt(len(weights))
    assert abs(weights.mean() - 1) < 4 * error
    # Neither half alone is worth much: the other Gaussian has a few draws of huge weight.
    assert effective_sample_size(pool.log_weights) > 4 * max(float(each.ess) for each in draws)


def test_the_oldest_batches_are_forgotten():
    proposals, draws = batches(7)
    last = pooled(proposals[2:], draws[2:])
    np.testing.assert_allclose(
        pooled(proposals, draws).log_weights, last.log_weights, rtol=1e-4, atol=1e-4
    )
    assert len(last.sizes) == 5
