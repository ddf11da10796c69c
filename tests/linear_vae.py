"""Linear VAEs whose encoder is known: every answer is exact, with or without a flow."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior.architecture import FlowSize
from latentuq.prior.flow import init_flow
from latentuq.prior.generative import Card, GenerativePrior
from latentuq.prior.model_error import make_model_error
from latentuq.problem.inverse import InverseProblem
from studies.exact import LinearDecoder

SHAPE = (5, 4)
DIM = 3
SIGMA = 0.5


class LinearEncoder(eqx.Module):
    """p(u | x) for a whole image; with a flow, roughly that of z. `width` scales its spread."""

    decoder: LinearDecoder
    flow: object
    width: jax.Array

    def __call__(self, x):
        weights = self.decoder.weights.reshape(DIM, -1)
        # The rows are orthogonal, so the posterior's covariance is diagonal.
        variance = 1 / (1 + jnp.sum(weights**2, axis=1) / SIGMA**2)
        u = variance * (weights @ jnp.ravel(x - self.decoder.offset)) / SIGMA**2
        std = self.width * jnp.sqrt(variance)
        return (u, std) if self.flow is None else (self.flow(u), self.flow.scale * std)


class Unwound(eqx.Module):
    """z -> decoder(flow^-1(z)): with the flow in front, g(u) is the decoder itself."""

    decoder: LinearDecoder
    flow: object

    def __call__(self, z):
        return self.decoder(self.flow.inverse(z)[0])


def curved_flow():
    """A flow whose Jacobian varies from place to place."""
    location, scale = jnp.asarray([1.0, -1.0, 0.5]), jnp.asarray([2.0, 0.5, 1.0])
    flow = init_flow(jax.random.key(3), FlowSize(depth=4, width=4), location, scale)
    last = flow.couplings.layers[2].weight
    bent = 0.3 * jax.random.normal(jax.random.key(4), last.shape)
    return eqx.tree_at(lambda flow: flow.couplings.layers[2].weight, flow, bent)


def linear_vae(flow=None, width=1.0):
    """A prior with g(u) linear; `exact_problem` has the same without the flow."""
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(np.prod(SHAPE), DIM)))
    weights = jnp.asarray((basis * [0.6, 0.8, 1.0]).T.reshape(DIM, *SHAPE), jnp.float32)
    decoder = LinearDecoder(weights, jnp.full(SHAPE, 0.5))
    error = make_model_error(SIGMA, SHAPE)
    return GenerativePrior(
        decoder=decoder if flow is None else Unwound(decoder, flow),
        flow=flow,
        model_error=error,
        model_errors={"given": error},
        encoder=LinearEncoder(decoder, flow, jnp.asarray(width)),
        dim=DIM,
        shape=SHAPE,
        card=Card(name="linear VAE"),
    )


def make_problem(prior, operator, noise=0.2):
    y = operator(linear_vae().sample(jax.random.key(1), 1)[0])
    return InverseProblem(prior, operator, GaussianNoise(noise), y)


def exact_problem(problem):
    """The same posterior, in the form that `exact_posterior` solves."""
    plain = dataclasses.replace(problem.prior, decoder=linear_vae().decoder, flow=None)
    return InverseProblem(plain, problem.operator, problem.noise, problem.y)
