"""Figures that a second process draws are those that one process draws."""

import multiprocessing
import multiprocessing.context
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from latentuq.cli import drawing as module
from latentuq.cli.drawing import drawing
from latentuq.report.content import Component, Content, LatentView, ModeCard, Slice
from latentuq.report.figures import FIGURES
from latentuq.report.write import draw_here


@pytest.fixture(scope="module")
def content():
    rng = np.random.default_rng(0)
    image, images = rng.uniform(size=(4, 5)), rng.uniform(size=(3, 4, 5))
    steps = np.linspace(-3, 3, 5)
    return Content(
        data=image,
        map_image=image,
        mean=image,
        std=image,
        truth=None,
        comparison=None,
        cards=(ModeCard(image, 1.0, 0.1, 3.0, 1.0, True, image, images, 9),),
        rest=0.0,
        samples=images,
        replicates=images,
        components=(Component(0.5, image, image),),
        latent=LatentView(rng.normal(size=(9, 2)), np.zeros(9, int), np.zeros((1, 2)), False),
        search_values=rng.uniform(size=6),
        search_modes=np.zeros(6, int),
        slices=(Slice("widest axis", 1.0, steps, steps**2, steps**2),),
    )


@pytest.fixture(scope="module")
def expected(content, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    return draw_here(content, folder)(), read(folder)


def read(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("cores", [1, 2])
def test_two_processes_draw_what_one_draws(content, expected, tmp_path, monkeypatch, cores):
    monkeypatch.setattr(module, "available_cores", lambda: set(range(cores)))
    with drawing() as draw:
        assert len(multiprocessing.active_children()) == cores - 1
        assert draw(content, tmp_path)() == expected[0]
    assert read(tmp_path) == expected[1]
    assert expected[0].keys() == FIGURES.keys()
    assert not multiprocessing.active_children()


def test_what_a_dead_process_leaves_is_drawn_here(content, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "available_cores", lambda: {0, 1})
    with drawing() as draw:
        (process,) = multiprocessing.active_children()
        process.kill()
        process.join()
        assert draw(content, tmp_path)() == expected[0]
    assert read(tmp_path) == expected[1]


def test_without_a_second_process_all_is_drawn_here(content, expected, tmp_path, monkeypatch):
    def refuse(self):
        raise OSError("No more processes.")

    monkeypatch.setattr(module, "available_cores", lambda: {0, 1})
    monkeypatch.setattr(multiprocessing.context.SpawnProcess, "start", refuse)
    with drawing() as draw:
        assert draw(content, tmp_path)() == expected[0]
    assert read(tmp_path) == expected[1]


def test_the_second_process_does_without_jax():
    code = "import sys, latentuq.report.figures; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_interrupt_ends_the_other_process_first(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "available_cores", lambda: {0, 1})
    with pytest.raises(KeyboardInterrupt), drawing():
        raise KeyboardInterrupt
    assert not multiprocessing.active_children()


def test_an_interrupt_while_the_process_starts_is_not_lost(monkeypatch):
    start = multiprocessing.context.SpawnProcess.start

    def interrupted(self):
        os.kill(os.getpid(), signal.SIGINT)
        start(self)

    monkeypatch.setattr(module, "available_cores", lambda: {0, 1})
    monkeypatch.setattr(multiprocessing.context.SpawnProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), drawing():
        pytest.fail("The work went on.")
    assert not multiprocessing.active_children()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def test_an_interrupt_is_not_lost_where_no_process_starts(monkeypatch):
    def interrupted(self):
        os.kill(os.getpid(), signal.SIGINT)
        raise OSError("No more processes.")

    monkeypatch.setattr(module, "available_cores", lambda: {0, 1})
    monkeypatch.setattr(multiprocessing.context.SpawnProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), drawing():
        pytest.fail("The work went on.")


def test_the_second_process_hears_of_no_interrupt():
    # In a fresh interpreter: the first process of all is the one to look at.
    code = """if True:
        import multiprocessing, os, signal
        from latentuq.cli import drawing
        drawing.available_cores = lambda: {0, 1}
        with drawing.drawing():
            (process,) = multiprocessing.active_children()
            os.kill(process.pid, signal.SIGINT)
            process.join(2)
            assert process.is_alive()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
