import gzip
import tarfile
import tracemalloc
import zipfile

import pytest

from data_archives import FILES, tar_bytes, write_deb, write_folder, write_tarball, write_wheel
from latentuq.core.errors import UserError
from latentuq.core.reading import VARIABLE
from latentuq.data import archives
from latentuq.data.archives import idx_name, read_archive


def test_every_kind_of_archive_gives_the_same_files(tmp_path):
    zipped = {name + ".gz": gzip.compress(content) for name, content in FILES.items()}
    plain_zip = tmp_path / "archive.zip"
    with zipfile.ZipFile(plain_zip, "w") as archive:
        for name, content in FILES.items():
            archive.writestr("deep/" + name.replace("-idx", ".idx"), content)
    paths = [
        write_folder(tmp_path / "plain"),
        write_folder(tmp_path / "zipped", zipped),
        write_wheel(tmp_path / "a.whl"),
        write_tarball(tmp_path / "a.tgz"),
        write_deb(tmp_path / "a.deb", zipped),
        plain_zip,
    ]
    for path in paths:
        assert dict(read_archive(path)) == FILES, path


def test_a_table_longer_than_one_chunk_keeps_its_order(tmp_path, monkeypatch):
    path = write_wheel(tmp_path / "a.whl")
    for rows in (1, 5, 11, 12):
        monkeypatch.setattr(archives, "_CSV_ROWS_AT_A_TIME", rows)
        assert dict(read_archive(path)) == FILES


def test_progress_of_a_table_ends_at_its_size(tmp_path):
    seen = []
    list(read_archive(write_wheel(tmp_path / "a.whl"), lambda *report: seen.append(report)))
    tables = [report for report in seen if "csv" in report[0]]
    assert [stage for stage, _, _ in tables] == [
        "reading mnist_test.csv",
        "reading mnist_train.csv",
    ]
    assert all(done == total for _, done, total in tables)


@pytest.mark.parametrize("name", ["a.whl", "a.tgz", "a.deb"])
def test_truncated_archives_are_named(tmp_path, name):
    write = {"a.whl": write_wheel, "a.tgz": write_tarball, "a.deb": write_deb}[name]
    path = write(tmp_path / name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        list(read_archive(path))


def test_a_table_that_is_not_one_is_named(tmp_path):
    for text, reason in (("label\nx,y\n", "not a table"), ("l\n1,2,3\n", "3 columns"), ("l\n", "")):
        with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
            archive.writestr("mnist_train.csv", text)
        with pytest.raises(UserError, match=rf"mnist_train\.csv.*{reason}"):
            list(read_archive(tmp_path / "a.whl"))


def test_what_cannot_be_read_says_why(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "text.deb").write_text("x")
    (tmp_path / "text.tar").write_text("x")
    (tmp_path / "size.deb").write_bytes(b"!<arch>\n" + b"x" * 60)
    (tmp_path / "empty.deb").write_bytes(b"!<arch>\n")
    write_deb(tmp_path / "new.deb", member="data.tar.zst")
    for name, reason in {
        "missing": "no file or folder",
        "a.txt": "not a folder",
        "text.deb": "not a Debian package",
        "text.tar": r"^Cannot read .*text\.tar as an archive: [^\n]*$",
        "size.deb": r"Cannot read .*size\.deb",
        "empty.deb": "without data",
        "new.deb": "zstd",
    }.items():
        with pytest.raises(UserError, match=reason):
            list(read_archive(tmp_path / name))


def test_names_of_other_files_are_ignored():
    assert idx_name("x/train-images.idx3-ubyte.gz") == "train-images-idx3-ubyte"
    assert idx_name("emnist-train-images-idx3-ubyte") is None
    assert idx_name("readme.md") is None


def test_links_in_a_tar_lead_nowhere(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, kind, target in (
            ("train-images-idx3-ubyte", tarfile.SYMTYPE, "train-images-idx3-ubyte"),
            ("t10k-images-idx3-ubyte", tarfile.LNKTYPE, "missing"),
            ("train-labels-idx1-ubyte", tarfile.SYMTYPE, "/etc/passwd"),
            ("t10k-labels-idx1-ubyte", tarfile.CHRTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)
    assert list(read_archive(tmp_path / "a.tar")) == []


@pytest.mark.parametrize("size", ["-60", "9999999999", "-1"])
def test_an_impossible_length_in_a_debian_package_is_named(tmp_path, size):
    header = f"{'debian-binary':<16}{0:<12}{0:<6}{0:<6}{100644:<8}{size:<10}`\n"
    (tmp_path / "a.deb").write_bytes(b"!<arch>\n" + header.encode() + b"2.0\n")
    with pytest.raises(UserError, match=rf"damaged: its member debian-binary has {size} bytes"):
        list(read_archive(tmp_path / "a.deb"))


def test_encrypted_and_exotic_zips_and_tables_of_other_letters_are_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "whole.zip", "w") as archive:
        archive.writestr("train-labels-idx1-ubyte", FILES["train-labels-idx1-ubyte"])
    content = bytearray((tmp_path / "whole.zip").read_bytes())
    # The flags and the method, in the header of the member and in the directory.
    for name, offset, value in (("locked.zip", 0, 1), ("exotic.zip", 2, 99)):
        changed = content.copy()
        changed[6 + offset] = value
        changed[content.index(b"PK\x01\x02") + 8 + offset] = value
        (tmp_path / name).write_bytes(changed)
    with zipfile.ZipFile(tmp_path / "letters.zip", "w") as archive:
        archive.writestr("mnist_train.csv", "label\nzwölf,ä\n".encode("latin-1"))
    for name, words in (("locked", "encrypted"), ("exotic", "compression"), ("letters", "table")):
        with pytest.raises(UserError, match=words):
            list(read_archive(tmp_path / f"{name}.zip"))


def test_archives_that_unpack_to_too_much_are_refused_while_unpacking(tmp_path, monkeypatch):
    name, zeros = "train-images-idx3-ubyte", bytes(2**25)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, zeros)
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr(f"{name}.gz", gzip.compress(zeros))
    (tmp_path / "a.tgz").write_bytes(tar_bytes({name: zeros}, "", "w:gz"))
    # What lies before the wanted files counts too, and so does a name that long.
    (tmp_path / "b.tgz").write_bytes(tar_bytes({"index.js": zeros, **FILES}, "", "w:gz"))
    (tmp_path / "c.tgz").write_bytes(tar_bytes({"x" * 2**25: b""}, "", "w:gz"))
    write_folder(tmp_path / "folder", {f"{name}.gz": gzip.compress(zeros)})
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 6
    monkeypatch.setenv(VARIABLE, str(2**20))
    tracemalloc.start()
    for path in paths:
        with pytest.raises(UserError, match=r"--max-bytes"):
            list(read_archive(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * 2**23  # Eight times the limit, in pieces that are put together.
    monkeypatch.setenv(VARIABLE, str(2**23))
    assert dict(read_archive(tmp_path / "b.tgz")) == FILES
