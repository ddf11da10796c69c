"""The flag --seed."""

from typing import Any

import typer

# JAX takes no more of a number: a larger one would repeat a smaller one's answer.
_LARGEST = 2**32 - 1


def seed_option(text: str = "The seed of everything random.") -> Any:
    """An option for seeds that JAX tells apart."""
    return typer.Option(min=0, max=_LARGEST, help=text)
