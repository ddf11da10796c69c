"""`latentuq serve`: what a person can get wrong."""

import builtins
import re
import socket
import sys

import pytest

import commands


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--host", "0.0.0.0"], "The host 0.0.0.0 lets other machines in: give --token"),
        (["--host", "0.0.0.0", "--token", "short"], "A token has at least 12 letters and digits"),
        (["--token", "with a space in it"], "A token has at least 12 letters and digits"),
        (["--host", "no.such.host.invalid", "--token", "a" * 12], "There is no host no.such"),
        (["--model", "nonsense"], "There is no model 'nonsense'"),
        (["--workers", "0"], "Invalid value for '--workers'"),
    ],
)
def test_mistakes_are_one_sentence(monkeypatch, capsys, tmp_path, flags, message):
    code, out, err = commands.call(monkeypatch, capsys, tmp_path, "serve", *flags)
    assert code == 2
    assert out == ""
    assert err.startswith(f"latentuq: {message}"), err
    assert len(err.splitlines()) == 1


def test_a_port_that_is_taken_is_one_sentence(monkeypatch, capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, err = commands.call(monkeypatch, capsys, tmp_path, "serve", "--port", port)
    assert code == 2
    assert err == (
        f"latentuq: Port {port} of 127.0.0.1 cannot be used (address already in use): give another"
        " with --port.\n"
    )


def test_without_fastapi_it_says_what_to_install(monkeypatch, capsys, tmp_path):
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "fastapi":
            raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")
        return real(name, *rest)

    for name in [*sys.modules]:
        if re.match(r"(fastapi|latentuq\.web)\b", name):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    code, _, err = commands.call(monkeypatch, capsys, tmp_path, "serve")
    assert (code, err) == (2, "latentuq: The page needs fastapi: pip install latentuq[web].\n")
