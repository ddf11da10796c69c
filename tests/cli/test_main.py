"""What strangers write into names and files, and how the command line shows it."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import commands
from latentuq.core.reading import VARIABLE
from latentuq.prior.architecture import VAESize
from latentuq.prior.generative import Card, GenerativePrior
from latentuq.prior.model_error import ModelError
from latentuq.prior.model_file import load_prior, save_prior
from latentuq.prior.vae import init_vae

SHAPE = (6, 8)
EVIL = "\x1b[31mred\x07[/bold]\n\u202e"
NOT_UTF8 = b"caf\xe9.npy".decode("utf-8", "surrogateescape")


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    np.save(tmp_path / "a.npy", np.full(SHAPE, 0.5))
    monkeypatch.setenv(VARIABLE, str(2**30))  # The flag sets it: afterwards it is as before.
    return functools.partial(commands.call, monkeypatch, capsys, tmp_path)


def save_model(path, name, metrics):
    vae = init_vae(
        jax.random.key(0), SHAPE, VAESize(2, 1, 4, encoder_blocks=1, encoder_width=4), 1.0
    )
    error = ModelError(jnp.ones(SHAPE), jnp.ones((1, *SHAPE)))
    errors = {"low-rank": error}
    card = Card(name, metrics)
    save_prior(
        path, GenerativePrior(vae.decoder, None, error, errors, vae.encoder, 2, SHAPE, card=card)
    )


PLACES = {
    "LONG": "a" * 300,
    "LONGISH": "a" * 250,
    "NINES": "9" * 5000,
    "ZEROS": "0" * 30,
    "ANGLES": ",".join(["1"] * 200_000),
    "EVIL": EVIL,
    "NOT_UTF8": NOT_UTF8,
}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("reconstruct ~nouser/x.png", "There is no file ~nouser"),
        ("reconstruct {LONG}.png", "file name too long"),
        ("reconstruct a.npy -o {LONG}", "file name too long"),
        ("reconstruct a.npy -o {LONGISH}", "file name too long"),
        ("reconstruct a.npy --model {LONG}", "file name too long"),
        ("reconstruct a.npy --mask {LONG}.png", "file name too long"),
        ("reconstruct a.npy --mask columns:{NINES}", "is not a mask"),
        ("reconstruct a.npy --problem {LONG}", "file name too long"),
        ("reconstruct a.npy --blur 5000", "kernel of 40001 pixels a side"),
        ("reconstruct a.npy --blur 1e300", "kernel of 8e+300 pixels a side"),
        ("reconstruct a.npy --samples 100000000", "100000000 draws would take 317 GB"),
        ("reconstruct a.npy --downsample 1{ZEROS}", "do not tile"),
        ("reconstruct a.npy --angles {ANGLES}", "A projection along 200000 angles takes"),
        ("reconstruct {EVIL}", r"There is no file \x1b[31mred"),
        ("reconstruct a.npy --mask {EVIL}", r"\x1b[31mred"),
        ("reconstruct {NOT_UTF8}", r"There is no file caf\udce9"),
        ("train {LONG} -o m", "file name too long"),
        ("train a.npy -o {LONG}", "file name too long"),
        ("train a.npy -o {EVIL}/m", r"The folder \x1b[31mred"),
        ("train ~nouser/x -o m", "~nouser/x is neither"),
        ("train {NOT_UTF8} -o m", r"caf\udce9.npy is neither"),
        ("problem a.npy -o {LONG}.toml", "file name too long"),
        ("models {LONG}", "file name too long"),
        ("models {EVIL}", r"There is no file \x1b[31mred"),
        ("data fetch mnist --from {LONG}", "file name too long"),
        ("--max-bytes 1000 reconstruct a.npy", "give 0 samples"),
    ],
)
def test_odd_names_and_absurd_numbers_are_one_sentence(call, line, words, tmp_path):
    before = os.listdir(tmp_path)
    code, out, err = call(*(word.format(**PLACES) for word in line.split()))
    assert (code, out) == (2, "")
    assert words in err
    assert err.endswith(".\n")
    assert err[:-1].isprintable(), "one line, and nothing that a terminal obeys"
    assert os.listdir(tmp_path) == before


def test_what_a_model_calls_itself_is_text_to_the_terminal(call, tmp_path):
    metrics = {"test_elbo": 1.0, EVIL: EVIL, "train_seconds": EVIL}
    save_model(tmp_path / "m.safetensors", EVIL, metrics)
    code, out, err = call("models", "m.safetensors")
    assert code == 0, err
    assert r"\x1b[31mred\x07[/bold]\n\u202e" in out.replace("\n  ", "")
    assert out.replace("\n", "").isprintable()
    assert load_prior(tmp_path / "m.safetensors").card.name.isprintable()


def test_the_limit_is_raised_by_a_flag(call, tmp_path):
    np.save(tmp_path / "large.npy", np.zeros((100, 100)))
    arguments = ("reconstruct", "large.npy", "--samples", "1")
    code, _, err = call("--max-bytes", "50000", *arguments)
    assert code == 2
    assert "`latentuq --max-bytes 80000`" in err
    code, _, err = call("--max-bytes", "80000", *arguments)
    assert "(100, 100)" in err, "it is read, and does not fit the prior"


def test_a_name_that_is_not_utf8_cannot_be_in_a_text_file(call, tmp_path):
    name = NOT_UTF8.replace(".npy", ".safetensors")
    save_model(tmp_path / name, "tiny", {})
    code, out, err = call("problem", "a.npy", "--model", name, "--noise", "0.1", "-o", "p.toml")
    assert (code, out) == (2, "")
    assert r"caf\udce9.safetensors" in err
    assert "not UTF-8" in err


@pytest.mark.slow
def test_a_name_that_is_not_utf8_gets_its_report(call, tmp_path, tiny_prior, tiny_images):
    save_prior(tmp_path / "tiny.safetensors", tiny_prior)
    np.save(tmp_path / NOT_UTF8, np.asarray(tiny_images.train[0]))
    arguments = ("--model", "tiny.safetensors", "--noise", "0.1", "--budget", "preview")
    code, out, err = call("reconstruct", NOT_UTF8, *arguments)
    assert code == 0, err
    assert r"Report: caf\udce9" in out
    folder = tmp_path / f"{NOT_UTF8}-report"
    assert r"caf\udce9.npy" in (folder / "report.html").read_text()
