"""Every number that the inference was tuned by, with what was measured or why it is so."""

import dataclasses
import math

from latentuq.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class Settings:
    """The policy of one budget; the steps of the engine read it and hold no limits of their own.

    Costs are in forward equivalents: one evaluation of the density counts 1, a gradient 3, a
    Jacobian dim + 1 and a Hessian 3 (dim + 1).

    Attributes:
        cost: No step begins once so much has been spent, except those that an answer needs.
        explores: Whether a tempered population looks for modes first; if not, the answer rests on
            Gaussians at the modes and is a preview.
        islands: The number of independent groups of chains, whose scatter is the error. Eight
            make a standard error that is itself known to a quarter.
        chains: The number of chains of one island. 8 islands of 32 told ln evidence to 0.1 nats at
            32 dimensions; their sum is a batch whose activations fit the processor's cache.
        block: The number of chains of one program; programs run on all cores.
        bank: The number of draws of the reference that the population starts from.
        tempering: The share of effective draws that a step of the temperature leaves. With 0.15
            some seven steps lead from the prior of digits to a posterior; ten gave the same.
        moves: The number of Hamiltonian moves between two temperatures, and of a round of chains.
        stops: The number of places that one move visits, each accepted or not on its own.
        length: The length of a move in standard deviations of the density: about a quarter of the
            period of a Gaussian, after which a place is new.
        longest: Moves grow to at most so many times that length where chains do not come round.
            Short ones reach the arms of a banana only by diffusion: after 128 moves they held half
            of their mass, after 32 moves of three times the length all of it.
        most_leaps: The largest number of leapfrog steps between two stops, which longer moves
            exceed in proportion.
        acceptance: The mean acceptance that step sizes are steered to. With 0.75 chains reached the
            arms of a banana half as fast as with 0.9.
        octaves: In each move a chain's step is smaller than the tuned one by a random factor, at
            most two to this power and mostly far less. With 2 no step was small enough for the arms
            of the thinnest banana, and none went along them.
        hot: The power of p at which half of the chains spread out before they begin. From where the
            population ends, where a banana has no arms yet, chains took four times as long.
        hot_rounds: The largest number of rounds of that spreading; 0 for none.
        offers: The number of draws of a proposal that a chain is offered to jump to in a round.
            They halved what bananas and heavy tails cost.
        rounds: The rounds of chains after which they are weighed; the last one is the most. What
            they may jump to is fitted anew each time, so that frequent early fits lead them out.
        sweep: The number of draws of the reference that descend by gradients alone in each round:
            300 starts miss a mode that attracts one in 500 once in two times, 4,096 once in 4,000.
            They cost as much as two rounds of 64 descents at 32 dimensions.
        search_rounds: The largest number of rounds of 64 descents.
        search_share: The search ends once all spending exceeds this share of the cost.
        quiet_starts: The search goes on until so many descents in a row have found no new mode of
            relevant mass.
        starts_per_mode: With K modes of relevant mass at least so many times K^2 descents are made:
            the rarest of K modes attracts about one in K^2 of the starts.
        starts_per_basin: The same with all modes counted: where most are light, a heavy one may be
            among those that nobody has found.
        lonely: A mode is lonely if at most so many descents ended in it.
        lonely_mass: The largest share of the mass in lonely modes at which the search ends.
        relevant: The share of the mass from which a mode matters to the search.
        mass_reach: Modes so many nats lighter than the heaviest get no Gaussian.
        most_modes: The largest number of modes that get one.
        gaussian_khat: Gaussians at the modes suffice below this k-hat. Those of a Student-t of 32
            dimensions, whose tails no draw had reached, had 0.1 to 0.5 and missed a tenth of the
            mass; mixtures of Gaussians have less than 0.
        gaussian_draws: The number of draws that tell whether they do.
        worth: The number of independent draws that an answer of Gaussians should be worth.
        certified: The largest number of draws of such an answer.
        burn_in: The share of what the chains have seen that does not count.
        fresh: The number of draws of the proposals that the chains are bridged to at first.
        most_fresh: The largest number of them, if ln evidence is too uncertain. At 32 and 64
            dimensions four times as many made the error 1.4 to 1.7 times smaller, for the cost of
            one round.
        components: The largest number of components of a proposal. With 64 instead of 16 jumps
            along the thinnest banana were accepted twice as often.
        points_per_component: The number of points, for each dimension, that a component is worth:
            with fewer the fit describes its points and not the density.
        points: The largest number of points that a proposal is fitted to.
        wanted_error: The standard error of ln evidence at which the chains may end.
        change: The largest change of ln evidence since a quarter to a half of the rounds, in
            standard errors, at which chains may end: those that still reach new places find more
            mass, and may have come round in all places that they know.
        tolerance: Changes of ln evidence are never measured in smaller errors than this.
        covering_khat: Below this k-hat of the proposals neither `change` nor `turns` is asked for:
            they cover the density, as far as densities of its kind are known.
        largest_change: With a larger change the verdict is that the chains were still on their way.
        turns: How many independent draws a chain shall make, on average, of the slowest among the
            coordinates, their squares and ln p: chains that have not come round have not seen the
            tails. With 1.5 errors of bananas were five times as large as stated, with 3 twice, with
            6 as stated.
        least_turns: With fewer the verdict is that the chains were still on their way.
        drift: The shift of ln p from the first to the second half of the chains, in its standard
            deviations, from which they are still on their way, if it is significant.
        drift_errors: The shift in its own standard errors from which it is significant.
        probes: The number of posterior draws that descend to their modes, to weigh these.
        fewest_draws: With fewer effective draws the verdict is that they are too few.
        largest_error: The largest standard error of ln evidence of an answer.
        most_missed: The largest share of the mass in modes that at most one start has found.
        most_lost: The largest share of followed draws that may end in no mode.
    """

    cost: float = 2e7
    explores: bool = True
    islands: int = 8
    chains: int = 32
    block: int = 128
    bank: int = 4096
    tempering: float = 0.15
    moves: int = 2
    stops: int = 2
    length: float = 1.6
    longest: float = 4.0
    most_leaps: int = 60
    acceptance: float = 0.9
    octaves: float = 6.0
    hot: float = 0.25
    hot_rounds: int = 8
    offers: int = 8
    rounds: tuple[int, ...] = (
        *range(2, 6),
        *range(6, 16, 2),
        *range(16, 32, 4),
        *range(32, 64, 8),
        *range(64, 129, 16),
    )
    sweep: int = 4096
    search_rounds: int = 48
    search_share: float = 0.125
    quiet_starts: int = 40
    starts_per_mode: int = 16
    starts_per_basin: int = 1
    lonely: int = 2
    lonely_mass: float = 0.02
    relevant: float = 0.01
    mass_reach: float = 9.0
    most_modes: int = 64
    gaussian_khat: float = 0.0
    gaussian_draws: int = 4096
    worth: int = 1200
    certified: int = 40960
    burn_in: float = 0.5
    fresh: int = 8192
    most_fresh: int = 32768
    components: int = 64
    points_per_component: int = 24
    points: int = 4096
    wanted_error: float = 0.1
    change: float = 2.0
    tolerance: float = 0.0
    covering_khat: float = -math.inf
    largest_change: float = 4.0
    turns: float = 6.0
    least_turns: float = 4.0
    drift: float = 0.2
    drift_errors: float = 4.0
    probes: int = 128
    fewest_draws: int = 100
    largest_error: float = 0.5
    most_missed: float = 0.05
    most_lost: float = 0.25


_THOROUGH = Settings(
    cost=1e8,
    chains=128,
    search_rounds=192,
    worth=20000,
    certified=262144,
    fresh=65536,
    most_fresh=262144,
    wanted_error=0.03,
    probes=448,
)

BUDGETS = {
    "preview": Settings(cost=3e5, explores=False, sweep=0, search_rounds=1),
    "default": Settings(),
    "thorough": _THOROUGH,
}
"""How much work an answer is worth, for densities of any shape."""


def check_budget(budget: object) -> None:
    """Refuses what is not the name of a budget."""
    if not isinstance(budget, str) or budget not in BUDGETS:
        raise UserError(f"The budget is one of {', '.join(BUDGETS)}, not {budget!r}.")


def _familiar(settings: Settings, cost: float) -> Settings:
    """The same for densities whose shapes are known to be rounder, and which cost more.

    Their chains come round sooner, and need no hot start. No mode was seen that the population had
    missed, so there is no sweep.
    """
    return dataclasses.replace(
        settings,
        cost=cost,
        sweep=0,
        hot_rounds=0,
        acceptance=0.75,
        octaves=2.0,
        most_leaps=20,
        rounds=(4, 6, 8, 12, 16, 24, 32, 48, 64),
        search_share=0.5,
        gaussian_khat=0.3,
        burn_in=0.25,
        tolerance=0.1,
        covering_khat=0.7,
        turns=3.0,
        least_turns=1.3,
    )


FAMILIAR_BUDGETS = {
    "preview": _familiar(BUDGETS["preview"], cost=3e5),
    "default": _familiar(BUDGETS["default"], cost=2e6),
    "thorough": _familiar(BUDGETS["thorough"], cost=2e7),
}
"""The same for posteriors of images under a prior."""
