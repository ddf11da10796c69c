"""Jobs of one command in processes of their own."""

import multiprocessing
import os

import pytest

from latentuq.cli.parallel import in_processes
from latentuq.core.errors import UserError


def double(number, say):
    say(f"{number} is about to be doubled.")
    return 2 * number


def refuse(number, say):
    if number == 2:
        raise UserError("Two is refused.")
    while True:  # Only an end from outside stops this one.
        pass


def die(number, say):
    os._exit(1)


def test_results_come_in_order_and_words_come_through():
    heard = []
    assert in_processes(double, [3, 1, 2], heard.append) == [6, 2, 4]
    assert sorted(heard) == [f"{number} is about to be doubled." for number in (1, 2, 3)]


def test_the_first_error_ends_them_all():
    with pytest.raises(UserError, match="Two is refused"):
        in_processes(refuse, [1, 2], print)
    assert not multiprocessing.active_children()


def test_a_process_that_dies_is_an_error():
    with pytest.raises(UserError, match="without a result"):
        in_processes(die, [1], print)
