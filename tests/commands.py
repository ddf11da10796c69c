"""The command line in the process of the test, which saves the seconds that a new one takes."""

import sys

import pytest

from latentuq.cli import main as latentuq


def call(monkeypatch, capsys, folder, *arguments, main=latentuq) -> tuple[int, str, str]:
    """Calls a program in a folder; returns its exit code and what it printed."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["program", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr()
    code = end.value.code or 0
    assert isinstance(code, int)
    return code, printed.out, printed.err
