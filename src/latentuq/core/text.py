"""Text that comes from files, names and strangers, made fit to be shown."""


def printable(text: str) -> str:
    r"""Shows what a terminal would obey, or could not write, as `\x1b`, `\n` or `\udcff`.

    Control characters, marks that change the direction of writing, and the bytes of names that are
    not UTF-8 are among them.
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )
