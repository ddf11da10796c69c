import shlex
import tomllib

import numpy as np
import pytest

from latentuq.problem.specification import Specification
from latentuq.web.pictures import MISSING, picture, to_bytes, to_values
from latentuq.web.statement import Statement, zipped

IMAGE = np.linspace(0, 1, 12).reshape(3, 4)


@pytest.mark.parametrize("blur", [0.0, 1.5])
@pytest.mark.parametrize("masked", [False, True])
def test_files_hold_what_the_specification_says(tmp_path, blur, masked):
    mask = IMAGE > 0.3 if masked else None
    statement = Statement("mnist", IMAGE, mask, 0.2, blur, False, 7)
    for name, content in statement.files.items():
        (tmp_path / name).write_bytes(content)
    written, meant = Specification.read(tmp_path / "problem.toml"), statement.specification
    assert written.prior == "mnist"
    assert written.noise == meant.noise == {"std": 0.2}
    assert np.array_equal(np.load(tmp_path / "image.npy"), IMAGE)
    for found, wanted in zip(written.operators, meant.operators, strict=True):
        if found["kind"] == "mask":
            assert np.array_equal(np.load(found["mask"]), wanted["mask"])
        else:
            assert found == wanted


def test_command_and_program_say_what_was_asked_for():
    clean, damaged = (Statement("mnist", IMAGE, corrupt=each, seed=3) for each in (True, False))
    words = shlex.split(clean.command)
    assert words[:3] == ["latentuq", "reconstruct", "image.npy"]
    assert words[words.index("--seed") + 1] == "3"
    assert "--corrupt" in words
    assert "--corrupt" not in damaged.command
    assert "corrupt=False" in damaged.program
    compile(damaged.program, "program", "exec")


def test_the_name_of_a_model_cannot_leave_its_quotes():
    statement = Statement('a"\n[noise]\nstd = 9 #', IMAGE)
    table = tomllib.loads(statement.files["problem.toml"].decode())
    assert table["prior"] == 'a"\n[noise]\nstd = 9 #'
    compile(statement.program, "program", "exec")


def test_the_same_files_are_the_same_archive():
    statement = Statement("mnist", IMAGE)
    assert zipped(statement.files) == zipped(statement.files)


def test_pictures_keep_values_to_half_a_level_and_what_is_missing():
    image = IMAGE.copy()
    image[0, 0] = np.nan
    levels = to_bytes(image, -0.5, 1.5)
    assert levels[0, 0] == MISSING
    back = to_values(levels, -0.5, 1.5)
    np.testing.assert_allclose(back.ravel()[1:], IMAGE.ravel()[1:], atol=2.0 / 254 / 2 + 1e-9)
    assert picture(IMAGE, 0.2, 0.5).pixels.startswith("AAAA")
