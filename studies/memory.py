"""Does memory stay bounded over many different problems in one process: docs/results/memory.md."""

import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from latentuq import (
    Blur,
    GaussianNoise,
    InverseProblem,
    LinearOperator,
    Mask,
    Projection,
    RandomMask,
    load_digits,
    load_prior,
    solve,
    solve_density,
)
from latentuq.core.cells import Cells
from latentuq.forward.operator import Operator
from studies.pages import rows

EVERY = 10
MOST_MAPS = 30_000
# Memory after so many solves is what later memory is compared with.
SETTLED, MOST_GROWTH = 30, 1.15


def make_operator(number: int) -> Operator:
    """Five kinds in turn, and no two operators alike."""
    kinds: list[Callable[[], Operator]] = [
        lambda: Blur(0.5 + 0.05 * number, size=3 + 2 * (number % 7)),
        lambda: Projection(np.linspace(0, 170, 2 + number // 5)),
        lambda: LinearOperator(lambda x: x + 0.01 * number * jnp.roll(x, 1, axis=0), (28, 28)),
        lambda: RandomMask(0.05 + 0.9 * (number % 200) / 200, seed=number),
        lambda: (
            Mask(np.random.default_rng(number).uniform(size=(28, 28)) < 0.5)
            @ Blur(1.0 + 0.01 * number, size=5)
        ),
    ]
    return kinds[number % len(kinds)]()


def solve_all(operators: int, densities: int) -> Iterator[str]:
    """Solves so many different problems, then so many different densities; yields their kinds."""
    key, prior, digit = jax.random.key(0), load_prior("mnist"), load_digits().digit(6)
    for number in range(operators):
        operator = make_operator(number).bind(prior.shape)
        y = np.asarray(operator(jnp.asarray(digit, jnp.float32)))
        problem = InverseProblem(prior, operator, GaussianNoise(0.1), y)
        solve(key, problem, budget="preview")
        yield "operators"
    for number in range(densities):
        centre = 0.01 * number
        solve_density(
            key,
            lambda u, centre=centre: -0.5 * jnp.sum((u - centre) ** 2) - 0.1 * jnp.sum(u**4),
            2,
            budget="preview",
        )
        yield "densities"


def measure(
    operators: int, densities: int, report: Callable[[str, dict[str, Any]], None]
) -> dict[str, Any]:
    """The number of memory maps and the resident memory after every tenth solve, and the last."""
    start, series = time.perf_counter(), []
    for solved, kind in enumerate(solve_all(operators, densities), start=1):
        if solved % EVERY == 0 or solved == operators + densities:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            record = {
                "solved": solved,
                "kind": kind,
                "maps": len(Path("/proc/self/maps").read_text().splitlines()),
                "megabytes": round(pages * resource.getpagesize() / 2**20),
                "seconds": round(time.perf_counter() - start, 1),
            }
            series.append(record)
            report(f"{solved} solved", record)
    return {"series": series}


def make_values(cells: Cells) -> dict[str, Any]:
    series = cells["series"]["series"]
    most = max(record["maps"] for record in series)
    settled = [record["megabytes"] for record in series if record["solved"] == SETTLED]
    flat = "cannot be told from so few solves"
    if settled:
        growth = series[-1]["megabytes"] / settled[0]
        flat = f"{'holds' if growth <= MOST_GROWTH else 'is missed'} ({growth:.2f})"
    return {
        "every": EVERY,
        "most_maps": MOST_MAPS,
        "maps": f"{'holds' if most < MOST_MAPS else 'is missed'} ({most})",
        "most_growth": MOST_GROWTH,
        "settled": SETTLED,
        "flat": flat,
        "rows": rows("{solved} | {kind} | {maps} | {megabytes} | {seconds:.0f}", series),
    }
