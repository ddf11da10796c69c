"""The tutorial runs as it is printed, from the first line to the last."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import commands

PAGE = Path(__file__).parents[1] / "docs" / "own-data.md"


@pytest.mark.slow
def test_the_tutorial_runs_as_it_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.M):
        if kind == "python":
            exec(compile(block, str(PAGE), "exec"), names)
            continue
        for line in block.splitlines():
            program, *words = shlex.split(line)
            assert program == "latentuq"
            code, out, err = commands.call(monkeypatch, capsys, tmp_path, *words)
            assert code == 0, err
            assert out
    hidden = np.abs(names["mean"] - names["truth"])[:, 8:] < 2 * names["std"][:, 8:]
    assert np.mean(hidden) > 0.8
    assert names["post"].verdict.prior.standing == "ok"
    assert (tmp_path / "night-in-python" / "report.html").exists()
