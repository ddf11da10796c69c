"""Files of results: what they were measured with."""

import json

import pytest

from latentuq.core.cells import commit, commits, read_results
from latentuq.core.errors import UserError


def test_results_of_another_setup_are_not_mixed_in(tmp_path):
    path = tmp_path / "cells.json"
    assert read_results(path, {"seed": 0}, "cells", "cells") is None
    path.write_text(json.dumps({"setup": {"seed": 0}, "cells": {"a": 1}}))
    assert read_results(path, {"seed": 0}, "cells", "cells") == {"a": 1}
    with pytest.raises(UserError, match="another model, seed or setting"):
        read_results(path, {"seed": 1}, "cells", "cells")
    path.write_text("[]")
    with pytest.raises(UserError, match="not a file of cells"):
        read_results(path, {"seed": 0}, "cells", "cells")


def test_commits_in_words():
    assert commits([{"commit": "b1"}, {"commit": "a0"}, {"commit": "b1"}]) == "commits a0, b1"
    assert commits([{}]) == "commit unknown"


def test_the_commit_is_unknown_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    commit.cache_clear()
    assert commit() == "unknown"
    commit.cache_clear()
