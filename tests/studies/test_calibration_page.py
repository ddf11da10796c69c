import numpy as np
import pytest

from latentuq.core.cells import write_cells
from latentuq.core.errors import UserError
from studies.calibration_page import write_calibration

GROUPS = ("hidden", "uncertain", "black", "inked", "uncertain_inked")
MODEL = {"model": "m", "model_checksum": "0123456789abcdef", "seed": 0}


def write_study(folder, kind, method="latentuq", error="low-rank", n=30):
    """Rows of a study whose 90 % intervals cover 80 of 100 pixels."""
    rng = np.random.default_rng(0)
    counts = [100, 40, 70, 80, 90]
    rows = []
    for _ in range(n):
        row = {
            "tarp": float(rng.uniform()),
            "pixels": dict.fromkeys(GROUPS, counts),
            "pit": [5] * 20,
            "energy": 2.0,
            "crps": 0.1,
        }
        if kind == "simulated":
            row |= {"ranks": rng.uniform(size=10).tolist()}
        else:
            row |= {"classes": [0.9] + [0.1 / 9] * 9, "label": int(rng.uniform() > 0.9)}
        if method == "latentuq":
            row |= {"verdict": "refined", "chi_squared": 1.0}
            row |= {"weights": [0.7, 0.3], "mode_of_truth": [1.0, 0.0]}
        rows.append(row)
    study = {"kind": kind, "corruption": "blur", "model_error": error, "method": method}
    path = folder / f"{kind}-blur-{error}-{method}.json"
    write_rows(path, {"study": study} | MODEL, rows)


def write_rows(path, setup, rows):
    write_cells(path, setup, {str(number): row for number, row in enumerate(rows)})


def test_the_page_shows_what_the_rows_say(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    write_study(folder, "simulated")
    write_study(folder, "simulated", "mean-field", n=20)
    write_study(folder, "real")
    write_study(folder, "real", error="signal-dependent")
    page = write_calibration(folder, tmp_path / "calibration.md", "a command").read_text()
    assert page.count("80.0 ± 0.0") >= 4
    assert "| simulated `blur` | mean-field | 20 |" in page
    assert "| simulated `blur` | latentuq | 20 |" in page
    for name in ("simulated", "real"):
        assert f"(calibration-{name}.png)" in page
        assert (tmp_path / f"calibration-{name}.png").stat().st_size > 10_000


def test_an_empty_folder_and_a_strange_file_are_named(tmp_path):
    with pytest.raises(UserError, match="no rows of a study"):
        write_calibration(tmp_path, tmp_path / "page.md", "a command")
    (tmp_path / "strange.json").write_text('{"setup": {"study": 3}, "cells": {}}')
    with pytest.raises(UserError, match=r"strange\.json is not a file of a calibration study"):
        write_calibration(tmp_path, tmp_path / "page.md", "a command")
    assert not (tmp_path / "page.md").exists()
