import pytest

from latentuq.core.cleaning import clean_now, cleaning


def test_a_block_is_cleaned_up_once_however_it_ends():
    done = []
    with cleaning(lambda: done.append("a")):
        assert not done
    with pytest.raises(KeyboardInterrupt), cleaning(lambda: done.append("b")):
        raise KeyboardInterrupt
    clean_now()
    assert done == ["a", "b"]


def test_open_blocks_are_cleaned_up_from_the_inside_out():
    done = []

    def fail():
        done.append("fails")
        raise OSError("disk")

    def work():
        with cleaning(lambda: done.append("outer")), cleaning(fail):
            with cleaning(lambda: done.append("inner")):
                clean_now()
            assert done == ["inner", "fails", "outer", "inner"]

    # One that fails does not keep the others from being called.
    with pytest.raises(OSError, match="disk"):
        work()
    assert done[4:] == ["fails", "outer"]
