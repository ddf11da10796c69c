import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq.core import compilation
from latentuq.core.compilation import bounded_jit


def apply(fn, x):
    return fn(x)


def test_an_equal_kind_of_call_is_traced_once():
    traced = []

    def double(x):
        traced.append(x)
        return 2 * x

    jitted = bounded_jit(apply)
    for value in (1.0, 2.0):
        np.testing.assert_array_equal(jitted(double, jnp.full(3, value)), [2 * value] * 3)
    assert len(traced) == 1
    jitted(double, jnp.ones(4))
    assert len(traced) == 2


def test_numbers_of_different_types_are_different_programs():
    jitted = bounded_jit(lambda number, x: x * number)
    assert jitted(2, jnp.ones(2, int)).dtype.kind == "i"
    assert jitted(2.0, jnp.ones(2, int)).dtype.kind == "f"


def test_calls_inside_other_compiled_code_are_part_of_it():
    jitted = bounded_jit(lambda x: x + 1)
    before = len(compilation._programs)
    assert jax.jit(lambda x: jitted(x) * 2)(1.0) == 4
    assert len(compilation._programs) == before


def test_only_the_most_recently_used_stay(monkeypatch):
    monkeypatch.setattr(compilation, "MOST_PROGRAMS", 3)
    monkeypatch.setattr(compilation, "_programs", type(compilation._programs)())
    traced = []
    jitted = bounded_jit(apply)

    def density(number):
        def fn(x):
            traced.append(number)
            return number * x

        return fn

    densities = [density(number) for number in range(4)]
    for number in (0, 1, 2, 0, 3):
        jitted(densities[number], jnp.ones(()))
    assert traced == [0, 1, 2, 3]
    jitted(densities[0], jnp.ones(()))  # Used recently, so it is still there.
    jitted(densities[1], jnp.ones(()))  # The least recently used: it went.
    assert traced == [0, 1, 2, 3, 1]
    assert len(compilation._programs) == 3


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="Counts the CPU's memory maps.")
def test_what_goes_frees_its_memory_maps(monkeypatch):
    def maps():
        with open("/proc/self/maps") as file:
            return sum(1 for _ in file)

    monkeypatch.setattr(compilation, "MOST_PROGRAMS", 5)
    monkeypatch.setattr(compilation, "_programs", type(compilation._programs)())
    jitted, counted = bounded_jit(apply), []
    for number in range(40):
        jitted(lambda x, number=number: jnp.sin(number * x) @ jnp.cos(x), jnp.ones(8))
        counted.append(maps())
    assert counted[-1] < counted[10] + 100
