"""MIWAE's imputation: importance sampling with the VAE's encoder as the proposal.

Mattei and Frellsen (2019), "MIWAE: Deep generative modelling and imputation of incomplete data
sets". The encoder sees the data with zeros in place of what is missing; its answer is corrected by
self-normalised importance weights. The authors also train the VAE on incomplete data, so that its
encoder knows such images; here it has seen complete ones only, and is used as it is.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from scipy.special import logsumexp, softmax

from latentuq import InverseProblem, Mask, UserError
from latentuq.core.compilation import bounded_jit
from latentuq.core.randomness import host_generator
from latentuq.inference.importance import effective_sample_size, pareto_khat
from latentuq.inference.result import Counts
from studies.baselines.encoding import to_base
from studies.baselines.result import BaselineResult
from studies.baselines.timing import Timer

# Proposals evaluated together: activations of a small network then stay in the processor's cache.
# A divisor of round numbers: there is no remainder to compile for.
_CHUNK = 250


def miwae(
    key: Key[Array, ""],
    problem: InverseProblem,
    *,
    draws: int = 2000,
    proposals: int = 10_000,
    degrees: int = 3,
) -> BaselineResult:
    """Samples u given masked data by sampling-importance-resampling from q(z | y, zeros).

    With z_l ~ q and w_l = p(y | z_l) p(z_l) / q(z_l), p(z) the density of the trained flow, draws
    are taken with replacement in proportion to w_l, and the evidence is the mean of w_l: unbiased,
    though low by any amount with most keys if q misses where the posterior is. `history` holds
    what tells: the effective sample size `ess` and the shape `khat` of the weights' tail (above
    0.7: do not trust them).

    As in the authors' code, q is a product of Student-t distributions. Theirs learns its degrees of
    freedom, 3 or more; ours has the encoder's mean and standard deviation as location and scale.

    The operator must be a mask and the prior must have an encoder. The authors take as many
    proposals as we do.
    """
    if not isinstance(problem.operator, Mask):
        raise UserError(
            "MIWAE encodes the data as an image with holes, so the operator must be a mask, not"
            f" {problem.operator!r}."
        )
    proposal_key, resample_key = jax.random.split(key)
    timer = Timer()
    u, log_weights = timer.run(_propose, proposal_key, problem, proposals, degrees)
    if not np.any(np.isfinite(log_weights)):
        raise UserError(f"None of the {proposals} proposals of MIWAE has a finite density.")
    log_weights = np.asarray(log_weights, np.float64)
    ess = effective_sample_size(log_weights)
    shares = softmax(log_weights)
    chosen = host_generator(resample_key).choice(proposals, draws, p=shares)
    return timer.result(
        np.asarray(u)[chosen],
        Counts(forwards=proposals + 1),  # One more for the encoder.
        logsumexp(log_weights) - np.log(proposals),
        # By the delta method, to be believed only where khat is small.
        np.sqrt(max(1 / ess - 1 / proposals, 0.0)),
        ess=[ess],
        khat=[pareto_khat(log_weights)],
    )


@bounded_jit
def _propose(
    key: Key[Array, ""], problem: InverseProblem, proposals: int, degrees: int
) -> tuple[Float[Array, "proposals dim"], Float[Array, " proposals"]]:
    """Draws of q as points u, and their log weights; a weight that is not finite is zero."""
    mean, std = problem.prior.encode(jnp.where(problem.observed, problem.y, 0.0))
    normal = jax.random.normal(key, (1 + degrees, proposals, problem.dim))
    # Student-t: a normal number over the root of the mean square of `degrees` others.
    steps = normal[0] / jnp.sqrt(jnp.mean(normal[1:] ** 2, axis=0))

    def weigh(step):
        u, log_det = to_base(problem.prior, mean + std * step)
        log_proposal = jnp.sum(jax.scipy.stats.t.logpdf(step, degrees) - jnp.log(std))
        log_weight = problem.log_density(u) + log_det - log_proposal
        return u, jnp.where(jnp.isfinite(log_weight), log_weight, -jnp.inf)

    return jax.lax.map(weigh, steps, batch_size=_CHUNK)
