import pytest

from latentuq.core.text import printable


@pytest.mark.parametrize("text", ["a name", "Galaxie 3 (Übersicht).png", "手写数字", "σ = 0.1"])
def test_words_of_any_language_stay(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("two\nlines\r", r"two\nlines\r"),
        (b"caf\xe9.png".decode("utf-8", "surrogateescape"), r"caf\udce9.png"),
        ("gnp.\u202eexe", r"gnp.\u202eexe"),
        ("\x9b31m", r"\x9b31m"),
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(text, shown):
    assert printable(text) == shown
    shown.encode("utf-8")
