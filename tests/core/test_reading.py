import io

import pytest

from latentuq.core.errors import UserError
from latentuq.core.reading import (
    MOST_BYTES,
    VARIABLE,
    check_size,
    decoding,
    existing_file,
    read_limited,
    read_path,
    show_bytes,
)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("~nouser/x.png", "There is no file ~nouser/x.png"),
        ("a" * 300 + ".png", "aaa cannot be used: file name too long"),
        ("a\0b.png", "There is no file"),
        ("missing.png", "There is no file missing.png"),
    ],
)
def test_names_that_no_file_has_are_one_sentence(name, words):
    with pytest.raises(UserError, match=words) as caught:
        existing_file(name)
    assert len(str(caught.value)) < 150


def test_a_path_is_text_and_tilde_is_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_path("~/x.png") == tmp_path / "x.png"
    with pytest.raises(UserError, match="A path is needed, not 3"):
        read_path(3)


@pytest.mark.parametrize(
    "failure", [KeyError("x"), RecursionError("deep"), MemoryError(), EOFError("two\nlines. More.")]
)
def test_whatever_a_decoder_raises_becomes_one_sentence(failure):
    sentence = r"^Cannot read a\.png as an image: .+\.$"
    with pytest.raises(UserError, match=sentence) as caught, decoding("a.png", "an image"):
        raise failure
    assert "\n" not in str(caught.value)
    assert ". " not in str(caught.value)


def test_sizes_are_limited_and_the_limit_can_be_raised(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    check_size(MOST_BYTES, "a.png")
    check_size(8 * MOST_BYTES, "a set", many=True)
    with pytest.raises(UserError, match=rf"a\.png takes 1\.1 GB .*--max-bytes {MOST_BYTES + 1}`"):
        check_size(MOST_BYTES + 1, "a.png")
    with pytest.raises(UserError, match=rf"--max-bytes {MOST_BYTES + 1}`"):
        check_size(8 * MOST_BYTES + 1, "a set", many=True)
    monkeypatch.setenv(VARIABLE, str(MOST_BYTES + 1))
    check_size(MOST_BYTES + 1, "a.png")
    check_size(8 * MOST_BYTES + 8, "a set", many=True)
    monkeypatch.setenv(VARIABLE, "much")
    with pytest.raises(UserError, match="is a number of bytes, not 'much'"):
        check_size(1, "a.png")


def test_a_stream_is_read_up_to_the_limit_and_not_beyond(monkeypatch):
    monkeypatch.setenv(VARIABLE, str(3 * 2**20))
    content = bytes(3 * 2**20)
    assert read_limited(io.BytesIO(content), "a.gz") == content
    stream = io.BytesIO(bytes(9 * 2**20))
    with pytest.raises(UserError, match=r"a\.gz unpacks to more than the 3\.1 MB"):
        read_limited(stream, "a.gz")
    assert stream.tell() == 4 * 2**20


def test_bytes_are_shown_as_people_read_them():
    shown = {7: "7 bytes", 1500: "1.5 kB", 10**9: "1.0 GB", 317 * 10**9: "317 GB"}
    assert {size: show_bytes(size) for size in shown} == shown
    assert show_bytes(12 * 10**15) == "12,000 TB"
