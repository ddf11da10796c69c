import gzip
import hashlib

import numpy as np
import pytest
from PIL import Image

from data_archives import ARRAYS, FILES, write_folder
from latentuq.core.errors import UserError
from latentuq.core.reading import VARIABLE
from latentuq.data import image_sets
from latentuq.data.datasets import Dataset, load_dataset
from latentuq.data.image_sets import read_images
from latentuq.data.scaling import Scaling
from own_files import write_image

RNG = np.random.default_rng(2)
BYTES = RNG.integers(0, 256, (48, 5, 7), np.uint8)
UNIT = (BYTES / np.float32(255)).astype(np.float32)
WORDS = RNG.integers(100, 4000, (48, 5, 7), np.uint16)


def write_images(folder, images, suffix=".png"):
    folder.mkdir()
    # Written last to first: the order is that of the names.
    for number in reversed(range(len(images))):
        write_image(folder / f"{number:03d}{suffix}", images[number])
    return folder


def test_every_source_of_the_same_bytes_gives_the_same_set(tmp_path):
    np.save(tmp_path / "a.npy", BYTES)
    np.savez(tmp_path / "b.npz", BYTES)
    np.savez(tmp_path / "c.npz", train_images=BYTES, labels=np.arange(48))
    write_images(tmp_path / "png", BYTES)
    write_images(tmp_path / "tif", BYTES, ".tif")
    sets = [read_images(tmp_path / name) for name in ("a.npy", "b.npz", "c.npz", "png", "tif")]
    for images in sets:
        assert images.train == pytest.approx(UNIT, abs=1e-7)
        assert images.train.dtype == np.float32
        assert images.test is None
        assert images.scaling == Scaling(0.0, 255.0)
        assert images.checksum == sets[0].checksum
        assert not images.train.flags.writeable
    assert sets[0].source == str(tmp_path / "a.npy")


def test_checksum_is_that_of_type_shape_and_bytes(tmp_path):
    np.save(tmp_path / "a.npy", UNIT)
    expected = hashlib.sha256(b"<f4(48, 5, 7)" + UNIT.tobytes()).hexdigest()
    assert read_images(tmp_path / "a.npy").checksum == expected
    np.save(tmp_path / "b.npy", UNIT.reshape(48, 7, 5))
    assert read_images(tmp_path / "b.npy").checksum != expected


def test_scaling_comes_from_the_training_images_alone(tmp_path):
    train, test = WORDS, WORDS + np.uint16(1000)
    np.savez(tmp_path / "a.npz", x_train=train, x_test=test)
    images = read_images(tmp_path / "a.npz")
    low, high = float(train.min()), float(train.max())
    assert images.scaling == Scaling(low, high - low)
    assert images.train.min() == 0
    assert images.train.max() == 1
    assert images.test is not None
    assert images.test.max() > 1
    # Rounding of float32 near 1, in units of the 12-bit range.
    assert images.scaling.from_unit(images.train) == pytest.approx(train, abs=4000 * 1.2e-7)


def test_precision_of_16_bit_and_float_tiff_is_kept(tmp_path):
    floats = RNG.normal(size=(48, 4, 4)).astype(np.float32)
    for name, raw in (("words", WORDS), ("floats", floats)):
        images = read_images(write_images(tmp_path / name, raw, ".tif"))
        low, scale = images.scaling.offset, images.scaling.scale
        exact = (raw.astype(np.float64) - low) / scale
        assert images.train == pytest.approx(exact, abs=2.5e-7)


def test_idx_files_alone_and_in_a_folder(tmp_path):
    folder = write_folder(tmp_path / "idx")
    expected = ARRAYS["train-images-idx3-ubyte"] / 255
    alone = read_images(folder / "train-images-idx3-ubyte")
    assert alone.train == pytest.approx(expected, abs=1e-7)
    zipped = tmp_path / "train-images-idx3-ubyte.gz"
    zipped.write_bytes(gzip.compress(FILES["train-images-idx3-ubyte"]))
    assert read_images(zipped).checksum == alone.checksum
    both = read_images(folder)
    assert both.checksum == alone.checksum
    assert both.test is not None
    assert both.test == pytest.approx(ARRAYS["t10k-images-idx3-ubyte"] / 255, abs=1e-7)
    for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        (folder / name).unlink()
    pair = read_images(folder)
    assert (pair.checksum, pair.test) == (alone.checksum, None)
    with pytest.raises(UserError, match=r"labels-idx1-ubyte has shape \(48,\)"):
        read_images(folder / "train-labels-idx1-ubyte")


def test_named_datasets_keep_their_splits(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "idx")
    monkeypatch.setattr(image_sets, "load_dataset", lambda name: load_dataset(folder))
    images = read_images("fashion-mnist")
    assert images.source == "fashion-mnist"
    assert images.train.shape == (48, 3, 3)
    assert images.test is not None
    assert images.test.shape == (11, 3, 3)
    assert images.scaling == Scaling(0.0, 255.0)


def test_a_dataset_out_of_the_cache_says_how_to_fetch_it(tmp_path, monkeypatch):
    monkeypatch.setenv("LATENTUQ_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="run `latentuq data fetch mnist`"):
        read_images("mnist")


def test_folder_of_fits_images(tmp_path):
    from astropy.io import fits

    for number, image in enumerate(UNIT):
        fits.PrimaryHDU(image).writeto(tmp_path / f"{number:03d}.fits")
    images = read_images(tmp_path)
    assert np.array_equal(images.train, UNIT)
    assert images.scaling == Scaling(0.0, 1.0)


def test_one_note_for_a_folder_in_colour(tmp_path):
    for number in range(48):
        colour = np.stack([BYTES[number], BYTES[0], BYTES[1]], -1)
        Image.fromarray(colour).save(tmp_path / f"{number:03d}.png")
    with pytest.warns(UserWarning, match=r"000\.png has colour.*47 more") as notes:
        read_images(tmp_path)
    assert len(notes) == 1


def test_binary_bytes_are_noted(tmp_path):
    np.save(tmp_path / "a.npy", (BYTES > 127).astype(np.uint8))
    with pytest.warns(UserWarning, match="no value above 1"):
        read_images(tmp_path / "a.npy")


def test_the_first_image_that_differs_is_named(tmp_path):
    folder = write_images(tmp_path / "png", BYTES)
    write_image(folder / "007.png", BYTES[0, :4])
    with pytest.raises(UserError, match=r"007\.png is 4 x 7 pixels but 000\.png is 5 x 7"):
        read_images(folder)
    write_image(folder / "007.png", WORDS[0])
    with pytest.raises(UserError, match=r"007\.png holds uint16 values but 000\.png holds uint8"):
        read_images(folder)
    (folder / "007.png").write_text("text")
    with pytest.raises(UserError, match=r"Cannot read .*007\.png as an image"):
        read_images(folder)
    nan = np.full((5, 7), np.nan, np.float32)
    floats = write_images(tmp_path / "tif", [*UNIT, nan], ".tif")
    with pytest.raises(UserError, match=r"048\.tif holds NaN"):
        read_images(floats)


def test_hidden_and_other_files_in_a_folder_are_ignored(tmp_path):
    folder = write_images(tmp_path / "png", BYTES)
    (folder / "._000.png").write_bytes(b"what a file manager leaves")
    (folder / "notes.txt").write_text("x")
    assert len(read_images(folder).train) == 48


def test_every_wrong_array_is_named(tmp_path):
    nan = UNIT.copy()
    nan[4, 0, 0] = np.inf
    for name, array, reason in (
        ("flat", BYTES[0], r"shape \(5, 7\) where \(n, height, width\)"),
        ("channels", BYTES[..., None], r"shape \(48, 5, 7, 1\)"),
        ("empty", BYTES[:0], r"shape \(0, 5, 7\)"),
        ("inf", nan, "infinite values, first in image 4"),
        ("constant", np.ones((48, 5, 7)), "equal to 1"),
        ("text", np.array([["a"]]), "not real numbers"),
    ):
        np.save(tmp_path / f"{name}.npy", array)
        with pytest.raises(UserError, match=rf"{name}\.npy.*{reason}|{reason}.*{name}\.npy"):
            read_images(tmp_path / f"{name}.npy")
    np.save(tmp_path / "object.npy", np.array([None]), allow_pickle=True)
    with pytest.raises(UserError, match=r"object\.npy"):
        read_images(tmp_path / "object.npy")


def test_every_wrong_archive_is_named(tmp_path):
    for entries, reason in (
        ({"a": BYTES, "b": BYTES}, "entries a, b; exactly one should be named images or"),
        ({"images": BYTES, "x_train": BYTES}, "entries images, x_train"),
        ({}, r"entries \(none\)"),
        ({"images": BYTES, "test_images": BYTES[:, :4]}, "4 x 7 pixels but .* 5 x 7"),
        ({"images": BYTES, "test_images": UNIT}, "float32 values but .* uint8"),
        ({"images": BYTES, "test_images": BYTES[0]}, r"test entry .* shape \(5, 7\)"),
    ):
        np.savez(tmp_path / "a.npz", **entries)
        with pytest.raises(UserError, match=reason) as caught:
            read_images(tmp_path / "a.npz")
        assert "a.npz" in str(caught.value)


def test_what_is_no_source_of_images_says_what_is(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    for name, reason in (
        ("a.txt", r"not a dataset \(mnist, .* or galaxies\)"),
        ("empty", "holds no .png"),
        ("missing", "neither a dataset"),
    ):
        with pytest.raises(UserError, match=reason) as caught:
            read_images(tmp_path / name)
        assert name in str(caught.value)


def test_folders_of_photos_and_of_compressed_fits(tmp_path):
    from astropy.io import fits

    for name in ("webp", "jpg", "fits"):
        (tmp_path / name).mkdir()
    for number, image in enumerate(BYTES):
        Image.fromarray(image).save(tmp_path / "webp" / f"{number:03}.webp", lossless=True)
        Image.fromarray(image).save(tmp_path / "jpg" / f"{number:03}.JPG", quality=100)
        fits.PrimaryHDU(image).writeto(tmp_path / "fits" / f"{number:03}.fits.gz")
    for name, error in (("webp", 1e-7), ("fits", 1e-7), ("jpg", 4 / 255)):
        assert read_images(tmp_path / name).train == pytest.approx(UNIT, abs=error)


def test_sets_may_take_more_than_images_but_not_everything(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", BYTES)
    write_images(tmp_path / "folder", BYTES)
    # Eight times as much as one image, which takes 8 bytes per pixel.
    monkeypatch.setenv(VARIABLE, str(max(BYTES.nbytes // 8, 8 * BYTES[0].size)))
    for name in ("a.npz", "folder"):
        assert read_images(tmp_path / name).train == pytest.approx(UNIT, abs=1e-7)
    monkeypatch.setenv(VARIABLE, str(BYTES.nbytes // 8 - 1))
    with pytest.raises(UserError, match=r"arr_0 in .*a\.npz takes 1\.7 kB .*--max-bytes"):
        read_images(tmp_path / "a.npz")
    with monkeypatch.context() as patch:
        patch.setattr(image_sets, "read_image", lambda _: BYTES[0])
        with pytest.raises(UserError, match=r"The folder .* takes 1\.7 kB .*--max-bytes"):
            read_images(tmp_path / "folder")


def make_dataset(images, units):
    labels = np.zeros(len(images), np.uint8)
    return Dataset(images, labels, images[:3], labels[:3], units)


def test_named_sets_of_bytes_and_of_floats_have_their_own_units(monkeypatch):
    for images, units in ((BYTES, Scaling(0.0, 255.0)), (UNIT, Scaling(0.0, 1.0))):
        data = make_dataset(images, units)
        monkeypatch.setattr(image_sets, "load_dataset", lambda _, data=data: data)
        found = read_images("galaxies")
        assert np.array_equal(found.train, UNIT)
        assert found.scaling == units


def test_a_named_set_in_colour_is_refused_in_one_sentence(monkeypatch):
    data = make_dataset(np.zeros((4, 5, 5, 3), np.uint8), Scaling(0.0, 255.0))
    monkeypatch.setattr(image_sets, "load_dataset", lambda _: data)
    with pytest.raises(UserError, match=r"^cifar10 holds images in colour, which .* yet\.$"):
        read_images("cifar10")
