import builtins
import os
import warnings

import numpy as np
import pytest
from PIL import Image

from latentuq.core.errors import UserError
from latentuq.data.images import read_image, write_image

RNG = np.random.default_rng(1)
BYTES = RNG.integers(0, 256, (5, 7), np.uint8)
WORDS = RNG.integers(0, 65536, (5, 7), np.uint16)
FLOATS = RNG.normal(size=(5, 7)).astype(np.float32)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".tiff", ".npy"])
@pytest.mark.parametrize("image", [BYTES, WORDS], ids=["8-bit", "16-bit"])
def test_integers_survive_writing_and_reading(tmp_path, suffix, image):
    write_image(tmp_path / f"a{suffix}", image)
    back = read_image(tmp_path / f"a{suffix}")
    assert back.dtype == image.dtype
    assert np.array_equal(back, image)
    assert os.listdir(tmp_path) == [f"a{suffix}"]


@pytest.mark.parametrize("suffix", [".tif", ".npy"])
def test_floats_and_nan_survive_writing_and_reading(tmp_path, suffix):
    image = FLOATS.copy()
    image[0, 0] = np.nan
    write_image(tmp_path / f"a{suffix}", image)
    back = read_image(tmp_path / f"a{suffix}")
    assert back.dtype == np.float32
    assert np.array_equal(back, image, equal_nan=True)


def test_floats_in_png_are_clipped_to_the_unit_interval(tmp_path):
    write_image(tmp_path / "a.png", np.array([[-1.0, 0.0, 0.5, 1.0, 2.0]]))
    assert read_image(tmp_path / "a.png").tolist() == [[0, 0, 128, 255, 255]]
    with pytest.raises(UserError, match=r"Cannot write NaN to .*a\.png"):
        write_image(tmp_path / "a.png", np.array([[np.nan]]))


def test_big_endian_and_npz_entries(tmp_path):
    np.save(tmp_path / "a.npy", FLOATS.astype(">f8"))
    back = read_image(tmp_path / "a.npy")
    assert back.dtype.isnative
    assert np.array_equal(back, FLOATS)
    np.savez(tmp_path / "one.npz", anything=BYTES)
    np.savez(tmp_path / "two.npz", image=BYTES, other=WORDS)
    np.savez(tmp_path / "none.npz", a=BYTES, b=WORDS)
    assert np.array_equal(read_image(tmp_path / "one.npz"), BYTES)
    assert np.array_equal(read_image(tmp_path / "two.npz"), BYTES)
    with pytest.raises(UserError, match="entries a, b; exactly one"):
        read_image(tmp_path / "none.npz")


def test_colour_is_reduced_with_a_warning_and_grey_without(tmp_path):
    Image.fromarray(np.stack([BYTES, 255 - BYTES, BYTES], -1)).save(tmp_path / "colour.png")
    with pytest.warns(UserWarning, match=r"colour\.png has colour"):
        assert read_image(tmp_path / "colour.png").shape == (5, 7)
    Image.fromarray(np.stack([BYTES] * 3, -1)).save(tmp_path / "grey.png")
    Image.fromarray(BYTES).convert("P").save(tmp_path / "palette.png")
    Image.fromarray(BYTES > 127).save(tmp_path / "bits.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(read_image(tmp_path / "grey.png"), BYTES)
        assert np.array_equal(read_image(tmp_path / "palette.png"), BYTES)
        assert np.array_equal(read_image(tmp_path / "bits.png"), np.where(BYTES > 127, 255, 0))


def test_fits_images_and_their_degenerate_axes(tmp_path):
    from astropy.io import fits

    fits.PrimaryHDU(FLOATS[None, None]).writeto(tmp_path / "a.fits")
    fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(WORDS)]).writeto(tmp_path / "b.fit")
    fits.PrimaryHDU().writeto(tmp_path / "empty.fits")
    assert np.array_equal(read_image(tmp_path / "a.fits"), FLOATS)
    assert np.array_equal(read_image(tmp_path / "b.fit"), WORDS)
    assert read_image(tmp_path / "a.fits").dtype.isnative
    with pytest.raises(UserError, match=r"empty\.fits holds no image"):
        read_image(tmp_path / "empty.fits")
    content = (tmp_path / "a.fits").read_bytes()
    (tmp_path / "short.fits").write_bytes(content[: 2880 + 40])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UserError, match=r"short\.fits"):
            read_image(tmp_path / "short.fits")


def test_fits_without_astropy_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.fits").write_bytes(b"x")
    real_import = builtins.__import__

    def without_astropy(name, *rest):
        if name.startswith("astropy"):
            raise ImportError(name)
        return real_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_astropy)
    with pytest.raises(UserError, match=r"pip install latentuq\[fits\]"):
        read_image(tmp_path / "a.fits")


def test_every_wrong_file_is_named_in_one_sentence(tmp_path):
    write_image(tmp_path / "whole.png", BYTES)
    write_image(tmp_path / "whole.tif", FLOATS)
    write_image(tmp_path / "whole.npy", FLOATS)
    np.savez(tmp_path / "whole.npz", FLOATS)
    for suffix in ("png", "tif", "npy", "npz"):
        content = (tmp_path / f"whole.{suffix}").read_bytes()
        (tmp_path / f"cut.{suffix}").write_bytes(content[: len(content) // 2])
        (tmp_path / f"text.{suffix}").write_text("this is text")
        (tmp_path / f"nothing.{suffix}").write_bytes(b"")
    (tmp_path / "text.fits").write_text("this is text")
    (tmp_path / "npy-called.npz").write_bytes((tmp_path / "whole.npy").read_bytes())
    (tmp_path / "image.jpg").write_bytes(b"x")
    (tmp_path / "folder.png").mkdir()
    np.save(tmp_path / "object.npy", np.array([[None]]), allow_pickle=True)
    np.savez(tmp_path / "object.npz", np.array([[None]]))
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    np.save(tmp_path / "complex.npy", np.array([[1j]]))
    np.save(tmp_path / "cube.npy", np.zeros((4, 3, 2)))
    np.save(tmp_path / "empty.npy", np.zeros((0, 3)))
    pages = [Image.fromarray(BYTES)] * 2
    pages[0].save(tmp_path / "pages.tif", save_all=True, append_images=pages[1:])
    wrong = [path for path in tmp_path.iterdir() if path.stem != "whole"]
    assert len(wrong) == 23
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in [*wrong, tmp_path / "missing.png"]:
            with pytest.raises(UserError) as caught:
                read_image(path)
            assert path.name in str(caught.value)
            # One sentence: a name may hold a dot, but nothing follows a full stop.
            assert ". " not in str(caught.value)
            assert str(caught.value).endswith(".")
            assert "\n" not in str(caught.value)


def test_what_cannot_be_written_is_refused_before_a_file_appears(tmp_path):
    for path, array, reason in (
        ("a.jpg", BYTES, "should end in"),
        ("a.png", np.zeros((2, 3, 3)), "one 2-D image"),
        ("a.npy", np.array([[None]]), "not real numbers"),
        ("no/a.png", BYTES, "does not exist"),
    ):
        with pytest.raises(UserError, match=reason):
            write_image(tmp_path / path, array)
    assert os.listdir(tmp_path) == []


def test_a_failed_write_keeps_the_old_image(tmp_path, monkeypatch):
    write_image(tmp_path / "a.png", BYTES)

    def interrupted(image, path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Image.Image, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_image(tmp_path / "a.png", 255 - BYTES)
    assert os.listdir(tmp_path) == ["a.png"]
    assert np.array_equal(read_image(tmp_path / "a.png"), BYTES)
