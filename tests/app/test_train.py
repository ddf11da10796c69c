import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from latentuq.app import train as app_train
from latentuq.app.train import TrainingRequest, train
from latentuq.core.errors import UserError
from latentuq.prior.training.config import TrainingConfig


def test_a_folder_that_cannot_be_written_is_found_before_training(tmp_path, monkeypatch):
    # Root may write everywhere, so the answer is played.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    request = TrainingRequest("mnist", tmp_path / "m", TrainingConfig(), "m")
    with pytest.raises(UserError, match="cannot be written"):
        train(request, print)


def test_a_sheet_that_is_there_is_not_replaced(tmp_path):
    (tmp_path / "m.png").write_text("a picture")
    request = TrainingRequest("mnist", tmp_path / "m.safetensors", TrainingConfig(), "m")
    with pytest.raises(UserError, match=r"m\.png exists; --force"):
        train(request, print)


WAIT = """
import sys
from pathlib import Path
from latentuq.app import train as module
from latentuq.prior.training.config import TrainingConfig

def wait(*_):
    (Path(".m.1-0123abcd.safetensors")).write_text("half")
    print("training", flush=True)
    sys.stdin.readline()
    raise SystemExit

module.run_training = wait
module.train(module.TrainingRequest("a.npy", Path("m.safetensors"), TrainingConfig(), "m"), print)
"""


def test_of_two_trainings_to_one_file_one_is_refused(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).uniform(size=(50, 4, 4)))
    first = subprocess.Popen(
        [sys.executable, "-c", WAIT],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout.readline() == "training\n"
    monkeypatch.chdir(tmp_path)
    request = TrainingRequest("a.npy", Path("m.safetensors"), TrainingConfig(), "m", force=True)
    with pytest.raises(UserError, match=r"Another process is writing m\.safetensors"):
        train(request, print)
    first.kill()  # Its lock goes with it, and what it left goes with the next.
    first.communicate()
    assert len(list(tmp_path.glob(".m.*"))) == 2

    def trained(*_):
        assert set(os.listdir(tmp_path)) == {"a.npy", ".m.safetensors.lock"}
        raise KeyboardInterrupt

    monkeypatch.setattr(app_train, "run_training", trained)
    with pytest.raises(KeyboardInterrupt):
        train(request, print)
    assert os.listdir(tmp_path) == ["a.npy"]
