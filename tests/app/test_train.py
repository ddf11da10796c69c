import os

import pytest

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
