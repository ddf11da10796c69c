"""Timing that keeps compilation apart."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from latentuq.core.compilation import CompileClock
from latentuq.core.cores import on_cores
from latentuq.inference.result import Counts
from studies.baselines.result import BaselineResult

_CLOCK = CompileClock()
_SIDE = 2048


class Timer:
    """Runs compiled functions, with the time of compilation kept apart."""

    def __init__(self):
        self.seconds = 0.0
        self.compile_seconds = 0.0

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function, once it is there."""
        compiled, start = _CLOCK.seconds, time.perf_counter()
        result = jax.block_until_ready(function(*arguments))
        compiled = _CLOCK.seconds - compiled
        self.compile_seconds += compiled
        self.seconds += max(0.0, time.perf_counter() - start - compiled)
        return result

    def run_halves(
        self, function: Callable[..., Any], *arguments: Any, divided: Sequence[int]
    ) -> Any:
        """The same for a function of independent rows: two halves of them, at the same time.

        Our own starts and particles are shared out among the cores in this way. An odd number of
        rows stays whole; joining the halves, which compiles, is not counted.

        Args:
            function: All that it returns has a row for each row of the divided arguments.
            arguments: The arguments for all rows.
            divided: The places of the arguments that have rows.
        """
        number = len(jax.tree.leaves(arguments[divided[0]])[0])
        if number % 2:
            return self.run(function, *arguments)

        def cut(rows: slice) -> list[Any]:
            return [
                jax.tree.map(lambda leaf: leaf[rows], each) if place in divided else each
                for place, each in enumerate(arguments)
            ]

        halves = [cut(slice(number // 2)), cut(slice(number // 2, number))]
        results = self.run(on_cores, lambda half: function(*half), halves)
        return jax.tree.map(lambda *both: jnp.concatenate(both), *results)

    def result(
        self,
        draws: Float[Any, "n dim"],
        counts: Counts,
        log_evidence: Any = None,
        log_evidence_error: Any = None,
        **history: Shaped[Any, "..."],
    ) -> BaselineResult:
        """What a baseline returns that has run its functions here."""
        return BaselineResult(
            draws=np.asarray(draws),
            log_evidence=None if log_evidence is None else float(log_evidence),
            log_evidence_error=None if log_evidence_error is None else float(log_evidence_error),
            seconds=self.seconds,
            compile_seconds=self.compile_seconds,
            gradients=counts.gradients,
            forward_equivalents=counts.forward_equivalents(draws.shape[1]),
            history={name: np.asarray(values) for name, values in history.items()},
        )


def best_seconds(run: Callable[[], Any], repeats: int = 10) -> float:
    """The shortest of several timings, which is the one least disturbed."""
    jax.block_until_ready(run())
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - start)
    return min(times)


def matmul_rate(rows: int = _SIDE, side: int = _SIDE, repeats: int = 5) -> float:
    """Floating-point operations per second of this machine's large float32 matrix products."""
    left, right = jnp.ones((rows, side)), jnp.ones((side, side))
    return 2 * rows * side**2 / best_seconds(lambda: jnp.matmul(left, right), repeats)
