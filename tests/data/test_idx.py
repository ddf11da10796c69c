import contextlib
import gzip
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from latentuq.core.errors import UserError
from latentuq.data.idx import format_idx, parse_idx, read_idx


@settings(max_examples=25, deadline=None)
@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=3, max_side=5)))
def test_format_then_parse_is_the_identity(values):
    assert np.array_equal(parse_idx(format_idx(values), "x"), values)


def test_layout_is_the_published_one():
    content = format_idx(np.array([[1, 2, 3]], np.uint8))
    assert content == bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3])


def test_parts_are_joined_and_words_have_their_sign():
    parts = [np.array([[1, -2]], np.int16), np.array([[300, 4], [5, 6]], np.int16)]
    content = format_idx(*parts)
    assert content[:12] == bytes([0, 0, 0x0B, 2, 0, 0, 0, 3, 0, 0, 0, 2])
    assert np.array_equal(parse_idx(content, "x"), np.concatenate(parts))
    with pytest.raises(UserError, match="not float64"):
        format_idx(np.zeros(3))


def test_wider_types_are_big_endian():
    content = bytes([0, 0, 0x0B, 1, 0, 0, 0, 2, 1, 0, 0, 2])
    values = parse_idx(content, "x")
    assert values.tolist() == [256, 2]
    assert values.dtype == np.int16


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=64))
def test_any_bytes_parse_or_give_one_sentence(content):
    # Any other exception fails the test.
    with contextlib.suppress(UserError):
        parse_idx(content, "thing")


def test_gzipped_and_plain_files_are_the_same(tmp_path):
    values = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    (tmp_path / "a-ubyte").write_bytes(format_idx(values))
    (tmp_path / "a-ubyte.gz").write_bytes(gzip.compress(format_idx(values)))
    assert np.array_equal(read_idx(tmp_path / "a-ubyte"), values)
    assert np.array_equal(read_idx(tmp_path / "a-ubyte.gz"), values)


def test_damaged_files_are_named(tmp_path):
    content = format_idx(np.zeros((3, 2, 2), np.uint8))
    cases = {
        "short-ubyte": (content[:-1], "announces 12 bytes"),
        "header-ubyte": (content[:7], "header is incomplete"),
        "text-ubyte": (b"hello there", "not an IDX file"),
        "short-ubyte.gz": (gzip.compress(content)[:-9], "as gzip"),
    }
    for name, (damaged, reason) in cases.items():
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(UserError, match=reason) as caught:
            read_idx(tmp_path / name)
        assert name in str(caught.value)


def test_a_header_of_a_hundred_axes_or_of_overflowing_sizes_is_named():
    axes = b"\0\0\x08" + bytes([100]) + struct.pack(">100I", *[1] * 100) + b"\x07"
    sizes = b"\0\0\x08\x03" + struct.pack(">3I", *[2**32 - 1] * 3)
    for content, words in ((axes, "Cannot read a as an IDX file"), (sizes, "a is damaged")):
        with pytest.raises(UserError, match=words):
            parse_idx(content, "a")
