"""Warnings that a report keeps."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def noting() -> Iterator[list[str]]:
    """Yields a list that holds, after the block, what was warned of in it; it is printed too."""
    notes: list[str] = []
    caught: list[warnings.WarningMessage] | None = None
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield notes
    finally:
        for each in caught or ():
            warnings.warn(each.message, stacklevel=4)
            notes.append(str(each.message))
