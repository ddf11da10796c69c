"""Does the verdict notice what is wrong with the data, and leave sound ones alone?"""

import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentuq import (
    Blur,
    GaussianNoise,
    GenerativePrior,
    InverseProblem,
    RandomMask,
    load_dataset,
    load_prior,
    solve,
)
from latentuq.core.cells import Cells, Job, job
from latentuq.forward.mask import RegionMask
from latentuq.forward.operator import Operator
from latentuq.problem.experiments import SHAPE
from studies.calibration_cases import CHOSEN_ON, LOOKED_AT, unseen_images
from studies.pages import rows

MODEL = "mnist"
FIRST_GARMENT = 1000
FIRST_IMAGE = 400
"""Earlier garments, and earlier ones in the random order of both, were looked at before."""

Image = Float[np.ndarray, "28 28"]


class Corruption(NamedTuple):
    """What the instrument does, and the standard deviation of its noise."""

    operator: Operator
    noise: float


class Kind(NamedTuple):
    """What is wrong with the data, or with what is said about them.

    Attributes:
        problems: How many problems there are of each corruption.
        bar: The largest share of wrong marks `fit` that we allow ourselves; None if any.
        factors: What the data, and their stated noise, are multiplied by, in turn.
        stated: The noise that is stated, over that of the data.
        inverted: Whether black and white are exchanged.
        foreign: Whether the images are garments.
    """

    problems: int
    bar: float | None = None
    factors: tuple[float, ...] = (1.0,)
    stated: float = 1.0
    inverted: bool = False
    foreign: bool = False


CORRUPTIONS = {
    "right half hidden, noise 0.2": Corruption(RegionMask(columns=(14, 27)), 0.2),
    "centre hidden, noise 0.1": Corruption(RegionMask(rows=(8, 19), columns=(8, 19)), 0.1),
    "columns 10 to 23 hidden, noise 0.1": Corruption(RegionMask(columns=(10, 23)), 0.1),
    "90 % removed at random, noise 0.1": Corruption(RandomMask(0.9, seed=5), 0.1),
    "blur 2, noise 0.05": Corruption(Blur(2.0), 0.05),
}

KINDS = {
    "sound": Kind(40, bar=0.05),
    "wrong scale": Kind(16, bar=0.02, factors=(1 / 2, 1 / 10, 1 / 255, 2.0)),
    "inverted": Kind(12, bar=0.02, inverted=True),
    "noise stated 5 times too small": Kind(12, bar=0.02, stated=1 / 5),
    "foreign": Kind(12, bar=0.15, foreign=True),
    "noise stated 5 times too large": Kind(8, stated=5.0),
}


@functools.cache
def load_model() -> GenerativePrior:
    return load_prior(MODEL)


def make_setup() -> dict[str, Any]:
    prior = load_model()
    return {
        "model": MODEL,
        "model_checksum": prior.card.checksum,
        "model_error": prior.model_error_name,
        "looked_at": LOOKED_AT,
        "chosen_on": [CHOSEN_ON.start, CHOSEN_ON.stop],
        "first_garment": FIRST_GARMENT,
        "first_image": FIRST_IMAGE,
    }


class Problem(NamedTuple):
    """One problem of the study: its kind, its corruption, and its number among those of both."""

    kind: str
    corruption: str
    number: int


def all_problems() -> Iterator[Problem]:
    """The problems in an order in which every kind and corruption comes early."""
    for number in range(max(kind.problems for kind in KINDS.values())):
        for name, kind in KINDS.items():
            if number < kind.problems:
                yield from (Problem(name, corruption, number) for corruption in CORRUPTIONS)


def make_jobs() -> dict[str, Job]:
    # Images are dealt out in turn, so that no two problems share one.
    dealt = Counter[bool]()
    jobs = {}
    for problem in all_problems():
        foreign = KINDS[problem.kind].foreign
        jobs[" / ".join(map(str, problem))] = job(measure, problem, dealt[foreign])
        dealt[foreign] += 1
    return jobs


@functools.cache
def _images(foreign: bool) -> Float[np.ndarray, "n 28 28"]:
    if foreign:
        garments = load_dataset("fashion-mnist").test_images[FIRST_GARMENT:]
        return np.random.default_rng(0).permutation(np.asarray(garments))[FIRST_IMAGE:]
    digits = load_dataset("mnist").test_images
    return np.asarray(digits)[unseen_images(len(digits))[FIRST_IMAGE:]]


def measure(problem: Problem, image: int) -> dict[str, Any]:
    """Solves one problem and keeps its marks."""
    kind = KINDS[problem.kind]
    key = jax.random.fold_in(jax.random.key(0), image + 10_000 * kind.foreign)
    post = solve(key, make_problem(problem, np.asarray(_images(kind.foreign)[image], np.float32)))
    verdict, d = post.verdict, post.diagnostics
    return problem._asdict() | {
        "image": image,
        "computed": str(verdict.computed.standing),
        "fit": str(verdict.fit.standing),
        "causes": [reason.cause.name for reason in verdict.fit.reasons],
        "p_value": d.predictive_p_value,
        "information": d.information,
        "variance_left": d.variance_left,
    }


def make_problem(problem: Problem, x: Image) -> InverseProblem:
    """The problem that an image becomes, with fresh noise."""
    kind, (operator, noise) = KINDS[problem.kind], CORRUPTIONS[problem.corruption]
    factor = kind.factors[problem.number % len(kind.factors)]
    shown = operator.bind(SHAPE).apply(jnp.asarray(1 - x if kind.inverted else x))
    seed = [*KINDS].index(problem.kind), [*CORRUPTIONS].index(problem.corruption), problem.number
    y = np.asarray(shown) + noise * np.random.default_rng(seed).standard_normal(SHAPE)
    stated = GaussianNoise(factor * kind.stated * noise)
    return InverseProblem(load_model(), operator, stated, factor * y)


def is_wrong(cell: dict[str, Any]) -> bool:
    """Whether the mark `fit` accuses sound data, or misses what is wrong with others."""
    return (cell["fit"] == "bad") == (cell["kind"] == "sound")


def make_values(cells: Cells) -> dict[str, Any]:
    found = [*cells.values()]
    return {
        "problems": len(found),
        "seconds": f"{np.median([cell['seconds'] for cell in found]):.1f}",
        "kinds": rows(
            "{kind} | {number} | {wrong:.1%} | {bar} | {computed:.1%} | {causes}",
            (_describe(kind, [cell for cell in found if cell["kind"] == kind]) for kind in KINDS),
        ),
        "corruptions": rows(
            "{corruption} | " + " | ".join(f"{{{kind}}}" for kind in KINDS),
            (_count(corruption, found) for corruption in CORRUPTIONS),
        ),
        "factors": "; ".join(_describe_factors(found)),
    }


def _describe_factors(found: list[dict[str, Any]]) -> Iterator[str]:
    """How many wrong scales of each size are missed."""
    factors = KINDS["wrong scale"].factors
    for place, factor in enumerate(factors):
        cells = [
            c for c in found if c["kind"] == "wrong scale" and c["number"] % len(factors) == place
        ]
        change = f"divided by {1 / factor:.0f}" if factor < 1 else f"multiplied by {factor:.0f}"
        yield f"{change}: {sum(map(is_wrong, cells))} of {len(cells)}"


def _describe(kind: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    bar = KINDS[kind].bar
    first = Counter(cell["causes"][0] for cell in found if cell["fit"] == "bad")
    return {
        "kind": kind,
        "number": len(found),
        "wrong": _share(map(is_wrong, found)),
        "bar": "none" if bar is None else f"{bar:.0%}",
        "computed": _share(cell["computed"] == "bad" for cell in found),
        "causes": ", ".join(f"{name} {count}" for name, count in first.most_common()),
    }


def _count(corruption: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    line: dict[str, Any] = {"corruption": corruption}
    for kind in KINDS:
        cells = [c for c in found if (c["kind"], c["corruption"]) == (kind, corruption)]
        line[kind] = f"{sum(map(is_wrong, cells))} of {len(cells)}"
    return line


def _share(found: Iterable[bool]) -> float:
    return float(np.mean([*found] or [np.nan]))
