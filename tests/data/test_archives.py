import gzip
import zipfile

import pytest

from data_archives import FILES, write_deb, write_folder, write_tarball, write_wheel
from latentuq.core.errors import UserError
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
