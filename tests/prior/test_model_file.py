import dataclasses
import hashlib
import json
import pickle

import equinox as eqx
import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from latentuq.core.errors import UserError
from latentuq.core.tensors import read_tensors, write_tensors
from latentuq.prior.check import PriorCheck
from latentuq.prior.model_file import (
    embedded_models,
    keep_check,
    load_prior,
    read_card,
    save_prior,
)


@pytest.fixture
def model_file(tmp_path, tiny_prior):
    path = tmp_path / "tiny.safetensors"
    save_prior(path, tiny_prior)
    return path


def test_a_saved_prior_comes_back_the_same(model_file, tiny_prior):
    loaded = load_prior(model_file)
    u = jax.random.normal(jax.random.key(0), (20, loaded.dim))
    np.testing.assert_array_equal(loaded.decode(u), tiny_prior.decode(u))
    for name, error in tiny_prior.model_errors.items():
        other = loaded.with_model_error(name).model_error
        assert eqx.tree_equal(other, error)
        assert (other.gain is None) == (other.most_data is None) == (name != "signal-dependent")
    assert loaded.model_error_name == tiny_prior.model_error_name
    assert loaded.scaling == tiny_prior.scaling
    assert loaded.card.metrics == tiny_prior.card.metrics
    assert len(loaded.card.checksum) == 64


def test_the_header_tells_the_whole_story(model_file, tiny_prior):
    header = read_card(model_file)
    assert header["architecture"]["shape"] == [6, 8]
    assert header["training"]["command"] == "test"
    assert header["training"]["data"] == "blobs"
    assert len(header["training"]["data_checksum"]) == 64
    assert header["metrics"]["test_elbo"] == tiny_prior.card.metrics["test_elbo"]
    assert {"version", "format", "kind", "name"} <= set(header)


def test_the_checksum_is_that_of_the_arrays_and_a_check_does_not_change_it(model_file):
    contents = model_file.read_bytes()
    arrays = contents[8 + int.from_bytes(contents[:8], "little") :]
    before = load_prior(model_file)
    assert before.card.checksum == hashlib.sha256(arrays).hexdigest()
    assert before.card.check is None
    found = PriorCheck("usable", 20, "half is hidden", covered=0.8, covered_unsure=0.7)
    keep_check(model_file, found)
    assert model_file.read_bytes().endswith(arrays)
    after = load_prior(model_file)
    assert after.card.check == found
    assert after.card.checksum == before.card.checksum
    change(model_file, array_change=lambda arrays: arrays.update(held_out=arrays["held_out"][1:]))
    assert load_prior(model_file).card.checksum != before.card.checksum


@pytest.mark.parametrize("scale", [255, 1000])
def test_some_test_images_are_kept(tmp_path, tiny_prior, tiny_images, scale):
    """In 8 bits if they were made of these, and else in half precision."""
    images = np.rint(scale * np.asarray(tiny_images.train[:3])) / np.float32(scale)
    card = dataclasses.replace(tiny_prior.card, held_out=images.astype(np.float32))
    save_prior(tmp_path / "m", dataclasses.replace(tiny_prior, card=card))
    stored = read_tensors(tmp_path / "m", "prior").arrays["held_out"]
    assert stored.dtype == (np.uint8 if scale == 255 else np.float16)
    found = load_prior(tmp_path / "m").card.held_out
    np.testing.assert_allclose(found, images, rtol=0, atol=1e-7 if scale == 255 else 5e-4)


def test_held_out_images_that_cannot_be_are_refused(model_file):
    original = model_file.read_bytes()
    for wrong in (np.zeros((3, 2, 2), np.uint8), np.zeros((3, 6, 8))):
        change(model_file, array_change=lambda arrays, wrong=wrong: arrays.update(held_out=wrong))
        with pytest.raises(UserError, match="held-out images are"):
            load_prior(model_file)
        model_file.write_bytes(original)


def test_matrices_are_stored_in_half_precision(model_file):
    arrays = read_tensors(model_file, "prior").arrays
    assert arrays["decoder.network.entry.weight"].dtype == np.float16
    assert arrays["decoder.network.entry.bias"].dtype == np.float32


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused(model_file, kept):
    contents = model_file.read_bytes()
    model_file.write_bytes(contents[: int(kept * len(contents))])
    with pytest.raises(UserError, match="truncated or not a safetensors"):
        load_prior(model_file)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def test_a_pickle_is_refused_and_not_executed(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(UserError, match="not a safetensors"):
        load_prior(path)


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"weight": np.ones(3, np.float32)}, path)
    with pytest.raises(UserError, match="latentuq did not write it"):
        load_prior(path)
    write_tensors(path, {"kind": "checkpoint"}, {"weight": np.ones(3, np.float32)})
    with pytest.raises(UserError, match="holds a latentuq checkpoint"):
        load_prior(path)


def change(path, header_change=None, array_change=None):
    header, arrays = read_tensors(path, "prior")
    if header_change:
        header_change(header)
    if array_change:
        array_change(arrays)
    write_tensors(path, header, arrays)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda h: h["architecture"]["vae"].update(width=10**9), "outside"),
        (lambda h: h["architecture"]["vae"].update(width=17), "is expected"),
        (lambda h: h["architecture"]["vae"].update(blocks=200), "is expected"),
        (lambda h: h["architecture"]["vae"].update(activation="__import__"), "not one of"),
        (lambda h: h["architecture"]["vae"].update(surprise=1), "no option"),
        (lambda h: h["architecture"].update(shape=[10**9, 10**9]), "impossible"),
        (lambda h: h["architecture"].update(shape=[]), "impossible"),
        (lambda h: h["architecture"].update(shape="ab"), "bad header"),
        (lambda h: h["architecture"].update(scaling={"offset": 0.0, "scale": 0.0}), "scaling"),
        (lambda h: h["architecture"].update(default_model_error="none"), "missing"),
        (lambda h: h["architecture"]["model_errors"].update(scalar=10**12), "impossible"),
        (lambda h: h.update(architecture=None), "bad header"),
        (lambda h: h.update(format=99), "format is 99"),
        (lambda h: h.pop("metrics"), "bad header"),
        (lambda h: h.update(check="fine"), "should be a table"),
        (lambda h: h.update(check={"word": "perfect"}), "not one of good, usable, poor"),
        (lambda h: h.update(check={"covered": 2.0}), "outside 0 to 1"),
        (lambda h: h.update(check={"corruption": "\x1b[31m"}), "not printable"),
    ],
)
def test_a_hostile_header_is_refused(model_file, edit, words):
    change(model_file, edit)
    with pytest.raises(UserError, match=words):
        load_prior(model_file)
    # Arrays that do not fit are no business of the card.
    if words != "is expected":
        with pytest.raises(UserError, match=words):
            read_card(model_file)


def test_missing_misshapen_and_infinite_arrays_are_named(model_file):
    name = "decoder.network.entry.weight"
    original = model_file.read_bytes()
    for edit, words in [
        (lambda a: a.pop(name), "missing"),
        (lambda a: a.update({name: a[name].T.copy()}), "expected"),
        (lambda a: a.update({name: a[name].astype(np.int32)}), "expected"),
        (lambda a: a.update({name: np.full_like(a[name], np.nan)}), "NaN"),
    ]:
        model_file.write_bytes(original)
        change(model_file, array_change=edit)
        with pytest.raises(UserError, match=rf"{name}.*{words}"):
            load_prior(model_file)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model_errors.scalar.variance", "negative variance"),
        ("flow.scale", "not positive"),
        ("model_error_gain", "not a list of positive numbers"),
        ("model_error_most_data", "not a number of at least 1"),
    ],
)
def test_values_that_cannot_be_are_refused(model_file, name, words):
    change(model_file, array_change=lambda arrays: arrays.update({name: -arrays[name]}))
    with pytest.raises(UserError, match=words):
        load_prior(model_file)


def test_a_deeply_nested_header_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"w": np.ones(1)}, path, metadata={"latentuq": "[" * 100_000})
    with pytest.raises(UserError, match="latentuq did not write it"):
        load_prior(path)


def test_an_unknown_name_lists_the_known_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="mnist"):
        load_prior("mnits")


@pytest.mark.parametrize("name", ["mnist", "mnist-paper", "fashion-mnist"])
def test_embedded_models_load_and_decode(name):
    path = embedded_models()[name]
    assert path.stat().st_size < 16 * 2**20
    prior = load_prior(name)
    images = prior.sample(jax.random.key(0), 3, mean=True)
    assert images.shape == (3, 28, 28)
    assert float(images.std()) > 0.1
    json.dumps(dict(prior.card.metrics), allow_nan=False)
    # The paper's own has kinks, on which the inference takes half a minute for each image.
    assert (prior.card.check is None) == (name == "mnist-paper")
    assert dataclasses.is_dataclass(prior.scaling)


@pytest.mark.slow
def test_decode_is_a_jax_function_like_any_other(tiny_prior):
    prior, u = tiny_prior, jax.numpy.ones(2)
    np.testing.assert_allclose(jax.jit(prior.decode)(u), prior.decode(u), rtol=1e-5, atol=1e-6)
    assert jax.jit(jax.hessian(prior.decode))(u).shape == (6, 8, 2, 2)


def test_a_model_that_is_loaded_twice_compiles_once(model_file):
    traces = 0

    @eqx.filter_jit
    def decode(prior, u):
        nonlocal traces
        traces += 1
        return prior.decode(u)

    u = jax.numpy.zeros(2)
    decode(load_prior(model_file), u)
    decode(load_prior(model_file), u)
    assert traces == 1
