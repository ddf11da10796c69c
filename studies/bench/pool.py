"""All draws of several proposals, weighted as draws of one."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from latentuq.inference.importance import WeightedDraws, log_ratios
from latentuq.inference.mixture import Defensive
from latentuq.inference.target import log_densities_at

# The number of batches that are kept. Older ones are forgotten, because the proposals get better.
_MOST_BATCHES = 5


class Pool(NamedTuple):
    """Batches of draws, and every batch's proposal at all of them.

    Together they are draws of the mixture of the proposals, each with its share of the draws
    (Veach and Guibas 1995): a draw that one proposal makes too rarely weighs less if another one
    makes it often.
    """

    proposals: tuple[Defensive, ...]
    sizes: tuple[int, ...]
    points: Float[np.ndarray, "n dim"]
    log_densities: Float[np.ndarray, " n"]
    log_proposals: Float[np.ndarray, "proposals n"]

    @property
    def log_mixture(self) -> Float[np.ndarray, " n"]:
        """Ln q of the mixture of all proposals."""
        shares = np.log(self.sizes) - np.log(sum(self.sizes))
        return np.logaddexp.reduce(self.log_proposals + shares[:, None], axis=0)

    @property
    def log_weights(self) -> Float[np.ndarray, " n"]:
        """The raw log weights ln p - ln q, with q the mixture of all proposals."""
        return log_ratios(self.log_densities, self.log_mixture)


def gather(pool: Pool | None, proposal: Defensive, draws: WeightedDraws) -> Pool:
    """Adds a batch to the pool, and drops the oldest if there are too many."""
    new = Pool(
        (proposal,),
        (len(draws.draws),),
        np.asarray(draws.draws),
        np.asarray(draws.log_densities, np.float64),
        np.asarray(draws.log_proposals, np.float64)[None],
    )
    if pool is None:
        return new
    if len(pool.sizes) == _MOST_BATCHES:
        old = pool.sizes[0]
        pool = Pool(
            pool.proposals[1:],
            pool.sizes[1:],
            pool.points[old:],
            pool.log_densities[old:],
            pool.log_proposals[1:, old:],
        )
    elsewhere = [log_densities_at(each.log_prob, new.points) for each in pool.proposals]
    at_old = log_densities_at(proposal.log_prob, pool.points)
    before = np.concatenate([pool.log_proposals, at_old[None]])
    after = np.concatenate([np.array(elsewhere), new.log_proposals])
    return Pool(
        (*pool.proposals, proposal),
        pool.sizes + new.sizes,
        np.concatenate([pool.points, new.points]),
        np.concatenate([pool.log_densities, new.log_densities]),
        np.concatenate([before, after], axis=1),
    )
