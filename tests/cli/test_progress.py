"""What long commands show while they work."""

import pytest

from latentuq.app.progress import Event
from latentuq.cli.progress import Bar

EVENTS = [
    Event("", "Searching.", None, 0.2),
    Event("", "Still searching.", None, 0.9),
    Event("search", "Found.", 0.2, 1.0),
    Event("search", "Found more.", 0.3, 1.5),
    Event("search", "Found all.", 0.4, 2.25),
]


@pytest.mark.parametrize("quiet", [False, True])
def test_a_log_file_gets_a_line_per_stage_and_second(capsys, quiet):
    with Bar(quiet=quiet) as bar:
        for event in EVENTS:
            bar.show(event)
    printed = capsys.readouterr()
    lines = ["   0.2 s  Searching.", "   1.0 s  Found.", "   2.2 s  Found all."]
    assert printed.out == ""
    assert printed.err.splitlines() == ([] if quiet else lines)
