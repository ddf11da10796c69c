"""The study of dimensions: its jobs, its references, and what its page says of the cells."""

import os

import jax
import numpy as np
import pytest

import commands
import latentuq as lu
from latentuq.core.cells import read_cells, run_cells
from latentuq.core.errors import UserError
from latentuq.core.tensors import read_tensors
from studies import dimensions, dimensions_trained
from studies.__main__ import main
from studies.baselines.result import BaselineResult
from studies.dimensions_page import make_values, time_of_smc
from studies.dimensions_summary import is_false_alarm, is_silent, pull, root_mean_square
from studies.dimensions_trained import CORRUPTIONS, Problem, make_problem, pool_draws, problems
from studies.hard_shapes import HARD_SHAPES
from studies.pages import fill_page

HALF = Problem(10, "half hidden", 1)


def answer(**known):
    cell = {"log_evidence": 1.0, "log_evidence_error": 0.1, "computed": "ok", "gradients": 10}
    return cell | {"causes": ["CONFIRMED"], "forward_equivalents": 100_000, "seconds": 2.0} | known


def reference(problem, log_evidence=1.0, error=0.05, spread=0.2, seconds=20.0):
    values = log_evidence + spread * np.array([-1, 1, -1, 1]) * np.sqrt(3 / 4)
    runs = [{"log_evidence": float(each), "seconds": seconds} for each in values]
    cell = {"log_evidence": log_evidence, "error": error, "runs": runs, "seconds": 99.0}
    return {problem.reference: problem._asdict() | cell}


def trained(problem, seed, log_evidence=1.0, accuracy=0.52, **known):
    cell = problem._asdict() | {"seed": seed, "accuracy": accuracy, "log_evidence": log_evidence}
    return {f"trained {problem.name} seed {seed}": answer(**cell, **known)}


def page(cells):
    text = fill_page("dimensions", {"command": "c", "commits": "commit 1", **make_values(cells)})
    return " ".join(text.split())


def test_a_reference_comes_before_what_needs_it(tmp_path):
    jobs = [*dimensions.make_jobs(dimensions.PARTS, 3, 2, tmp_path)]
    places = {name: place for place, name in enumerate(jobs)}
    found = [*problems()]
    assert len(found) == len({*found}) == 48
    for problem in found:
        for seed in (0, 1):
            assert places[problem.reference] < places[f"trained {problem.name} seed {seed}"]
    assert {problem.dim for problem in found[:12]} == {10, 32, 64}
    assert {problem.corruption for problem in found[:12]} == {*CORRUPTIONS}
    for part, number in (("trained", 144), ("growth", 10), ("discovery", 3), ("errors", 58)):
        assert sum(name.startswith(f"{part} ") for name in jobs) == number
    assert number == 2 * len(HARD_SHAPES)
    assert [*dimensions.make_jobs(["discovery"], 1, 9, tmp_path)] == ["discovery 0"]


def test_an_unknown_part_is_refused(tmp_path, monkeypatch, capsys):
    arguments = ["dimensions", "--parts", "growth,magic", "-o", "."]
    code, _, err = commands.call(monkeypatch, capsys, tmp_path, *arguments, main=main)
    assert code == 2
    assert err.startswith("studies: There is no part 'magic'; there are trained, growth,")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_data_have_the_noise_that_is_stated(corruption):
    problem = make_problem(HALF._replace(corruption=corruption))
    operator, noise = CORRUPTIONS[corruption]
    shown = operator.bind((28, 28)).apply(np.asarray(lu.load_digits().digit(1), np.float32))
    seen = np.asarray(problem.observed)
    gaps = (np.asarray(problem.y) - np.asarray(shown))[seen]
    assert np.std(gaps) == pytest.approx(noise, rel=3 / np.sqrt(2 * seen.sum()))
    assert float(problem.noise.std) == pytest.approx(noise)
    other = make_problem(HALF._replace(corruption=corruption, image=6))
    assert not np.allclose(gaps[:5], (np.asarray(other.y) - np.asarray(shown))[seen][:5])


def run_of(log_evidence, value, n=4096):
    return BaselineResult(np.full((n, 2), value), log_evidence, None, 1.0, 0.0, 1, 4)


def test_draws_are_pooled_by_evidence():
    draws = pool_draws([run_of(0.0, 0.0), run_of(np.log(3), 1.0)])
    assert draws.shape == (2000, 2)
    assert draws.dtype == np.float16
    assert draws[:, 0].sum() == 1500


@pytest.mark.parametrize(
    ("spread", "number"),
    # The error of n runs that are off by +-s is about s / sqrt(n - 1).
    [(0.01, 4), (0.11, 4), (0.13, 5), (0.16, 7), (0.5, 12)],
)
def test_runs_are_added_until_the_error_is_small(spread, number, monkeypatch):
    told = iter([spread * sign for sign in (1, -1) * 6])
    monkeypatch.setattr(dimensions_trained, "make_problem", lambda problem: HALF_DENSITY)
    plan = type("Plan", (), {"stages": [0, 0]})
    monkeypatch.setattr(dimensions_trained, "plan_smc", lambda *_, **__: plan)
    monkeypatch.setattr(dimensions_trained, "smc", lambda *_, **__: run_of(next(told), 0.0))
    cell, _ = dimensions_trained.make_reference(HALF)
    assert len(cell["runs"]) == number
    assert (cell["error"] <= 0.07) == (spread < 0.5)
    assert cell["log_evidence"] == pytest.approx(0, abs=0.15)
    assert (cell["dim"], cell["corruption"], cell["image"]) == HALF


HALF_DENSITY = type("Density", (), {"log_density": None, "dim": 10})


def test_draws_of_references_are_kept_beside_the_cells(tmp_path, monkeypatch):
    path = tmp_path / "dimensions.safetensors"
    made = {}

    def make_reference(problem):
        made[problem.name] = np.full((5, 2), problem.image, np.float32)
        return {"problem": problem.name}, made[problem.name]

    setup = {"models": {"10": "a"}}
    monkeypatch.setattr(dimensions_trained, "make_reference", make_reference)
    monkeypatch.setattr(dimensions_trained, "sampling_setup", lambda: setup)
    for image in (1, 6):
        dimensions_trained.publish(HALF._replace(image=image), path)
    arrays = read_tensors(path, "dimensions").arrays
    assert {*arrays} == {"10 half hidden 1", "10 half hidden 6"}
    np.testing.assert_array_equal(arrays["10 half hidden 6"], 6)
    # Draws of other models would be compared with answers of these.
    monkeypatch.setattr(dimensions_trained, "sampling_setup", lambda: {"models": {"10": "b"}})
    dimensions_trained.publish(HALF, path)
    assert {*read_tensors(path, "dimensions").arrays} == {"10 half hidden 1"}
    with pytest.raises(UserError, match="has no draws of 10 half hidden 12"):
        dimensions_trained.measure_trained(HALF._replace(image=12), 0, path)


@pytest.mark.slow
def test_the_classifier_sees_distinct_draws():
    class Post:
        log_evidence = 0.0

        def __init__(self, shift):
            self.shift = shift

        def sample(self, key, n):
            return self.shift + jax.random.normal(key, (n, 2))

    theirs = np.random.default_rng(0).standard_normal((2000, 2)).astype(np.float32)
    assert dimensions_trained.compare(Post(0.0), theirs, 0) < 0.57
    assert dimensions_trained.compare(Post(2.0), theirs, 0) > 0.8
    nothing = Post(0.0)
    nothing.log_evidence = np.nan
    assert dimensions_trained.compare(nothing, theirs, 0) == 1.0
    repeated = Post(0.0)
    repeated.sample = lambda key, n: np.zeros((n, 2))
    assert dimensions_trained.compare(repeated, theirs, 0) == 1.0


def test_stated_errors_are_taken_at_their_word():
    assert pull(0.2, 0.1) == pull(-0.2, 0.1) == pytest.approx(2)
    assert pull(0.0, 0.0) == 0
    assert pull(-0.0455, 0.0) == np.inf
    assert pull(np.nan, 0.1) == pull(0.1, None) == np.inf
    assert root_mean_square([3, -4]) == pytest.approx(np.sqrt(12.5))
    assert np.isnan(root_mean_square([]))


def test_the_page_says_how_trained_priors_do():
    cells = reference(HALF) | trained(HALF, 0) | trained(HALF, 1, log_evidence=1.31)
    blurred = Problem(32, "blurred", 6)
    cells |= reference(blurred, error=0.08, spread=0.4)
    cells |= trained(blurred, 0, log_evidence=1.2, forward_equivalents=300_000)
    bad = {"computed": "bad", "causes": ["HEAVY_TAIL"]}
    cells |= trained(blurred, 1, log_evidence=None, accuracy=0.6, **bad)
    told = page(cells)
    assert "| 10 | 2 | 50% | 0.22 | 0.520 | 0.520 | 0 | 1 | 100 | 2.0 |" in told
    assert "| 32 | 2 | 50% | | 0.560 | 0.600 | 1 | 0 | 200 | 2.0 |" in told
    assert "2 references, each pooled from 4 to 4 runs" in told
    assert "- trained 10 half hidden 1 seed 1: ln evidence +0.31, two-sample 0.520" in told
    assert "two-sample 0.600, `computed` bad (HEAVY_TAIL)" in told
    assert "seed 0: ln evidence" not in told
    assert "error of every reference at most 0.07 | 0.080 | **no** |" in told
    assert "ln evidence within 0.3 in 95 % | 2 of 4 (50.0%) | **no** |" in told
    assert "two-sample accuracy at most 0.57 | 0.600 | **no** |" in told
    assert "its median at most 0.54 | 0.520 | yes |" in told
    assert 'at most 5 % "unreliable" | 1 of 4 (25.0%) | **no** |' in told
    assert "no silent miss | 1 of 4 (25.0%) | **no** |" in told
    assert "at 64 dimensions SMC" not in told
    assert "Discovery" not in told


def test_a_solve_without_its_reference_is_left_out():
    cells = reference(HALF) | trained(HALF, 0) | trained(HALF._replace(image=6), 0)
    assert "ln evidence within 0.3 in 95 % | 1 of 1 (100.0%) | yes |" in page(cells)


def test_smc_is_repeated_until_its_error_is_ours():
    def row(gap, error=0.0):
        cells = reference(HALF, error=error, spread=0.4, seconds=20.0)
        return {"gap": gap, "seconds": 2.0, "reference": cells[HALF.reference]}

    # The variance of its runs is 0.4^2; the adaptive pass costs as much as a run.
    assert time_of_smc([row(0.2), row(-0.2)]) == pytest.approx((1 + 4) * 10)
    # One run is enough, and better than nothing.
    assert time_of_smc([row(4.0), row(-4.0)]) == pytest.approx((1 + 1) * 10)
    # What the reference is off by counts as ours.
    assert time_of_smc([row(0.2, 0.15), row(-0.2, 0.15)]) == pytest.approx((1 + 4) * 10)


@pytest.mark.parametrize(
    ("at_64", "at_256", "answer_64"), [(6.0, 30.1, "yes"), (6.1, 29, "**no**")]
)
def test_the_page_says_how_work_grows(at_64, at_256, answer_64):
    cells = {
        f"growth {kind} {dim}": answer(
            kind=kind,
            dim=dim,
            megabytes=1500,
            forward_equivalents=round(100_000 * work),
            exact=0.8 if kind == "linear" else None,
        )
        for kind in ("random", "linear")
        for dim, work in ((10, 1.0), (64, at_64), (256, at_256))
    }
    told = page(cells)
    assert "| random | 10 | 100 | 2.0 | 1500 | | 0.100 | ok |" in told
    assert "| linear | 10 | 100 | 2.0 | 1500 | +0.200 | 0.100 | ok |" in told
    assert f"| random | {at_64:.1f} | {at_256:.1f} |" in told
    assert (
        f"random: work at 64 at most 6 times that at 10 | {at_64:.1f} times | {answer_64}" in told
    )
    answer_256 = "yes" if at_256 <= 30 else "**no**"
    assert (
        f"linear: work at 256 at most 30 times that at 10 | {at_256:.1f} times | {answer_256}"
        in told
    )
    assert "memory under 4 GB | 1500 MB | yes |" in told
    assert "exact ln evidence within 3 stated errors | 2.0 at most | yes |" in told


def target(rarest=0.1, missing=0.0, mass_pull=1.0, **known):
    cell = {"kind": "equal", "dim": 2, "modes": 5, "mass_gap": 0.01, "exact": 1.0} | known
    return answer(rarest=rarest, missing=missing, mass_pull=mass_pull, **cell)


def test_silence_and_false_alarms_are_told_apart():
    for missing, mass_pull, computed, silent, alarm in (
        (0.5, 9.0, "ok", True, False),
        (0.5, 9.0, "bad", False, False),
        (0.02, 1.0, "ok", False, False),
        (0.0, 1.0, "bad", False, True),
        (0.0, 4.1, "bad", False, False),
    ):
        row = target(missing=missing, mass_pull=mass_pull, computed=computed)
        row["ok"] = computed == "ok"
        assert (is_silent(row), is_false_alarm(row)) == (silent, alarm)


def test_the_page_counts_missed_modes():
    cells = {
        "discovery 0": target(rarest=0.1),
        "discovery 1": target(rarest=0.002, computed="bad", kind="needle", dim=32),
        "discovery 2": target(rarest=0.0019, missing=0.5, mass_pull=50.0),
        "discovery 3": target(rarest=0.0, missing=0.5, mass_pull=50.0, computed="bad"),
    }
    told = page(cells)
    assert "| 1 in 50 or more | 1 | 0 | 0 | 1 | 0 | 100 |" in told
    assert "| 1 in 50 to 500 | 1 | 0 | 0 | 1 | 1 | 100 |" in told
    assert "| 1 in 500 to 5,000 | 1 | 1 | 1 | 0 | 0 | 100 |" in told
    assert "| fewer | 1 | 1 | 0 | 0 | 0 | 100 |" in told
    assert "| needle | 1 | 0 | 0 | 1 | 1 | 100 |" in told
    assert "| 2 dimensions | 3 | 2 | 1 | 1 | 0 | 100 |" in told
    assert "at least 1 start in 500 | 0 of 2 (0.0%) | yes |" in told
    assert "false alarms | 1 of 2 (50.0%) | **no** |" in told
    cells["discovery 2"]["rarest"] = 0.002
    assert "at least 1 start in 500 | 1 of 3 (33.3%) | **no** |" in page(cells)


def shape(log_evidence, tail, tail_error=0.01, name="ring", **known):
    cell = {"shape": name, "dim": 2, "tail": tail, "tail_error": tail_error, "exact_tail": 0.05}
    return answer(log_evidence=log_evidence, exact=0.0, **cell, **known)


def test_the_page_holds_errors_against_the_truth():
    cells = {
        "errors a, key 0": shape(0.1, 0.06),
        "errors a, key 1": shape(-0.1, 0.03),
        "errors b, key 0": shape(9.0, 0.9, name="funnel", computed="bad"),
    }
    told = page(cells)
    assert "| ring | 2 | 0 | +0.000 | 1.0 | 0.0500 | 0.0450 | 1.6 | 2.0 | 100 |" in told
    assert "| funnel | 1 | 1 | | | 0.0500 | | | | 100 |" in told
    assert "of ln Z at most 1.3 | 1.00 | yes |" in told
    assert "of tail probabilities at most 1.3 | 1.58 | **no** |" in told
    assert "none of ln Z beyond 5 | 0 of 2 (0.0%), largest 1.0 | yes |" in told
    assert "at most 15 % not ok | 1 of 3 (33.3%) | **no** |" in told
    # A tail that no draw has seen, without an error, is as wrong as can be.
    cells["errors a, key 1"] = shape(0.0, 0.0, tail_error=0.0)
    assert "none of tail probabilities beyond 5 | 1 of 2 (50.0%), largest inf | **no** |" in page(
        cells
    )


def test_memory_is_that_of_a_process_of_its_own():
    assert dimensions.alone(os.getpid) != os.getpid()
    assert 50 < dimensions.peak_megabytes() < 100_000


@pytest.mark.slow
def test_a_linear_problem_is_held_against_its_exact_answer():
    cell = dimensions.measure_growth("linear", 3)
    assert abs(cell["log_evidence"] - cell["exact"]) < 0.1
    assert cell["megabytes"] > 100


@pytest.mark.slow
def test_a_few_cells_make_a_page(tmp_path, monkeypatch, capsys):
    """Both are easy: two modes of which each attracts many starts, and a slightly bent Gaussian."""
    jobs = dimensions.make_jobs(["discovery", "errors"], 36, 1, tmp_path)
    chosen = {
        name: jobs[name] for name in ("discovery 35", "errors banana 1 1.0, 2 dimensions, key 0")
    }
    path = tmp_path / "dimensions.json"
    cells = run_cells(path, dimensions.make_setup(), chosen)
    needle, banana = cells.values()
    assert (needle["kind"], needle["dim"], needle["modes"]) == ("needle", 2, 2)
    assert needle["rarest"] > 0.02
    assert needle["missing"] == 0
    assert needle["mass_gap"] < 0.1
    assert banana["exact_tail"] == pytest.approx(0.0455003)
    assert abs(banana["tail"] - 0.0455) < 0.02
    assert abs(banana["log_evidence"]) < 0.1
    # The same command goes on where a run was left.
    arguments = ["dimensions", "--parts", "discovery", "--solves", 36, "--only", "discovery 35"]
    code, out, err = commands.call(monkeypatch, capsys, tmp_path, *arguments, "-o", ".", main=main)
    assert (code, out) == (0, "Wrote dimensions.md\n"), err
    assert "discovery 35" not in err
    assert read_cells(path) == cells
    written = (tmp_path / "dimensions.md").read_text()
    assert "| needle | 1 | 0 | 0 |" in written
    assert "| banana 1 1.0, 2 dimensions | 1 |" in written
    assert "Trained" not in written
