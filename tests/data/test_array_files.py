import builtins
import json
import os
import pickle

import numpy as np
import pytest
import xarray
import zarr
from astropy.io import fits

from latentuq.core.errors import UserError
from latentuq.data.stacks import open_stack

FLOATS = np.random.default_rng(4).normal(size=(11, 5, 7)).astype(np.float32)


def write_npz(path, **arrays):
    np.savez(path, **arrays)


def write_zarr(path, **arrays):
    group = zarr.open_group(path, mode="w")
    for name, array in arrays.items():
        group[name] = array


def write_netcdf(path, **arrays):
    variables = {
        name: ([f"{name}{axis}" for axis in range(array.ndim)], array)
        for name, array in arrays.items()
    }
    xarray.Dataset(variables).to_netcdf(path, engine="h5netcdf")


WRITERS = {"a.npz": write_npz, "a.zarr": write_zarr, "a.nc": write_netcdf}


@pytest.mark.parametrize("name", WRITERS)
def test_one_of_several_arrays_is_chosen_by_its_name(tmp_path, name):
    path, write = tmp_path / name, WRITERS[name]
    write(path, flux=FLOATS, error=FLOATS + 1)
    assert np.array_equal(open_stack(f"{path}[error]")[3], FLOATS[3] + 1)
    assert open_stack(f"{path}[error]").name(3) == f"{name}[error][3]"
    for wrong in (path, f"{path}[nothing]", f"{path}[]"):
        with pytest.raises(UserError, match=rf"{name} holds .*: choose one, as in {name}\[\w+\]"):
            open_stack(wrong)


@pytest.mark.parametrize("name", WRITERS)
def test_an_array_with_a_usual_name_is_meant_unless_there_are_two(tmp_path, name):
    path, write = tmp_path / name, WRITERS[name]
    write(path, y=FLOATS, other=FLOATS + 1)
    assert np.array_equal(open_stack(path)[3], FLOATS[3])
    write(path, y=FLOATS, images=FLOATS + 1)
    with pytest.raises(UserError, match="choose one"):
        open_stack(path)


@pytest.mark.parametrize("name", ["a.zarr", "a.nc"])
def test_arrays_of_one_axis_are_not_taken_for_images(tmp_path, name):
    WRITERS[name](tmp_path / name, flux=FLOATS, labels=np.arange(11))
    assert open_stack(tmp_path / name).shape == (5, 7)
    WRITERS[name](tmp_path / f"b{name}", labels=np.arange(11))
    with pytest.raises(UserError, match="holds no array of images"):
        open_stack(tmp_path / f"b{name}")


def test_netcdf_is_decoded_as_its_attributes_say(tmp_path):
    array = FLOATS.copy()
    array[1, 2, 3] = np.nan
    packed = {"dtype": "int16", "scale_factor": 0.001, "_FillValue": -1, "chunksizes": (4, 5, 7)}
    data = xarray.Dataset({"flux": (("n", "y", "x"), array)})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"flux": packed})
    stack = open_stack(tmp_path / "a.nc")
    assert stack.dtype.kind == "f"
    assert stack.dtype == stack[0].dtype
    assert stack.together == 4
    # Half of the scale factor, and rounding near 4 in float32.
    assert stack.read(0, 11) == pytest.approx(array, abs=0.0005 + 1e-6, nan_ok=True)


def test_netcdf_of_the_old_format_is_explained(tmp_path):
    xarray.Dataset({"flux": (("n", "y", "x"), FLOATS)}).to_netcdf(tmp_path / "a.nc", engine="scipy")
    with pytest.raises(UserError, match=r"Cannot read .*a\.nc as a NetCDF file"):
        open_stack(tmp_path / "a.nc")


def test_fits_values_are_scaled_and_blanks_are_missing(tmp_path):
    words = np.arange(3 * 4 * 5, dtype=np.uint16).reshape(3, 4, 5) + np.uint16(40000)
    units = [
        fits.PrimaryHDU(words),
        fits.ImageHDU(words.astype(np.int16), name="SCI"),
        fits.CompImageHDU(words, name="TILES", tile_shape=(2, 4, 5)),
        fits.ImageHDU(words[0]),
    ]
    units[1].header["BLANK"] = int(words.astype(np.int16)[1, 2, 3])
    fits.HDUList(units).writeto(tmp_path / "a.fits")
    for brackets in ("", "[0]", "[tiles]"):
        stack = open_stack(f"{tmp_path / 'a.fits'}{brackets}")
        assert stack.dtype == np.uint16
        assert np.array_equal(stack.read(0, 3), words)
    assert stack.together == 2
    blanks = open_stack(f"{tmp_path / 'a.fits'}[SCI]")
    assert blanks.dtype == blanks[0].dtype
    assert np.isnan(blanks[1][2, 3])
    assert not np.isnan(blanks[0]).any()
    for brackets, reason in (("[3]", r"shape \(4, 5\)"), ("[NO]", "no image extension 'NO'")):
        with pytest.raises(UserError, match=reason):
            open_stack(f"{tmp_path / 'a.fits'}{brackets}")


@pytest.mark.filterwarnings("ignore")
def test_a_file_that_was_cut_off_is_refused(tmp_path):
    fits.PrimaryHDU(np.tile(FLOATS, (20, 1, 1))).writeto(tmp_path / "a.fits")
    np.save(tmp_path / "a.npy", FLOATS)
    for name in ("a.fits", "a.npy"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(UserError, match=rf"Cannot read .*{name} as"):
            open_stack(tmp_path / name)


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("dtype", ["<f4", "|O"])
@pytest.mark.parametrize("codecs", [["pickle"], ["vlen-utf8", "pickle"], ["zlib", "pickle"]])
def test_zarr_never_unpickles(tmp_path, dtype, codecs):
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(2, 3), dtype="f4", zarr_format=2, compressors=None
    )
    array[...] = 1
    meta = json.loads((tmp_path / "a.zarr" / ".zarray").read_text())
    (tmp_path / "a.zarr" / "0.0").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    filters = [{"id": codec} for codec in codecs]
    for change in ({"filters": filters}, {"compressor": filters[-1]}):
        (tmp_path / "a.zarr" / ".zarray").write_text(json.dumps(meta | {"dtype": dtype} | change))
        with pytest.raises(UserError, match=r"a\.zarr"):
            open_stack(tmp_path / "a.zarr")[0]
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("package", "name", "way"),
    [("zarr", "a.zarr", r"latentuq\[batch\]"), ("astropy", "a.fits", r"latentuq\[fits\]")],
)
def test_packages_that_are_missing_are_named(tmp_path, monkeypatch, package, name, way):
    fits.PrimaryHDU(FLOATS).writeto(tmp_path / "a.fits")
    write_zarr(tmp_path / "a.zarr", images=FLOATS)
    real = builtins.__import__

    def without(module, *rest, **named):
        if module.partition(".")[0] == package:
            raise ImportError(module)
        return real(module, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=rf"{name} needs {package}: .*pip install {way}"):
        open_stack(tmp_path / name)
