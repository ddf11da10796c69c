"""Parts that run at the same time give what they give one after another."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentuq as lu
from latentuq import programs
from latentuq.inference import cores
from latentuq.inference.cores import on_cores
from latentuq.programs import program


@pytest.fixture(params=[1, 2, 3])
def number(request, monkeypatch):
    monkeypatch.setattr(cores, "_cores", lambda: request.param)
    return request.param


def test_results_come_in_the_order_of_the_parts(number):
    assert on_cores(lambda part: part**2, range(7)) == [part**2 for part in range(7)]
    assert on_cores(lambda part: part, []) == []


def test_parts_run_at_the_same_time(monkeypatch):
    monkeypatch.setattr(cores, "_cores", lambda: 2)
    both = threading.Barrier(2, timeout=10)
    assert sorted(on_cores(lambda part: both.wait() >= 0, [0, 1])) == [True, True]


def test_an_error_of_a_part_is_that_of_all(number):
    def work(part):
        if part == 1:
            raise lu.UserError("This part fails.")
        return part

    with pytest.raises(lu.UserError, match="This part fails"):
        on_cores(work, range(3))


@pytest.mark.parametrize("wide", [False, True])
def test_the_precision_is_the_callers(number, wide):
    with jax.enable_x64(wide):
        kinds = on_cores(lambda part: jnp.zeros(part).dtype, [1, 2, 3])
    assert kinds == [np.dtype(np.float64 if wide else np.float32)] * 3


@pytest.mark.parametrize("kept", [False, True])
def test_threads_share_a_program(monkeypatch, tmp_path, kept):
    monkeypatch.setattr(cores, "_cores", lambda: 4)
    monkeypatch.setattr(programs, "_folder", tmp_path if kept else None)
    traced = []

    @program
    def double(x):
        traced.append(x)
        return 2 * x

    results = on_cores(double, [jnp.full(3, float(part)) for part in range(8)])
    np.testing.assert_array_equal(results, [[2.0 * part] * 3 for part in range(8)])
    assert len(traced) == 1


def test_an_answer_does_not_depend_on_the_number_of_cores(monkeypatch):
    def log_density(u):
        return -0.5 * jnp.sum(u**2 / jnp.array([1.0, 0.1])) - 2 * (u[0] ** 2 - 1) ** 2

    answers = []
    for number in (1, 2):
        monkeypatch.setattr(cores, "_cores", lambda number=number: number)
        answers.append(lu.solve_density(jax.random.key(0), log_density, 2))
    one, two = answers
    np.testing.assert_array_equal(one.weights, two.weights)
    assert float(one.log_evidence) == float(two.log_evidence)
