import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq.core import compilation
from latentuq.core.compilation import bounded_jit, compile_clock


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


SCRIPT = """
import json, sys
import jax, jax.numpy as jnp

counts = {"cache_hits": 0, "cache_misses": 0}

def count(event, **_):
    name = event.rpartition("/")[2]
    if name in counts:
        counts[name] += 1

jax.monitoring.register_event_listener(count)
from latentuq.core.compilation import bounded_jit, compile_clock

def work(start):
    for number in range(start, start + 4):
        bounded_jit(lambda x: jnp.linalg.cholesky(jnp.eye(20) + number * x * x.T))(jnp.ones(20))

BEFORE
told = []
with compile_clock().watch(lambda: told.append(1)):
    work(0)
AFTER
print(json.dumps(counts | {"told": len(told)}))
"""


def run(tmp_path, before="", after="", **settings):
    """Compiles in a process of its own, whose cache directory is within `tmp_path`."""
    environment = {name: value for name, value in os.environ.items() if "COMPILATION" not in name}
    environment |= {"LATENTUQ_CACHE": str(tmp_path / "cache")} | settings
    script = SCRIPT.replace("BEFORE", before).replace("AFTER", after)
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


def set_folder(folder) -> str:
    return f"jax.config.update('jax_compilation_cache_dir', {str(folder)!r})"


@pytest.mark.slow
def test_a_second_process_compiles_nothing_again(tmp_path):
    first, second = run(tmp_path), run(tmp_path)
    assert first["cache_misses"] >= 4
    assert second["cache_misses"] == 0
    assert second["cache_hits"] >= 4
    assert not second["told"]


@pytest.mark.slow
def test_a_folder_that_the_user_chose_is_left_in_charge(tmp_path):
    own = tmp_path / "own"
    every = "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)"
    assert run(tmp_path, f"{set_folder(own)}; {every}")["cache_misses"]
    assert any(own.iterdir())
    run(tmp_path, JAX_COMPILATION_CACHE_DIR=str(own))
    run(tmp_path, JAX_ENABLE_COMPILATION_CACHE="0")
    assert not any((tmp_path / "cache").rglob("*-cache"))


@pytest.mark.slow
def test_a_folder_that_the_user_chooses_later_is_used_from_then_on(tmp_path):
    later = tmp_path / "later"
    run(tmp_path, after=f"{set_folder(later)}; work(10)")
    ours = sorted((tmp_path / "cache" / "compiled").glob("*-cache"))
    assert len(ours) >= 4
    assert len(list(later.glob("*-cache"))) >= 4
    off = "jax.config.update('jax_compilation_cache_dir', None)"
    run(tmp_path, after=f"{off}; work(20)")
    assert sorted((tmp_path / "cache" / "compiled").glob("*-cache")) == ours


def test_a_watcher_is_told_once_that_programs_are_compiled(monkeypatch):
    monkeypatch.setattr(compilation, "_NOTICED", 1e-6)
    told = []
    with compile_clock().watch(lambda: told.append("compiling")):
        for number in range(2):
            jax.jit(lambda x, number=number: jnp.sin(x) + number)(jnp.ones(3))
    jax.jit(lambda x: jnp.cos(x) + 1)(jnp.ones(3))
    assert told == ["compiling"]
