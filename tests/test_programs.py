"""Programs that are kept from run to run give what `eqx.filter_jit` gives, whatever happens."""

import dataclasses
import threading
import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentuq as lu
from latentuq import executables, programs
from latentuq.executables import Executables
from latentuq.inference.descent import gauss_newton
from latentuq.inference.mixture import Defensive, gaussian_mixture
from latentuq.inference.target import Target, log_densities
from latentuq.programs import program

traced = []


class Box(eqx.Module):
    """Arrays and constants in one argument, as the engine's are."""

    values: jax.Array
    power: float = eqx.field(static=True, default=2.0)

    def scaled(self, factor):
        return factor * self.values**self.power


@dataclasses.dataclass(frozen=True)
class Table:
    """No pytree: a constant of the program, with all that it holds."""

    values: np.ndarray


class Pair(NamedTuple):
    first: jax.Array
    second: Box


def untouched(x):
    return x


@program
def combine(key, box, fn=untouched, *, count=3):
    """A little of everything: a key, LAPACK, a function, a constant that shapes the result."""
    traced.append(count)
    noise = jax.random.uniform(key, (count, *box.values.shape))
    factor = jnp.linalg.cholesky(noise.T @ noise + jnp.eye(box.values.size))
    return Pair(fn(noise @ factor), Box(box.scaled(jnp.exp(box.values)), box.power))


@program
def scale(x, factor):
    return factor * x


KEY, BOX = jax.random.key(3), Box(jnp.array([0.3, -1.2, 2.0]))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that is in use, for functions and classes of this module too."""
    package = __name__.partition(".")[0]
    monkeypatch.setattr(programs, "_VERSIONED", programs._VERSIONED | {package})
    monkeypatch.setattr(programs, "_executables", Executables(tmp_path))
    return tmp_path


def called_afresh(monkeypatch, *args, **kwargs):
    """The result of a process that has called nothing yet, and how often it traced."""
    monkeypatch.setitem(globals(), "combine", program(combine.__wrapped__))
    traced.clear()
    return combine(*args, **kwargs), len(traced)


def plain(*args, **kwargs):
    return eqx.filter_jit(combine.__wrapped__)(*args, **kwargs)


def assert_same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_a_second_process_traces_nothing_and_finds_the_same_bits(folder, monkeypatch):
    expected = plain(KEY, BOX)
    first, count = called_afresh(monkeypatch, KEY, BOX)
    assert count == 1
    second, count = called_afresh(monkeypatch, KEY, BOX)
    assert count == 0
    assert_same(first, expected)
    assert_same(second, expected)
    assert len(list(folder.iterdir())) == 1


def test_numbers_of_numpy_are_no_constants(folder, monkeypatch):
    for factor in (np.float32(2), np.float32(3), np.array(4, np.float32)):
        monkeypatch.setitem(globals(), "scale", program(scale.__wrapped__))
        np.testing.assert_array_equal(scale(jnp.ones(1), factor), [float(factor)])


@pytest.mark.parametrize("kept", [False, True])
def test_a_program_may_call_itself_while_it_is_traced(monkeypatch, tmp_path, kept):
    monkeypatch.setattr(programs, "_executables", Executables(tmp_path) if kept else None)
    constant = jnp.ones((4, 2))

    def normal(u):
        return -0.5 * jnp.sum(u**2)

    def shifted(u):
        return normal(u) - jnp.sum(log_densities(normal, constant))

    np.testing.assert_allclose(log_densities(shifted, jnp.zeros((4, 2))), 4.0)


def test_other_values_are_the_same_program(folder, monkeypatch):
    called_afresh(monkeypatch, KEY, BOX)
    other = jax.random.key(4), Box(-BOX.values)
    found, count = called_afresh(monkeypatch, *other)
    assert count == 0
    assert_same(found, plain(*other))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((KEY, BOX), {"count": 4}),
        ((KEY, Box(BOX.values, power=3.0)), {}),
        ((KEY, Box(BOX.values[:2])), {}),
        ((KEY, Box(jnp.arange(3))), {}),
        ((KEY, BOX, jnp.exp), {}),
        ((KEY, BOX, BOX.scaled), {}),
    ],
    ids=["constant", "static field", "shape", "dtype", "function", "method"],
)
def test_what_a_program_depends_on_makes_another(folder, monkeypatch, args, kwargs):
    called_afresh(monkeypatch, KEY, BOX)
    for traces in (1, 0):
        found, count = called_afresh(monkeypatch, *args, **kwargs)
        assert count == traces
        assert_same(found, plain(*args, **kwargs))
    assert len(list(folder.iterdir())) == 2


def test_sources_and_settings_make_another(folder, monkeypatch):
    called_afresh(monkeypatch, KEY, BOX)
    with jax.default_matmul_precision("highest"):
        assert called_afresh(monkeypatch, KEY, BOX)[1] == 1
    for name in ("_sources", "_machine"):
        monkeypatch.setattr(programs, name, lambda: "other")
        assert called_afresh(monkeypatch, KEY, BOX)[1] == 1
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize(
    "damage",
    [lambda content: b"", lambda content: content[:-9], lambda content: content[:-1] + b"?"],
    ids=["empty", "short", "changed"],
)
def test_a_damaged_file_is_made_anew(folder, monkeypatch, damage):
    called_afresh(monkeypatch, KEY, BOX)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    for traces in (1, 0):
        found, count = called_afresh(monkeypatch, KEY, BOX)
        assert count == traces
        assert_same(found, plain(KEY, BOX))


def test_a_file_that_jax_cannot_read_is_made_anew(folder, monkeypatch):
    called_afresh(monkeypatch, KEY, BOX)
    (file,) = folder.iterdir()
    executables._write(file, b"sound, but no program")
    for traces in (1, 0):
        found, count = called_afresh(monkeypatch, KEY, BOX)
        assert count == traces
        assert_same(found, plain(KEY, BOX))


def test_an_executable_that_fails_is_made_anew(folder, monkeypatch):
    def fail(*_):
        raise jax.errors.JaxRuntimeError("NOT_FOUND: Function fusion not found")

    broken = executables.Executable(fail, None)
    with monkeypatch.context() as patch:
        patch.setattr(Executables, "find", lambda *_: broken)
        found, count = called_afresh(monkeypatch, KEY, BOX)
    assert count == 1
    assert_same(found, plain(KEY, BOX))
    assert called_afresh(monkeypatch, KEY, BOX)[1] == 0


def test_what_the_last_run_called_is_loaded_ahead(folder, monkeypatch):
    with programs.expecting_programs("test"):
        first, _ = called_afresh(monkeypatch, KEY, BOX)
        other, _ = called_afresh(monkeypatch, KEY, BOX, count=4)
    asked = []
    load = Executables._load

    def listen(self, name):
        asked.append(threading.current_thread().name)
        return load(self, name)

    monkeypatch.setattr(Executables, "_load", listen)
    with programs.expecting_programs("test"):
        while len(asked) < 2:
            time.sleep(0.01)
        again, count = called_afresh(monkeypatch, KEY, BOX, count=4)
        assert count == 0
        assert_same(again, other)
        again, count = called_afresh(monkeypatch, KEY, BOX)
        assert count == 0
        assert_same(again, first)
    assert len(asked) == 2
    assert all(name.startswith("latentuq-load") for name in asked)
    asked.clear()
    with programs.expecting_programs("another purpose"):
        pass
    assert not asked


def test_a_run_that_fails_leaves_what_is_expected(folder, monkeypatch):
    with programs.expecting_programs("test"):
        called_afresh(monkeypatch, KEY, BOX)
    (record,) = folder.glob("*.used")
    before = record.read_bytes()
    with pytest.raises(KeyboardInterrupt), programs.expecting_programs("test"):
        raise KeyboardInterrupt
    assert record.read_bytes() == before
    record.write_bytes(b"damaged")
    with programs.expecting_programs("test"):
        assert called_afresh(monkeypatch, KEY, BOX)[1] == 0
    assert record.read_bytes() == before


def test_without_a_folder_nothing_is_expected(monkeypatch):
    monkeypatch.setattr(programs, "_executables", None)
    with programs.expecting_programs("test"):
        assert_same(called_afresh(monkeypatch, KEY, BOX)[0], plain(KEY, BOX))


def test_a_folder_that_cannot_be_written_is_done_without(folder, monkeypatch):
    monkeypatch.setattr(programs, "_executables", Executables(folder / "missing"))
    assert_same(called_afresh(monkeypatch, KEY, BOX)[0], plain(KEY, BOX))
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "args",
    [
        (KEY, BOX, lambda x: 2 * x),
        (KEY, Table(np.ones(2))),
        (KEY, BOX, np.linalg.LinAlgError),
    ],
    ids=["lambda", "constant array", "other package"],
)
def test_what_has_no_lasting_name_is_not_kept(folder, args):
    with pytest.raises(programs._NamelessError):
        programs._describe(args)


def test_functions_without_a_name_run_all_the_same(folder, monkeypatch):
    args = KEY, BOX, lambda x: 2 * x
    assert_same(called_afresh(monkeypatch, *args)[0], plain(*args))
    assert not list(folder.iterdir())


def test_calls_inside_other_programs_are_part_of_them(folder):
    keys = jax.random.split(KEY, 2)
    found, expected = (jax.vmap(lambda key, fn=fn: fn(key, BOX))(keys) for fn in (combine, plain))
    assert_same(found, expected)
    slope = jax.grad(lambda box: jnp.sum(combine(KEY, box).first))(BOX)
    assert_same(slope, jax.grad(lambda box: jnp.sum(plain(KEY, box).first))(BOX))
    assert not list(folder.iterdir())


def test_errors_are_those_of_the_function(folder, monkeypatch):
    with pytest.raises(TypeError, match="concrete values"):
        called_afresh(monkeypatch, KEY, BOX, count="many")


def test_the_files_that_nobody_reads_go(folder, monkeypatch):
    monkeypatch.setattr(executables, "_MOST_FILES", 2)
    for count in (3, 4, 3, 5):
        called_afresh(monkeypatch, KEY, BOX, count=count)
    assert len(list(folder.iterdir())) == 2
    assert called_afresh(monkeypatch, KEY, BOX, count=3)[1] == 0
    assert called_afresh(monkeypatch, KEY, BOX, count=4)[1] == 1


@pytest.mark.parametrize("operator", [lu.Mask(np.eye(28) > 0), lu.Blur(1.0)], ids=repr)
def test_the_engine_is_kept(folder, operator):
    prior = lu.load_prior("mnist")
    problem = lu.InverseProblem(prior, operator, lu.GaussianNoise(0.1), np.zeros((28, 28)))
    target = Target(problem.log_density, problem.dim, problem.residual)
    before, points = set(folder.iterdir()), jnp.ones((5, problem.dim))
    expected = eqx.filter_jit(log_densities.__wrapped__)(target.log_density, points)
    np.testing.assert_array_equal(log_densities(target.log_density, points), expected)
    assert len(set(folder.iterdir()) - before) == 1
    mixture = gaussian_mixture(jnp.ones(2), jnp.zeros((2, 2)), jnp.tile(jnp.eye(2), (2, 1, 1)))
    arguments = gauss_newton, target.log_density, problem, Defensive(mixture)
    assert programs._describe(arguments) == programs._describe(arguments)
