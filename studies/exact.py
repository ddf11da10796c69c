"""Linear-Gaussian problems: with a linear generator every answer is known in closed form.

The algebra is written out with explicit matrices in float64 and shares nothing with the
factorisations of `InverseProblem` or with the inference, so that both can be tested against it.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq import GenerativePrior, InverseProblem, UserError
from latentuq.forward.operator import to_matrix
from latentuq.likelihood.gaussian import GaussianLikelihood
from latentuq.prior.generative import Card
from latentuq.prior.model_error import ModelError, make_model_error


class LinearDecoder(eqx.Module):
    """g(u) = offset + sum_k u_k weights[k]."""

    weights: Float[Array, "dim *shape"]
    offset: Float[Array, "*shape"]

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, "*shape"]:
        return self.offset + jnp.tensordot(u, self.weights, 1)


class ExactPosterior(NamedTuple):
    """p(u | y) = N(mean, covariance), ln p(y), and p(x | y) over the flattened image."""

    mean: Float[np.ndarray, " dim"]
    covariance: Float[np.ndarray, "dim dim"]
    log_evidence: float
    image_mean: Float[np.ndarray, " pixels"]
    image_covariance: Float[np.ndarray, "pixels pixels"]


def linear_prior(
    key: Key[Array, ""], dim: int, shape: tuple[int, ...], model_error: object = 0.1
) -> GenerativePrior:
    """A prior with a random linear generator: pixel values spread by about 0.3 around 0.5.

    Args:
        key: Randomness of the generator.
        dim: Size of u.
        shape: Shape of the image.
        model_error: A `ModelError`, or what `prior_from` takes.
    """
    weights = 0.3 / np.sqrt(dim) * jax.random.normal(key, (dim, *shape))
    given = isinstance(model_error, ModelError)
    error = model_error if given else make_model_error(model_error, shape)
    return GenerativePrior(
        decoder=LinearDecoder(weights, jnp.full(shape, 0.5)),
        flow=None,
        model_error=error,
        model_errors={"given": error},
        encoder=None,
        dim=dim,
        shape=shape,
        card=Card(name="linear"),
    )


def exact_posterior(problem: InverseProblem) -> ExactPosterior:
    """Solves a problem whose prior is `linear_prior` without approximation."""
    decoder = _linear_decoder(problem)
    A, y, noise = _observed_parts(problem)
    S = _covariance(gaussian_part(problem).error)
    G = np.asarray(decoder.weights, np.float64).reshape(problem.dim, -1).T
    offset = np.asarray(decoder.offset, np.float64).ravel()
    C = noise + A @ S @ A.T
    AG = A @ G
    covariance = np.linalg.inv(np.eye(problem.dim) + AG.T @ np.linalg.solve(C, AG))
    mean = covariance @ AG.T @ np.linalg.solve(C, y - A @ offset)
    prior_covariance = G @ G.T + S
    total = noise + A @ prior_covariance @ A.T
    image_mean, image_covariance = _condition(offset, prior_covariance, A, noise, y)
    return ExactPosterior(
        mean, covariance, _normal_log_prob(y - A @ offset, total), image_mean, image_covariance
    )


def exact_conditional_image(
    problem: InverseProblem, u: Float[Array, " dim"]
) -> tuple[Float[np.ndarray, " pixels"], Float[np.ndarray, "pixels pixels"]]:
    """Mean and covariance of p(x | u, y), for any generator."""
    A, y, noise = _observed_parts(problem)
    image = np.asarray(problem.prior.generate(jnp.asarray(u)), np.float64).ravel()
    return _condition(image, _covariance(gaussian_part(problem).image_error), A, noise, y)


def exact_log_density(problem: InverseProblem, u: Float[Array, " dim"]) -> float:
    """Ln N(y; A g(u), C) + ln N(u; 0, I) from explicit matrices, for any generator.

    Of a problem with another `likelihood` this is not the log density.
    """
    A, y, noise = _observed_parts(problem)
    image = np.asarray(problem.prior.generate(jnp.asarray(u)), np.float64).ravel()
    C = noise + A @ _covariance(gaussian_part(problem).error) @ A.T
    prior = _normal_log_prob(np.asarray(u, np.float64), np.eye(problem.dim))
    return _normal_log_prob(y - A @ image, C) + prior


def _condition(
    mean: np.ndarray, covariance: np.ndarray, A: np.ndarray, noise: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """p(x | y) for x ~ N(mean, covariance) and y = A x + n."""
    gain = np.linalg.solve(noise + A @ covariance @ A.T, A @ covariance).T
    return mean + gain @ (y - A @ mean), covariance - gain @ A @ covariance


def _normal_log_prob(gap: np.ndarray, covariance: np.ndarray) -> float:
    _, log_det = np.linalg.slogdet(2 * np.pi * covariance)
    return float(-0.5 * (log_det + gap @ np.linalg.solve(covariance, gap)))


def _observed_parts(problem: InverseProblem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, y and S_noise with the rows of missing data left out."""
    seen = np.asarray(problem.observed).ravel()
    noise = np.diag(problem.noise.variance(problem.y.shape))
    if problem.noise.factor is not None:
        factor = np.asarray(problem.noise.factor, np.float64)
        noise = factor @ factor.T
    y = np.asarray(problem.y, np.float64).ravel()
    return to_matrix(problem.operator)[seen], y[seen], noise[np.ix_(seen, seen)]


def gaussian_part(problem: InverseProblem) -> GaussianLikelihood:
    """The Gaussian likelihood of a problem, also where u is inferred with another one."""
    likelihood = problem.likelihood
    assert isinstance(likelihood, GaussianLikelihood)
    return likelihood


def _covariance(error: ModelError) -> np.ndarray:
    factors = np.asarray(error.factors, np.float64).reshape(error.rank, error.variance.size)
    return np.diag(np.asarray(error.variance, np.float64).ravel()) + factors.T @ factors


def _linear_decoder(problem: InverseProblem) -> LinearDecoder:
    decoder = problem.prior.decoder
    if not isinstance(decoder, LinearDecoder) or problem.prior.flow is not None:
        raise UserError(f"{problem.prior!r} is not linear: make it with linear_prior.")
    return decoder
