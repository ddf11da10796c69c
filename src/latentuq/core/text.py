"""Text made fit to be shown: shapes, and what comes from files, names and strangers."""

from collections.abc import Iterable


def show_size(shape: Iterable[int]) -> str:
    """Writes a shape as 28 x 28."""
    return " x ".join(map(str, shape))


def printable(text: str) -> str:
    r"""Shows what a terminal would obey, or could not write, as `\x1b`, `\n` or `\udcff`.

    Control characters, marks that change the direction of writing, and the bytes of names that are
    not UTF-8 are among them.
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def show_time(seconds: float) -> str:
    """Writes a duration in the unit that suits it, such as 45 s, 12 min or 3.5 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"
