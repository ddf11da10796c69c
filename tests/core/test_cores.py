"""Parts that run at the same time give what they give one after another."""

import threading
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentuq as lu
from latentuq.core import cores
from latentuq.core.compilation import CompileClock, bounded_jit
from latentuq.core.cores import on_cores, one_core
from latentuq.inference.descent import Limits, descend, gauss_newton, newton
from latentuq.inference.el2o import fit_el2o
from latentuq.inference.importance import draw
from latentuq.inference.mixture import Defensive, Mixture
from latentuq.inference.moves import Kernel, Pace, move
from latentuq.inference.sweep import _descend
from latentuq.inference.target import CHUNK, Target, log_densities, log_densities_at, may_wait
from latentuq.problem.experiments import EXPERIMENTS, make_problem


def give_cores(monkeypatch, number):
    monkeypatch.setattr(cores, "available_cores", lambda: set(range(number)))


@pytest.fixture(params=[1, 2, 3])
def number(request, monkeypatch):
    give_cores(monkeypatch, request.param)


def test_results_come_in_the_order_of_the_parts(number):
    assert on_cores(lambda part: part**2, range(7)) == [part**2 for part in range(7)]
    assert on_cores(lambda part: part, []) == []


def test_parts_run_at_the_same_time(monkeypatch):
    give_cores(monkeypatch, 2)
    both = threading.Barrier(2, timeout=10)
    assert sorted(on_cores(lambda part: both.wait() >= 0, [0, 1])) == [True, True]


def test_an_error_of_a_part_is_that_of_all(number):
    def work(part):
        if part == 1:
            raise lu.UserError("This part fails.")
        return part

    with pytest.raises(lu.UserError, match="This part fails"):
        on_cores(work, range(3))


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        (jax.enable_x64, "jax_enable_x64", True),
        (jax.default_matmul_precision, "jax_default_matmul_precision", "float32"),
        (jax.numpy_dtype_promotion, "jax_numpy_dtype_promotion", "strict"),
    ],
)
def test_settings_are_the_callers(number, setting, name, value):
    with setting(value):
        assert on_cores(lambda part: jax.config.values[name], range(3)) == [value] * 3


def test_threads_share_a_program(monkeypatch):
    give_cores(monkeypatch, 4)
    traced = []

    @bounded_jit
    def double(x):
        traced.append(x)
        return 2 * x

    results = on_cores(double, [jnp.full(3, float(part)) for part in range(8)])
    np.testing.assert_array_equal(results, [[2.0 * part] * 3 for part in range(8)])
    assert len(traced) == 1


@pytest.mark.parametrize("squares", [False, True])
@pytest.mark.slow
def test_an_answer_of_chains_does_not_depend_on_the_number_of_cores(monkeypatch, squares):
    def residual(u):
        return jnp.array([u[0] ** 2 - 1, 4 * (u[1] - u[0] ** 2)])

    def log_density(u):
        return -0.5 * jnp.sum(residual(u) ** 2) - 0.5 * u @ u

    answers = []
    for number in (1, 2):
        give_cores(monkeypatch, number)
        post = lu.solve_density(jax.random.key(0), log_density, 2, residual if squares else None)
        assert post.diagnostics.rounds
        answers.append(post)
    one, two = answers
    np.testing.assert_array_equal(one.weights, two.weights)
    assert one.log_evidence == two.log_evidence
    assert one.log_evidence_error == two.log_evidence_error
    for mine, others in zip(
        jax.tree.leaves(one.inference.draws), jax.tree.leaves(two.inference.draws), strict=True
    ):
        np.testing.assert_array_equal(mine, others)


def plain(u):
    return -jnp.sum(u**2)


def decomposes(u):
    matrix = jnp.eye(2) + jnp.outer(u, u)
    return jax.lax.cond(u[0] > 0, lambda: jnp.linalg.cholesky(matrix)[1, 1], lambda: plain(u))


def solves(u):
    def step(total, row):
        return total + jnp.linalg.solve(jnp.eye(2) + jnp.outer(u, u), row)[0], None

    return jax.lax.scan(step, 0.0, jnp.eye(2))[0]


def calls_back(u):
    return jax.pure_callback(
        lambda u: np.float32(-np.sum(u**2)), jax.ShapeDtypeStruct((), np.float32), u
    )


@pytest.mark.parametrize(
    ("density", "waits"), [(plain, False), (decomposes, True), (solves, True), (calls_back, True)]
)
def test_densities_that_wait_for_threads_are_known(density, waits):
    target = Target(density, 2, trusted=True)
    assert may_wait(target) is waits
    assert may_wait(target) is waits
    assert may_wait(Target(plain, 2, lambda u: density(u)[None], trusted=True)) is waits


@pytest.mark.slow
def test_our_problems_do_not_wait():
    prior = lu.load_prior("mnist")
    digit = lu.load_digits().digit(6)
    for name in EXPERIMENTS:
        problem = make_problem(prior, name, digit)
        assert not may_wait(Target(problem.log_density, problem.dim, problem.residual))


@pytest.mark.slow
def test_a_density_that_may_wait_stays_on_one_core(monkeypatch):
    give_cores(monkeypatch, 2)
    seen = []

    def watched(parts, fn=cores.ThreadPoolExecutor):
        seen.append(parts)
        return fn(parts)

    monkeypatch.setattr(cores, "ThreadPoolExecutor", watched)
    lu.solve_density(
        jax.random.key(0), lambda u: plain(u) + 1e-3 * decomposes(u), 2, budget="preview"
    )
    assert not seen
    lu.solve_density(jax.random.key(0), plain, 2, budget="preview")
    assert seen


def test_one_core_holds_inside_another():
    with one_core(), one_core(False):
        ids = on_cores(lambda part: threading.get_ident(), range(4))
    assert set(ids) == {threading.get_ident()}


@pytest.mark.parametrize("points", [1, CHUNK - 1, CHUNK, 2 * CHUNK + 5])
def test_any_number_of_points(number, points):
    u = np.random.default_rng(0).normal(size=(points, 3)).astype(np.float32)
    found = log_densities_at(Target(lambda u: -jnp.sum(u**2), 3).log_density, u)
    np.testing.assert_allclose(found, -np.sum(u**2, axis=1), rtol=1e-5)


def test_time_of_compiling_counts_once_for_all_threads():
    clock, began = CompileClock(), time.perf_counter()
    ready = threading.Barrier(2, timeout=30)

    def compile_one(size):
        ready.wait()
        jax.jit(lambda x: jnp.linalg.inv(jnp.cos(x) @ jnp.sin(x)))(jnp.ones((size, size)))

    threads = [threading.Thread(target=compile_one, args=(size,)) for size in (31, 37)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < clock.seconds <= time.perf_counter() - began


def batches(jaxpr):
    """The decompositions of a traced program whose operands are batches of matrices."""
    if isinstance(jaxpr, tuple | list):
        return [found for each in jaxpr for found in batches(each)]
    found = []
    for equation in getattr(getattr(jaxpr, "jaxpr", jaxpr), "eqns", ()):
        batched = any(operand.aval.ndim > 2 for operand in equation.invars)
        if batched and equation.primitive.name in cores._WAITING:
            found.append(equation.primitive.name)
        found += [each for value in equation.params.values() for each in batches(value)]
    return found


WIDE = 6
PEOPLE = jnp.zeros((16, WIDE))
STUDENT = Mixture(
    jnp.full(4, np.log(0.25)), jnp.zeros((4, WIDE)), jnp.tile(jnp.eye(WIDE), (4, 1, 1)), 10.0
)


def squares(u):
    return u


def fit(key):
    return fit_el2o(key, plain, jnp.zeros(WIDE), jnp.eye(WIDE), samples=4 * WIDE, iterations=2)


def go_down(model_fn, starts):
    limits = Limits(lanes=4, steps=3, tolerance=1e-3, hopeless=60.0)
    return descend(model_fn, Target(plain, WIDE, squares), starts, jnp.ones(len(starts)), limits)


def go_round(points):
    numbers = map(jnp.asarray, (1.6, 8.0, 0.9, 2.0))
    kernel = Kernel(jnp.eye(WIDE)[None], jnp.zeros(1))
    regions, powers = jnp.zeros(len(points), int), jnp.array([1.0, 0.0])
    target, key = Target(plain, WIDE), jax.random.key(0)
    return move(key, target, powers, points, regions, kernel, Pace(2, 2, *numbers))


@pytest.mark.parametrize(
    ("program", "argument"),
    [
        pytest.param(fit, jax.random.key(0), id="fit"),
        pytest.param(lambda u: go_down(newton, u), PEOPLE, id="newton"),
        pytest.param(lambda u: go_down(gauss_newton, u), PEOPLE, id="gauss-newton"),
        pytest.param(lambda u: _descend(Target(plain, WIDE), u), PEOPLE, id="sweep"),
        pytest.param(go_round, PEOPLE, id="moves"),
        pytest.param(lambda key: draw(key, Defensive(STUDENT), 16), jax.random.key(0), id="draws"),
        pytest.param(lambda u: log_densities(Defensive(STUDENT).log_prob, u), PEOPLE, id="mixture"),
    ],
)
def test_programs_that_run_at_the_same_time_decompose_no_batches(program, argument):
    """Such programs may wait for each other for ever, see `cores`."""
    assert not batches(jax.make_jaxpr(program)(argument))


def test_batches_of_decompositions_are_seen():
    many = jnp.tile(jnp.eye(2), (3, 1, 1))
    for decompose, name in ((jnp.linalg.cholesky, "cholesky"), (jnp.linalg.qr, "qr")):
        assert name in batches(jax.make_jaxpr(decompose)(many))
        assert name in batches(jax.make_jaxpr(jax.jit(jax.vmap(decompose)))(many))
        one_by_one = partial(jax.lax.map, decompose)
        assert not batches(jax.make_jaxpr(one_by_one)(many))


@pytest.mark.slow
def test_two_fits_at_the_same_time_end(monkeypatch):
    """At 64 dimensions they waited for each other in their batches of QR decompositions."""
    give_cores(monkeypatch, 2)
    dim, ended = 64, threading.Event()

    def fit(part):
        key, mean = jax.random.key(part), jnp.full(dim, 0.1)
        return fit_el2o(key, plain, mean, jnp.eye(dim), samples=4 * dim, iterations=6)

    def work():
        for _ in range(5):
            on_cores(fit, range(8))
        ended.set()

    # What waits for ever shall not keep the tests from ending.
    threading.Thread(target=work, daemon=True).start()
    assert ended.wait(timeout=120)
