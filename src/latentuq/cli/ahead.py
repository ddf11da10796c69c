"""Imports that need not wait until they are used."""

import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def importing(
    modules: Sequence[str], progress: Callable[[Any], None]
) -> Iterator[Callable[[Any], None]]:
    """Imports modules in the background, from the first message of an inference to its end.

    Before that message the inference is traced, for which it needs the interpreter as much as an
    import does; after it, XLA mostly computes, for which it does not. What cannot be imported is
    left to fail where it is used.

    Args:
        modules: Their names.
        progress: What is to be called with every message.

    Yields:
        What the inference calls in its place.
    """

    def load() -> None:
        for name in modules:
            with suppress(Exception):
                importlib.import_module(name)

    thread = threading.Thread(target=load, daemon=True)

    def follow(message: Any) -> None:
        if thread.ident is None:
            thread.start()
        progress(message)

    try:
        yield follow
    finally:
        # Two threads that import the same modules may find them half made.
        if thread.ident is not None:
            thread.join()
