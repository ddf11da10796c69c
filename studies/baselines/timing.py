"""Timing that keeps compilation apart."""

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from latentuq.core.cores import on_cores


class Timer:
    """Runs compiled functions, with the time of compilation kept apart."""

    def __init__(self):
        self.seconds = 0.0
        self.compile_seconds = 0.0

    def run(self, function: Any, *arguments: Any) -> Any:
        """The result of a jitted function, once it is there."""
        start = time.perf_counter()
        compiled = function.lower(*arguments).compile()
        middle = time.perf_counter()
        result = jax.block_until_ready(compiled(*arguments))
        self.compile_seconds += middle - start
        self.seconds += time.perf_counter() - middle
        return result

    def run_halves(self, function: Any, *arguments: Any, divided: Sequence[int]) -> Any:
        """The same for a function of independent rows: two halves of them, at the same time.

        Our own starts and particles are shared out among the cores in this way. An odd number of
        rows stays whole; joining the halves, which compiles, is not counted.

        Args:
            function: All that it returns has a row for each row of the divided arguments.
            arguments: Of all rows.
            divided: Places of the arguments that have rows.
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
        start = time.perf_counter()
        compiled = function.lower(*halves[0]).compile()
        middle = time.perf_counter()
        results = on_cores(lambda half: compiled(*half), halves)
        self.compile_seconds += middle - start
        self.seconds += time.perf_counter() - middle
        return jax.tree.map(lambda *both: jnp.concatenate(both), *results)
