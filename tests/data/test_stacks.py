import gzip
import math
import resource
import shutil
import warnings

import numpy as np
import pytest
import xarray
import zarr
from astropy.io import fits
from hypothesis import given
from PIL import Image

from latentuq.core.errors import UserError
from latentuq.core.reading import VARIABLE
from latentuq.data.stacks import open_stack, stack_of
from test_readers import examples, mutations, reads_or_explains

BYTES = np.random.default_rng(3).integers(0, 256, (11, 5, 7), np.uint8)
FLOATS = np.random.default_rng(4).normal(size=(11, 5, 7)).astype(np.float32)
FLOATS[2, 1, 3] = np.nan


def write_fits(path, array):
    fits.PrimaryHDU(array).writeto(path)


def write_tiles(path, array):
    # Without a quantum, floats are compressed without loss.
    unit = fits.CompImageHDU(array, compression_type="GZIP_1", quantize_level=0)
    fits.HDUList([fits.PrimaryHDU(), unit]).writeto(path)


def write_idx(path, array):
    code = {"uint8": 0x08, "float32": 0x0D}[str(array.dtype)]
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    values = array.astype(array.dtype.newbyteorder(">")).tobytes()
    content = bytes([0, 0, code, array.ndim]) + sizes + values
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_zarr(path, array, **options):
    zarr.create_array(path, data=array, chunks=(4, *array.shape[1:]), **options)


def write_group(path, array):
    group = zarr.open_group(path, mode="w")
    group["deep/flux"] = array
    group["labels"] = np.arange(len(array))


def write_netcdf(path, array):
    dims = ("n", "height", "width")[: array.ndim]
    times = ("n", np.arange(len(array)), {"units": "days since nonsense"})
    data = xarray.Dataset({"flux": (dims, array), "time": times}, {"n": np.arange(len(array))})
    data.to_netcdf(path, engine="h5netcdf")


def write_folder(path, array):
    path.mkdir()
    for number in reversed(range(len(array))):
        Image.fromarray(array[number]).save(path / f"{number:03}.tif")


def write_pages(path, array):
    pages = [Image.fromarray(image) for image in array]
    pages[0].save(path, save_all=True, append_images=pages[1:])


# What each kind of stack is called, and how it is written.
KINDS = {
    "a.npy": np.save,
    "big-endian.npy": lambda path, array: np.save(path, array.astype(array.dtype.newbyteorder())),
    "fortran.npy": lambda path, array: np.save(path, np.asfortranarray(array)),
    "only.npz": lambda path, array: np.savez(path, anything=array),
    "usual.npz": lambda path, array: np.savez_compressed(path, x_train=array, x_test=array),
    "chosen.npz[b]": lambda path, array: np.savez(path, a=array, b=array, images=array),
    "a-ubyte": write_idx,
    "a.idx.gz": write_idx,
    "a.zarr": write_zarr,
    "v2.zarr": lambda path, array: write_zarr(path, array, zarr_format=2),
    "shards.zarr": lambda path, array: write_zarr(path, array, shards=(8, *array.shape[1:])),
    "group.zarr": write_group,
    "group.zarr[deep/flux]": write_group,
    "a.nc": write_netcdf,
    "a.h5netcdf[flux]": write_netcdf,
    "a.fits": write_fits,
    "a.fits.gz": write_fits,
    "tiles.fits": write_tiles,
    "tiles.fit[1]": write_tiles,
    "folder": write_folder,
    "pages.tif": write_pages,
}


def make(folder, name, array):
    KINDS[name](folder / name.partition("[")[0], array)
    return folder / name


@pytest.mark.parametrize("array", [BYTES, FLOATS], ids=["uint8", "float32"])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_gives_the_images_of_its_file(tmp_path, name, array):
    stack = open_stack(make(tmp_path, name, array))
    assert len(stack) == 11
    assert (stack.shape, stack.dtype) == ((5, 7), array.dtype)
    assert stack.dtype.isnative
    for index in (0, 2, 10, -1, np.int64(4)):
        assert stack[index].dtype == array.dtype
        assert stack[index].dtype.isnative
        assert np.array_equal(stack[index], array[index], equal_nan=array.dtype.kind == "f")
    with pytest.raises(IndexError):
        stack[11]
    assert len(list(stack)) == 11
    assert np.array_equal(stack.read(3, 9), array[3:9])
    assert np.array_equal(stack.read(9, 99), array[9:])
    assert stack.read(5, 5).shape == (0, 5, 7)
    image = stack.read(0, 1)
    image[...] = 0  # It belongs to the caller.
    assert np.array_equal(stack[0], array[0])


@pytest.mark.parametrize("name", KINDS)
def test_images_are_called_by_their_file_and_number(tmp_path, name):
    stack = open_stack(str(make(tmp_path, name, BYTES)))
    assert stack.name(3) == ("003.tif" if name == "folder" else f"{name}[3]")
    assert stack.name(-1) == stack.name(10)


@pytest.mark.parametrize("name", KINDS)
def test_the_checksum_is_that_of_the_values(tmp_path, name):
    for place, value in (("first", 1), ("changed", 2)):
        array = FLOATS.copy()
        array[7, 0, 0] = value
        (tmp_path / place).mkdir()
        make(tmp_path / place, name, array)
    file = name.partition("[")[0]
    (tmp_path / "copy").mkdir()
    old, new = tmp_path / "first" / file, tmp_path / "copy" / f"copied-{file}"
    (shutil.copytree if old.is_dir() else shutil.copy)(old, new)
    first = open_stack(tmp_path / "first" / name).checksum()
    assert first == open_stack(tmp_path / "copy" / f"copied-{name}").checksum()
    assert first != open_stack(tmp_path / "changed" / name).checksum()


def test_equal_arrays_have_one_checksum_whatever_holds_them(tmp_path, monkeypatch):
    expected = stack_of(FLOATS, "an array").checksum()
    names = set(KINDS) - {"folder", "pages.tif"}
    stacks = []
    for number, name in enumerate(sorted(names)):
        (tmp_path / str(number)).mkdir()
        stacks.append(open_stack(make(tmp_path / str(number), name, FLOATS)))
    assert {stack.checksum() for stack in stacks} == {expected}
    monkeypatch.setattr("latentuq.data.stacks._BLOCK_BYTES", 300)  # Two images at a time.
    assert {stack.checksum() for stack in stacks} == {expected}
    assert stack_of(FLOATS.reshape(11, 7, 5), "an array").checksum() != expected
    assert stack_of(FLOATS.view(np.int32), "an array").checksum() != expected


def test_the_checksum_of_a_folder_knows_names(tmp_path):
    write_folder(tmp_path / "a", BYTES)
    before = open_stack(tmp_path / "a").checksum()
    (tmp_path / "a" / "003.tif").rename(tmp_path / "a" / "0031.tif")
    assert open_stack(tmp_path / "a").checksum() != before


def test_signals_and_colour_keep_their_shape(tmp_path):
    np.save(tmp_path / "signals.npy", FLOATS.reshape(11, 35))
    assert open_stack(tmp_path / "signals.npy").shape == (35,)
    np.save(tmp_path / "colour.npy", np.zeros((4, 5, 6, 3), np.uint8))
    assert open_stack(tmp_path / "colour.npy").shape == (5, 6, 3)
    fits.PrimaryHDU(np.zeros((4, 5, 6, 3), np.float32)).writeto(tmp_path / "colour.fits")
    assert open_stack(tmp_path / "colour.fits").shape == (5, 6, 3)


def test_pictures_in_colour_are_reduced_unless_channels_are_wanted(tmp_path):
    colour = np.stack([BYTES, BYTES.T.reshape(BYTES.shape), BYTES], -1)
    (tmp_path / "photos").mkdir()
    for number, image in enumerate(colour):
        Image.fromarray(image).save(tmp_path / "photos" / f"{number:02}.png")
    write_pages(tmp_path / "pages.tif", colour)
    for name in ("photos", "pages.tif"):
        with pytest.warns(UserWarning, match="reduced to grey"):
            assert open_stack(tmp_path / name).shape == (5, 7)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            stack = open_stack(tmp_path / name, channels=True)
            assert (len(stack), stack.shape) == (11, (5, 7, 3))
            assert np.array_equal(stack.read(0, 11), colour)
    assert open_stack(tmp_path / "photos", channels=True).dtype == np.uint8


def test_a_folder_holds_images_of_any_size_and_damaged_ones(tmp_path):
    write_folder(tmp_path / "a", BYTES)
    (tmp_path / "a" / "000.tif").write_text("text")
    (tmp_path / "a" / "004.tif").write_text("text")
    Image.fromarray(BYTES[6, :3]).save(tmp_path / "a" / "006.tif")
    Image.fromarray(FLOATS[8]).save(tmp_path / "a" / "008.tif")
    (tmp_path / "a" / "notes.txt").write_text("text")
    stack = open_stack(tmp_path / "a")
    assert (len(stack), stack.shape, stack.dtype) == (11, (5, 7), np.uint8)
    assert stack[6].shape == (3, 7)
    assert np.array_equal(stack.read(1, 4), BYTES[1:4])
    assert stack.read(6, 7).shape == (1, 3, 7)
    for wrong, reason in (
        (lambda: stack[0], r"Cannot read .*000\.tif as an image"),
        (lambda: stack.read(3, 6), r"Cannot read .*004\.tif as an image"),
        (lambda: stack.read(5, 7), r"006\.tif holds 3 x 7 uint8 .* 5 x 7 uint8 .*one by one"),
        (lambda: stack.read(7, 9), r"008\.tif holds 5 x 7 float32 .* 5 x 7 uint8"),
    ):
        with pytest.raises(UserError, match=reason):
            wrong()
    assert len(stack.checksum()) == 64
    (tmp_path / "a" / "009.tif").unlink()
    with pytest.raises(UserError, match=r"009\.tif"):
        stack.checksum()


def test_a_folder_without_a_readable_image_says_why(tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("1.png", "2.png"):
        (tmp_path / "a" / name).write_text("text")
    with pytest.raises(UserError, match=r"Cannot read .*1\.png as an image"):
        open_stack(tmp_path / "a")


def test_a_tiff_of_one_page_is_a_stack_of_one(tmp_path):
    Image.fromarray(BYTES[0]).save(tmp_path / "a.tiff")
    stack = open_stack(tmp_path / "a.tiff")
    assert np.array_equal(stack.read(0, 5), BYTES[:1])
    assert stack.name(0) == "a.tiff"


def test_large_arrays_are_opened_and_read_without_being_loaded(tmp_path):
    shape = (1 << 20, 32, 32)  # 4 GB, of which the disk holds hardly anything.
    np.lib.format.open_memmap(tmp_path / "a.npy", "w+", np.float32, shape)[77, 3, 4] = 5
    zarr.create_array(tmp_path / "a.zarr", shape=shape, chunks=(64, 32, 32), dtype="f4")[77] = 5
    with (tmp_path / "a.fits").open("wb") as file:
        header = fits.PrimaryHDU(np.zeros((1, 32, 32), np.float32)).header
        header["NAXIS3"] = shape[0]
        file.write(header.tostring().encode())
        # A whole number of blocks of 2880 bytes.
        file.truncate(file.tell() + 2880 * math.ceil(2**32 / 2880))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, value in (("a.npy", 5), ("a.zarr", 5), ("a.fits", 0)):
        stack = open_stack(tmp_path / name)
        assert len(stack) == shape[0]
        assert stack[77][3, 4] == value
        assert not stack.read(1000, 1100).any()
        assert not stack[-1].any()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_no_more_is_read_at_once_than_memory_is_allowed(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", FLOATS)
    write_zarr(tmp_path / "a.zarr", FLOATS)
    write_folder(tmp_path / "folder", FLOATS)
    monkeypatch.setenv(VARIABLE, "280")  # An image at 8 bytes a pixel, or eight times that.
    for name in ("a.npy", "a.zarr", "folder"):
        stack = open_stack(tmp_path / name)
        assert stack.read(2, 11).shape == (9, 5, 7)
        assert len(stack.checksum()) == 64
    monkeypatch.setenv(VARIABLE, "140")
    stack = open_stack(tmp_path / "a.npy")
    assert stack.read(0, 8).shape == (8, 5, 7)
    with pytest.raises(UserError, match=r"a\.npy takes 1\.3 kB .*--max-bytes"):
        stack.read(0, 9)
    monkeypatch.setenv(VARIABLE, "139")
    with pytest.raises(UserError, match=r"A piece of .*a\.zarr takes 1\.1 kB .*--max-bytes"):
        open_stack(tmp_path / "a.zarr")
    with pytest.raises(UserError, match=r"An image of .*a\.npy takes 140 bytes .*--max-bytes"):
        open_stack(tmp_path / "a.npy")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.zarr", "a.nc", "a-ubyte"])
def test_arrays_that_are_not_images_are_refused(tmp_path, name):
    writers = {**KINDS, "a.npz": KINDS["only.npz"], "a.zarr": write_group}
    for number, (array, reason) in enumerate(
        (
            (FLOATS[:0], r"shape \(0, 5, 7\)"),
            (FLOATS.reshape(11, 5, 7, 1, 1), r"shape \(11, 5, 7, 1, 1\)"),
            (FLOATS[0, 0], r"shape \(7,\) where \(n, height, width\)|holds no array of images"),
        )
    ):
        if name == "a.nc" and array.ndim == 5:
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        writers[name](folder / name, array)
        with pytest.raises(UserError, match=reason) as caught:
            open_stack(folder / name)
        assert name in str(caught.value)


def test_what_is_no_stack_says_what_is(tmp_path):
    Image.fromarray(BYTES[0]).save(tmp_path / "a.png")
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "object.npy", np.array([[None]]), allow_pickle=True)
    np.save(tmp_path / "text.npy", np.array([["a"]]))
    np.save(tmp_path / "a.npy", BYTES)
    write_folder(tmp_path / "folder", BYTES)
    for name, reason in (
        ("missing.npy", "There is no file"),
        ("missing.nc[flux]", r"There is no file .*missing\.nc\."),
        ("a.png", "does not hold many images: give a folder of images, a Zarr store"),
        ("empty", "holds no .png"),
        ("object.npy", "Cannot read .* as a NumPy array: .*Python objects"),
        ("text.npy", "not real numbers"),
        ("a.npy[0]", r"leave out \[0\]"),
        ("folder[0]", r"leave out \[0\]"),
    ):
        with pytest.raises(UserError, match=reason) as caught:
            open_stack(tmp_path / name)
        assert name.partition("[")[0] in str(caught.value)
    with pytest.raises(UserError, match="A path is needed"):
        open_stack(5)  # pyright: ignore[reportArgumentType]


def read_some(path):
    stack = open_stack(path)
    assert len(stack)
    assert stack.read(0, 2).shape[1:] == stack.shape
    assert stack[len(stack) - 1].shape == stack.shape
    stack.name(0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(set(KINDS) - {"folder"}))
def test_a_damaged_file_is_read_or_explained(tmp_path, monkeypatch, name):
    monkeypatch.setenv(VARIABLE, str(2**24))
    path = make(tmp_path, name, FLOATS)
    read_some(path)
    root = tmp_path / name.partition("[")[0]
    files = [root] if root.is_file() else [each for each in root.rglob("*") if each.is_file()]
    kinds = {file.name: file for file in files}  # One chunk is as good as another.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for file in kinds.values():
        content = file.read_bytes()
        reads_damaged_copies(file, content, path)
        file.write_bytes(content)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 250_000  # kB


def reads_damaged_copies(file, content, path):
    @examples(60)
    @given(mutations(content))
    def check(damaged):
        file.write_bytes(damaged)
        reads_or_explains(read_some, path)

    check()
