import dataclasses

import pytest

from latentuq.core.errors import UserError
from latentuq.core.options import listed, nested, read_assignments, read_toml, replace
from latentuq.prior.training.config import TrainingConfig


def test_a_table_round_trips():
    config = replace(TrainingConfig(), nested({"seed": 3, "vae.width": 64, "flow.depth": None}))
    assert config.seed == 3
    assert config.vae.width == 64
    assert config.flow == TrainingConfig().flow
    assert replace(TrainingConfig(), dataclasses.asdict(config)) == config


def test_toml_replaces_only_what_it_names(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("seed = 5\n[vae_fit]\nlearning_rate = 1\n")
    config = read_toml(TrainingConfig(), path)
    assert config.vae_fit.learning_rate == 1.0
    assert config.vae_fit.epochs == TrainingConfig().vae_fit.epochs


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sed = 1", "no option sed"),
        ("seed = 1.5", "should be of type int"),
        ("seed = true", "should be of type int"),
        ("seed = -1", "outside 0"),
        ("vae = 3", "should be a table"),
        ("[vae]\nactivation = 'relu'", "not one of silu"),
        ("[vae_fit]\nlearning_rate = nan", "outside"),
        ("[vae", "Cannot read .* as TOML"),
    ],
)
def test_what_cannot_be_right_is_refused(tmp_path, text, words):
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        read_toml(TrainingConfig(), path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="There is no file"):
        read_toml(TrainingConfig(), tmp_path / "c.toml")


def test_assignments_are_typed_as_the_fields_are():
    texts = ["vae.latent=32", "vae_fit.learning_rate = 1", "vae.activation=leaky_relu"]
    values = read_assignments(TrainingConfig(), texts)
    assert values == {
        "vae.latent": 32,
        "vae_fit.learning_rate": 1.0,
        "vae.activation": "leaky_relu",
    }
    config = replace(TrainingConfig(), nested(values))
    assert config.vae.latent == 32
    assert listed(config)["vae.latent"].default == 32
    assert set(values) < set(listed(TrainingConfig()))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vae.latent", "is not NAME=VALUE"),
        ("vae.latnt=3", "no setting 'vae.latnt'; there are vae.latent"),
        ("vae.latent=many", "vae.latent = many should be of type int"),
    ],
)
def test_assignments_that_cannot_be_right_are_refused(text, words):
    with pytest.raises(UserError, match=words):
        read_assignments(TrainingConfig(), [text])
