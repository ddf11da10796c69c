from studies.commits import commit, commits
from studies.pages import ROOT


def test_commits_in_words():
    assert commits([{"commit": "b1"}, {"commit": "a0"}, {"commit": "b1"}]) == "commits a0, b1"
    assert commits([{}]) == "commit unknown"


def test_the_commit_is_that_of_this_checkout():
    if (ROOT / ".git").exists():
        assert commit() != "unknown"


def test_the_commit_is_unknown_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    commit.cache_clear()
    assert commit() == "unknown"
    commit.cache_clear()
