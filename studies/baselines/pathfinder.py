"""Multi-path Pathfinder (Zhang, Carpenter, Gelman and Vehtari 2022, JMLR 23).

L-BFGS climbs from prior draws; every point of a path suggests a Gaussian, with the covariance that
L-BFGS has gathered so far and the mean one Newton step ahead, and the one of the highest ELBO is
kept. Draws of all paths are pooled, weighted and resampled.

The paths, with their inverse Hessians, are blackjax's. Two things are not:

- The Gaussians. blackjax 1.7.1 takes the Newton step downhill: it adds covariance times the
  gradient of -ln p to the point. The step, the choice by ELBO and the draws are made here.
- The weights. blackjax divides p by the density of the path that a draw came from, which gives a
  basin mass in proportion to the paths that end there. Here p is divided by the mean density of all
  paths, so ten paths to one basin count as one.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from latentuq import UserError
from latentuq.core.compilation import bounded_jit
from latentuq.core.randomness import host_generator
from latentuq.inference.importance import draw, systematic_index, weigh
from latentuq.inference.mixture import Mixture, lower_factor, normal_draws
from latentuq.inference.result import Counts
from latentuq.inference.target import Target, log_densities
from studies.baselines.result import BaselineResult, LogDensity
from studies.baselines.timing import Timer

# Curvature pairs that L-BFGS remembers, and draws that estimate an ELBO: Stan's.
_MEMORY = 5
_ELBO_DRAWS = 25
_LINE_SEARCH = 30


class PathFit(NamedTuple):
    """The best Gaussian of a path.

    Attributes:
        mean: The centre of the Gaussian.
        factor: The lower Cholesky factor of its covariance.
        elbo: An estimate of its ELBO; -inf if no point of the path has one.
        iterations: The number of L-BFGS iterations of the path.
    """

    mean: Float[Array, " dim"]
    factor: Float[Array, "dim dim"]
    elbo: Float[Array, ""]
    iterations: Int[Array, ""]


def pathfinder(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    dim: int,
    *,
    paths: int = 20,
    draws: int = 1000,
    proposals: int = 4096,
    iterations: int = 60,
    scale: float = 1.0,
) -> BaselineResult:
    """Fits a Gaussian along each path and resamples draws of their mixture towards the density.

    The evidence is the mean weight p / q, Pareto-smoothed; k-hat in `history` says whether to trust
    it. `gradients` is a lower bound: blackjax does not report line searches, so each iteration
    counts for two, the step tried and the point accepted.

    Each of the `paths` begins at a draw of N(0, scale^2 I) and has at most so many iterations of
    L-BFGS. Of the `proposals` of the mixture, all of them weighted, those of high weight are
    repeated in the draws.
    """
    target = Target(log_density_fn, dim, scale=scale)
    start_key, path_key, weigh_key, resample_key = jax.random.split(key, 4)
    starts = target.sample_reference(start_key, paths)
    timer = Timer()
    fits = timer.run(_follow_all, jax.random.split(path_key, paths), target, starts, iterations)
    found = np.isfinite(fits.elbo)
    if not np.any(found):
        raise UserError(
            f"None of {paths} paths found a Gaussian; the log density may not be finite where they"
            f" start, at draws of N(0, {scale:g}^2 I)."
        )
    mixture = _pool(fits)
    points = timer.run(draw, weigh_key, mixture, proposals)
    values = timer.run(log_densities, target.log_density, points)
    weighted = weigh(points, values, timer.run(log_densities, mixture.log_prob, points))
    index = systematic_index(host_generator(resample_key), weighted.log_weights, draws)
    taken = np.asarray(fits.iterations)
    # blackjax estimates an ELBO of its own, from a single draw at each point.
    elbos = paths * (iterations + 1) * (_ELBO_DRAWS + 1)
    counts = Counts(forwards=elbos + proposals, gradients=int(np.sum(1 + 2 * taken)))
    return timer.result(
        weighted.draws[index],
        counts,
        weighted.log_evidence,
        weighted.log_evidence_error,
        elbos=fits.elbo,
        iterations=taken.astype(float),
        khat=[weighted.khat],
        ess=[weighted.ess],
    )


def _pool(fits: PathFit) -> Mixture:
    """The paths' Gaussians in equal shares; paths without one keep their place, with share zero."""
    found = jnp.isfinite(fits.elbo)
    eye = jnp.eye(fits.mean.shape[1])
    return Mixture(
        jax.nn.log_softmax(jnp.where(found, 0.0, -jnp.inf)),
        jnp.where(found[:, None], fits.mean, 0.0),
        jnp.where(found[:, None, None], fits.factor, eye),
    )


@bounded_jit
def _follow_all(
    keys: Key[Array, " paths"],
    target: Target,
    starts: Float[Array, "paths dim"],
    iterations: int,
) -> PathFit:
    return jax.vmap(lambda key, start: _follow(key, target, start, iterations))(keys, starts)


def _follow(
    key: Key[Array, ""], target: Target, start: Float[Array, " dim"], iterations: int
) -> PathFit:
    from blackjax.vi.pathfinder import approximate

    path_key, elbo_key = jax.random.split(key)
    _, info = approximate(
        path_key,
        target.log_density,
        start,
        num_samples=1,
        maxiter=iterations,
        maxcor=_MEMORY,
        maxls=_LINE_SEARCH,
    )
    path: Any = info.path

    def judge(point_key, point, gradient, alpha, beta, gamma):
        mean, factor = _gaussian(point, gradient, alpha, beta, gamma)
        return mean, factor, _elbo(point_key, target, mean, factor)

    means, factors, elbos = jax.vmap(judge)(
        jax.random.split(elbo_key, iterations + 1),
        path.position,
        path.grad_position,
        path.alpha,
        path.beta,
        path.gamma,
    )
    best = jnp.argmax(elbos)
    moved = jnp.any(jnp.diff(path.position, axis=0) != 0, axis=1)
    return PathFit(means[best], factors[best], elbos[best], jnp.sum(moved))


def _gaussian(
    point: Float[Array, " dim"],
    gradient: Float[Array, " dim"],
    alpha: Float[Array, " dim"],
    beta: Float[Array, "dim pairs"],
    gamma: Float[Array, "pairs pairs"],
) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
    """Mean and factor of N(u - S g, S) with S = diag(alpha) + beta gamma beta^T, g = -grad ln p.

    With Q R = alpha^(-1/2) beta and C C^T = I + R gamma R^T, a root of S is
    alpha^(1/2) (I + Q (C - I) Q^T): the paper's, which stays positive definite where S itself loses
    that to rounding.
    """
    Q, R = jnp.linalg.qr(beta / jnp.sqrt(alpha)[:, None], mode="reduced")
    eye = jnp.eye(R.shape[0])
    C = jnp.linalg.cholesky(eye + R @ gamma @ R.T)
    root = jnp.sqrt(alpha)[:, None] * (jnp.eye(alpha.size) + Q @ (C - eye) @ Q.T)
    factor = lower_factor(root)
    return point - factor @ (factor.T @ gradient), factor


def _elbo(
    key: Key[Array, ""],
    target: Target,
    mean: Float[Array, " dim"],
    factor: Float[Array, "dim dim"],
) -> Float[Array, ""]:
    """E_q[ln p - ln q] over a few draws; -inf where it is not finite."""
    noise = normal_draws(key, (_ELBO_DRAWS, mean.size), mean.dtype)
    log_densities = jax.vmap(target.log_density)(mean + noise @ factor.T)
    log_det = jnp.sum(jnp.log(jnp.diagonal(factor)))
    log_q = jnp.sum(jax.scipy.stats.norm.logpdf(noise), axis=1) - log_det
    value = jnp.mean(log_densities - log_q)
    return jnp.where(jnp.isfinite(value), value, -jnp.inf)
