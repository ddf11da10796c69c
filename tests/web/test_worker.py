"""What a worker makes of the images that somebody sends."""

import io
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from latentuq.core.errors import UserError
from latentuq.core.reading import VARIABLE
from latentuq.prior.model_file import save_prior
from latentuq.web.tasks import ReadImage
from latentuq.web.worker import Worker


@pytest.fixture
def worker(tmp_path, tiny_prior, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(2**20))
    save_prior(tmp_path / "tiny.safetensors", tiny_prior)
    return Worker(None, {"tiny": str(tmp_path / "tiny.safetensors")})


def read(worker, content, suffix=".png", resize="pad", invert=False):
    return worker.do(ReadImage("tiny", suffix, content, resize, invert))


def png(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def bomb():
    """A PNG of 60,000 by 60,000 pixels, all black, in a few bytes."""

    def chunk(kind, content):
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(10_000))
    start = b"\x89PNG\r\n\x1a\n"
    return start + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def archive(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("image.npy", content)
    return buffer.getvalue()


HUGE = npy(np.zeros(1)).replace(b"(1,)", b"(99999, 99999)")
HOSTILE = {
    "a bomb": (".png", bomb()),
    "nothing": (".png", b""),
    "half a png": (".png", png(np.zeros((60, 80), np.uint8))[:60]),
    "another kind": (".png", b"GIF89a" + bytes(100)),
    "a script": (".png", b"<svg onload=alert(1)>"),
    "objects": (".npy", npy(np.array([{}], object))),
    "a huge header": (".npy", HUGE),
    "text": (".npy", npy(np.array(["a"]))),
    "infinite": (".npy", npy(np.full((6, 8), np.inf))),
    "missing": (".npy", npy(np.full((6, 8), np.nan))),
    "complex": (".npy", npy(np.zeros((6, 8), complex))),
    "five axes": (".npy", npy(np.zeros((1, 2, 3, 4, 5)))),
    "empty": (".npy", npy(np.zeros((0, 8)))),
    "an archive of zeros": (".npz", archive(npy(np.zeros((3000, 3000))))),
    "no archive": (".npz", b"PK\x03\x04" + bytes(50)),
    "no FITS": (".fits", b"SIMPLE  =" + bytes(2880)),
    "gzip of nothing": (".fits.gz", b"\x1f\x8b" + bytes(20)),
    "a TIFF that is none": (".tif", b"II*\x00" + bytes(8)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_images_are_a_sentence_without_our_folders(worker, name):
    suffix, content = HOSTILE[name]
    with pytest.raises(UserError) as error:
        read(worker, content, suffix)
    assert "/tmp" not in str(error.value)
    assert str(error.value).endswith((".", "it."))


def test_images_come_to_the_size_and_the_scale_of_the_model(worker):
    image = np.zeros((12, 16), np.uint8)
    image[:, 8:] = 255
    values = read(worker, png(image))
    assert values.shape == (6, 8)
    np.testing.assert_allclose(values[:, [0, 7]], [[0, 1]] * 6, atol=1e-6)
    inverted = read(worker, png(image), invert=True)
    np.testing.assert_allclose(inverted, 1 - values, atol=1e-6)
    padded = read(worker, png(image[:, :12]))
    assert np.isnan(padded).any()
    assert not np.isnan(read(worker, png(image[:, :12]), resize="crop")).any()


def test_a_model_is_described_with_images(worker):
    view, images = worker.describe("tiny")
    assert (view.name, view.height, view.width, view.dim) == ("tiny", 6, 8, 2)
    assert 0 < len(images) == len(view.examples) <= 40
    assert all(each.shape == (6, 8) for each in images)
