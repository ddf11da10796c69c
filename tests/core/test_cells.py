"""Results that grow cell by cell and know what they were measured with."""

import json

import pytest

from latentuq.core.cells import read_cells, read_file, run_cells
from latentuq.core.errors import UserError

SETUP = {"seed": 0, "widths": (1, 2)}


def test_what_has_been_measured_is_not_measured_again(tmp_path):
    path, ran, told = tmp_path / "new" / "cells.json", [], []

    def job(name):
        def run(cells):
            ran.append(name)
            return {"before": list(cells)}

        return run

    run_cells(path, SETUP, {"a": job("a")})
    jobs = {"a": job("a"), "b": job("b")}
    cells = run_cells(path, SETUP, jobs, lambda name, cell: told.append((name, cell)))
    assert ran == ["a", "b"]
    assert cells["b"]["before"] == ["a"]
    assert told == [("b", cells["b"])]
    assert read_cells(path, SETUP) == read_cells(path) == cells
    assert read_file(path) == ({"seed": 0, "widths": [1, 2]}, cells)


def test_a_cell_is_stamped_unless_it_says_so_itself(tmp_path):
    jobs = {"a": lambda _: {}, "b": lambda _: {"seconds": 7.0, "commit": "old"}}
    cells = run_cells(tmp_path / "cells.json", SETUP, jobs, commit="new")
    assert cells["a"] == {"seconds": pytest.approx(0, abs=1), "commit": "new"}
    assert cells["b"] == {"seconds": 7.0, "commit": "old"}


def test_what_json_does_not_know_becomes_null(tmp_path):
    path = tmp_path / "cells.json"
    cells = run_cells(path, {}, {"a": lambda _: {"khat": float("nan"), "ess": [float("inf")]}})
    assert cells["a"]["khat"] is None
    assert cells["a"]["ess"] == [None]
    json.loads(path.read_text(), parse_constant=pytest.fail)


def test_every_cell_has_a_line_and_is_saved_at_once(tmp_path):
    path = tmp_path / "cells.json"

    def fail(_):
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        run_cells(path, SETUP, {"a": lambda _: {"x": 1}, "b": lambda _: {"x": 2}, "c": fail})
    assert list(read_cells(path)) == ["a", "b"]
    assert [line.split(":")[0] for line in path.read_text().splitlines()[2:4]] == ['"a"', '"b"']


def test_results_of_another_setup_are_not_mixed_in(tmp_path):
    path = tmp_path / "cells.json"
    assert read_cells(path, SETUP) == {}
    run_cells(path, SETUP, {"a": lambda _: {}})
    with pytest.raises(UserError, match="another model, seed or setting"):
        run_cells(path, {"seed": 1}, {})


@pytest.mark.parametrize("text", ["[]", "{", '{"setup": {}}', '{"setup": {}, "cells": {"a": 1}}'])
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "cells.json"
    path.write_text(text)
    with pytest.raises(UserError, match="is not a file of saved results"):
        read_cells(path)
