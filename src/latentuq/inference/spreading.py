"""Chains that spread out before they begin, so that some set out from beyond the tails."""

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.core.randomness import host_generator
from latentuq.inference.jumps import jump
from latentuq.inference.mixture import Defensive
from latentuq.inference.moves import Kernel
from latentuq.inference.population import move_all
from latentuq.inference.proposals import fit_halves
from latentuq.inference.regions import Regions
from latentuq.inference.settings import Settings
from latentuq.inference.target import Counts, Target


def spread(
    key: Key[Array, ""],
    target: Target,
    regions: Regions,
    points: Float[np.ndarray, "islands chains dim"],
    kernel: Kernel,
    settings: Settings,
) -> tuple[Float[np.ndarray, "islands chains dim"], tuple[Defensive, Defensive], Counts]:
    """Lets chains spread on p^hot; the reference has no part in it, nor is it a limit.

    They stop early if ln p falls, after the first round, by as much as that of a Gaussian does in
    all: p^hot of heavy tails may have no integral.

    Returns:
        The chains, what each half of the islands may jump to, and the evaluations.
    """
    begun = regions.of(points.reshape(-1, target.dim)).reshape(points.shape[:2])
    rng, spent, seen = host_generator(key), Counts(), []
    # The mean of ln p of a Gaussian is lower by dim / 2 hot on p^hot, and by dim / 2 on p.
    most = 0.5 * target.dim * (1 / settings.hot - 1)
    while True:
        move_key, jump_key = jax.random.split(jax.random.fold_in(key, len(seen)))
        powers, reach = (settings.hot, 0.0), settings.longest
        visited, kernel, counts = move_all(
            move_key, target, powers, points, begun, kernel, settings, reach
        )
        seen.append(visited)
        recent = np.concatenate([each.points for each in seen[len(seen) // 2 :]], axis=2)
        proposals = fit_halves(rng, target, recent, regions, settings)
        last = visited.points[:, :, -1], visited.log_densities[:, :, -1]
        points, _, jumps = jump(
            jump_key, target, proposals, regions, begun, *last, settings.offers, settings.hot
        )
        spent += counts + jumps
        with np.errstate(invalid="ignore"):  # Nowhere, if the density is zero.
            fallen = np.median(seen[0].log_densities) - np.median(visited.log_densities)
        if fallen >= most or len(seen) == settings.hot_rounds:
            return points, proposals, spent
