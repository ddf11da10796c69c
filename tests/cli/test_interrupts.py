import gc
import signal
import sys
import time

import pytest

from latentuq.cli.interrupts import insisting


class Destructor:
    """Is interrupted where Python ignores exceptions."""

    def __init__(self, number):
        self.number = number

    def __del__(self):
        signal.raise_signal(self.number)


def interrupt_a_collection(number):
    def callback(phase, _):
        gc.callbacks.remove(callback)
        signal.raise_signal(number)

    gc.callbacks.append(callback)
    gc.collect()


def work(swallow, number, finished):
    with insisting():
        swallow(number)
        time.sleep(5)
        finished.append(True)


@pytest.fixture(autouse=True)
def terminated():
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("swallow", [Destructor, interrupt_a_collection])
@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)],
)
def test_a_swallowed_interrupt_comes_again(swallow, number, expected):
    finished, before = [], sys.unraisablehook
    with pytest.raises(expected):
        work(swallow, number, finished)
    assert not finished
    assert sys.unraisablehook is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_other_ignored_errors_stay_ignored(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: seen.append(each.exc_type))

    class Careless:
        def __del__(self):
            raise ValueError

    with insisting():
        Careless()
    assert seen == [ValueError]
