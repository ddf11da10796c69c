"""All draws of several proposals, weighted as draws of one."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from latentuq.inference.importance import WeightedDraws
from latentuq.inference.mixture import Defensive
from latentuq.inference.target import log_densities_at

# Earlier batches are forgotten: the proposals get better.
_MOST_BATCHES = 5


class Pool(NamedTuple):
    """Batches of draws, and every batch's proposal at all of them.

    Together they are draws of the mixture of the proposals, each with its share of the draws
    (Veach and Guibas 1995): a draw that one proposal makes too rarely weighs less if another one
    makes it often.

    Attributes:
        proposals: Of the batches.
        sizes: How many draws each has.
        points: The draws.
        log_densities: Ln p.
        log_proposals: Ln q of every proposal.
    """

    proposals: tuple[Defensive, ...]
    sizes: tuple[int, ...]
    points: Float[np.ndarray, "n dim"]
    log_densities: Float[np.ndarray, " n"]
    log_proposals: Float[np.ndarray, "proposals n"]

    @property
    def log_mixture(self) -> Float[np.ndarray, " n"]:
        """Ln q of the mixture of all."""
        shares = np.log(self.sizes) - np.log(sum(self.sizes))
        return np.logaddexp.reduce(self.log_proposals + shares[:, None], axis=0)

    @property
    def log_weights(self) -> Float[np.ndarray, " n"]:
        """Ln p - ln q of the mixture; -inf where either is not finite."""
        with np.errstate(invalid="ignore"):
            ratios = self.log_densities - self.log_mixture
        return np.where(np.isfinite(ratios), ratios, -np.inf)


def gather(pool: Pool | None, proposal: Defensive, draws: WeightedDraws) -> Pool:
    """The pool with one more batch, and without the oldest if there are too many."""
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
