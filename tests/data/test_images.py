import builtins
import gzip
import io
import re
import struct
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from latentuq.core.errors import UserError
from latentuq.core.reading import VARIABLE
from latentuq.data.images import read_fits_header, read_image
from own_files import write_image

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


@pytest.mark.parametrize("suffix", [".tif", ".npy"])
def test_floats_and_nan_survive_writing_and_reading(tmp_path, suffix):
    image = FLOATS.copy()
    image[0, 0] = np.nan
    write_image(tmp_path / f"a{suffix}", image)
    back = read_image(tmp_path / f"a{suffix}")
    assert back.dtype == np.float32
    assert np.array_equal(back, image, equal_nan=True)


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


def test_photos_are_read_upright(tmp_path):
    ramp = np.add.outer(np.arange(0, 200, 5), np.arange(50)).astype(np.uint8)
    turned = Image.fromarray(np.rot90(ramp))  # As a camera that was held upright stores it.
    exif = Image.Exif()
    exif[0x0112] = 6  # To be shown turned clockwise by a quarter.
    turned.save(tmp_path / "a.jpg", quality=100, exif=exif)
    turned.save(tmp_path / "a.webp", lossless=True, exif=exif)
    turned.save(tmp_path / "a.tif", exif=exif)
    turned.save(tmp_path / "b.tif", exif=exif, compression="tiff_lzw")
    turned.save(tmp_path / "a.png", exif=exif)
    Image.fromarray(ramp).save(tmp_path / "b.JPEG", quality=100)
    for name in ("a.jpg", "b.JPEG", "a.webp", "a.tif", "b.tif", "a.png"):
        back = read_image(tmp_path / name)
        assert back.dtype == np.uint8
        assert np.abs(back.astype(int) - ramp).max() <= 2, name


def test_a_page_is_chosen_by_its_number(tmp_path):
    pages = [Image.fromarray(each) for each in (WORDS, 65535 - WORDS, WORDS // 2)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    assert np.array_equal(read_image(tmp_path / "a.tif[0]"), WORDS)
    assert np.array_equal(read_image(f"{tmp_path}/a.tif[2]"), WORDS // 2)
    with pytest.raises(UserError, match=r"holds 3 pages .* from a\.tif\[0\] to a\.tif\[2\]\.$"):
        read_image(tmp_path / "a.tif")
    for wrong in ("3", "-1", "SCI", "", "9" * 30):
        with pytest.raises(UserError, match=f"has pages 0 to 2, but no page '{wrong}'"):
            read_image(tmp_path / f"a.tif[{wrong}]")
    write_image(tmp_path / "one.tif", WORDS)
    with pytest.raises(UserError, match=r"leave out \[0\]"):
        read_image(tmp_path / "one.tif[0]")


def test_the_second_picture_of_a_photo_is_ignored(tmp_path):
    stacked = [Image.fromarray(np.full((16, 16), value, np.uint8)) for value in (200, 10)]
    stacked[0].save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=stacked[1:])
    assert read_image(tmp_path / "a.jpg").mean() == pytest.approx(200, abs=2)


def test_lost_bits_of_colour_are_mentioned(tmp_path):
    rows, columns = 2, 3
    raw = RNG.integers(0, 65536, (rows, columns, 3)).astype(">u2")
    lines = b"".join(b"\0" + row.tobytes() for row in raw)

    def chunk(name, content):
        check = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + check

    header = struct.pack(">IIBBBBB", columns, rows, 16, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    with pytest.warns(UserWarning, match=r"16 bits per colour|reduced to grey") as notes:
        read_image(tmp_path / "a.png")
    assert len(notes) == 2


@pytest.mark.parametrize("name", ["a.fits.gz", "a.fit.gz", "a.FTS.GZ"])
def test_compressed_fits_is_fits(tmp_path, name):
    from astropy.io import fits

    units = [fits.PrimaryHDU(), fits.ImageHDU(WORDS, fits.Header({"BUNIT": "adu"}), "SCI")]
    stream = io.BytesIO()
    fits.HDUList(units).writeto(stream)
    (tmp_path / name).write_bytes(gzip.compress(stream.getvalue()))
    assert np.array_equal(read_image(tmp_path / f"{name}[SCI]"), WORDS)
    assert read_fits_header(tmp_path / "a.npy.gz") is None
    header = read_fits_header(tmp_path / name)
    assert header is not None
    assert header["BUNIT"] == "adu"


def test_tiles_of_fits_are_unpacked(tmp_path):
    from astropy.io import fits

    image = np.tile(WORDS, (8, 8)).astype(np.int32)
    fits.CompImageHDU(image, compression_type="RICE_1").writeto(tmp_path / "a.fits")
    assert np.array_equal(read_image(tmp_path / "a.fits"), image)


def bombs(folder):
    """Small files that unpack to much: 64 MB each."""
    from astropy.io import fits

    zeros = np.zeros((8192, 8192), np.uint8)
    np.savez_compressed(folder / "a.npz", zeros)
    for name in ("a.png", "a.tif", "a.webp", "a.jpg"):
        options = {"compression": "tiff_lzw"} if name == "a.tif" else {}
        Image.fromarray(zeros).save(folder / name, **options)
    stream = io.BytesIO()
    fits.PrimaryHDU(zeros).writeto(stream)
    (folder / "a.fits.gz").write_bytes(gzip.compress(stream.getvalue()))
    fits.CompImageHDU(zeros).writeto(folder / "b.fits")
    header = fits.Header(
        {"SIMPLE": True, "BITPIX": 8, "NAXIS": 2, "NAXIS1": 10**5, "NAXIS2": 10**5}
    )
    (folder / "c.fits").write_bytes(header.tostring().encode())
    # An encoder makes no header that lies: 10^12 values of which none follows.
    stream = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
    np.lib.format.write_array_header_1_0(stream, header)
    (folder / "a.npy").write_bytes(stream.getvalue())


READ_ALL = """
import os, resource
from astropy.io import fits
from PIL import Image
from latentuq.data.images import read_image
Image.init()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in sorted(os.listdir()):
    assert os.stat(name).st_size < 2**20
    try:
        read_image(name)
    except ValueError as error:
        print(name, error)
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


@pytest.mark.slow
def test_what_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    bombs(tmp_path)
    monkeypatch.setenv(VARIABLE, str(2**25))
    # In a process of its own, which has not taken much memory before.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ_ALL],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    *answers, grown = done.stdout.splitlines()
    assert len(answers) == 9
    for answer in answers:
        assert re.fullmatch(r"\w\.[\w.]+ .* allowed; `latentuq --max-bytes.*", answer)
    assert int(grown) < 2 * 2**25
    monkeypatch.setenv(VARIABLE, str(2**30))
    assert read_image(tmp_path / "a.png").shape == (8192, 8192)
    assert Image.MAX_IMAGE_PIXELS is not None, "Pillow's own limit is for others as it was"


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
