"""Timing that keeps compilation apart."""

import time
from typing import Any

import jax


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
