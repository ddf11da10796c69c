import sys

import pytest

from latentuq.cli.ahead import importing


def test_modules_are_there_at_the_end_and_failures_are_left_to_their_use(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ahead_good.py").write_text("value = 3\n")
    (tmp_path / "ahead_bad.py").write_text("raise ImportError('no such backend')\n")
    heard = []
    with importing(("ahead_bad", "ahead_missing", "ahead_good"), heard.append) as progress:
        # The inference is being traced until its first message.
        assert "ahead_good" not in sys.modules
        progress("map")
        progress("modes")
    assert heard == ["map", "modes"]
    assert sys.modules.pop("ahead_good").value == 3
    with pytest.raises(ImportError, match="no such backend"):
        __import__("ahead_bad")


def test_an_inference_that_says_nothing_imports_nothing(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ahead_never.py").write_text("")
    with pytest.raises(RuntimeError, match="from within"), importing(("ahead_never",), print):
        raise RuntimeError("from within")
    assert "ahead_never" not in sys.modules
