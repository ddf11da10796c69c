import jax
import numpy as np
import pytest

import latentuq as lu
from densities import two_gaussians
from latentuq.core.cells import read_file
from latentuq.core.errors import UserError
from latentuq.problem.experiments import EXPERIMENTS, make_problem
from studies.baselines.result import BaselineResult
from studies.bench import run as bench_run
from studies.bench.methods import METHODS, Method
from studies.bench.page import _MARKERS, write_bench
from studies.bench.run import Plan, Truth, compare_draws, run_bench
from studies.bench.scaling import measure_machine, scaling_jobs
from studies.bench.sharpening import Masses, mode_masses
from studies.pages import is_unreliable, verdict_word
from studies.references import DRAWS, Reference, read_references

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prior():
    return lu.load_prior("mnist")


@pytest.fixture(scope="module")
def posts(prior):
    """Previews of two problems stand for our posteriors."""
    found = {}
    for name in ("sparse95", "solidmask"):
        image = lu.load_digits().digit(EXPERIMENTS[name].image)
        problem = make_problem(prior, name, image)
        found[name] = lu.solve(jax.random.key(0), problem, budget="preview")
    return found


@pytest.fixture
def fake(monkeypatch, posts):
    """Methods that answer at once: draws of our posterior, off in evidence and place."""

    def method(shift, evidence, seconds):
        def run(key, task):
            draws = np.asarray(task.posterior.sample(key, 300)) + shift
            return BaselineResult(draws, evidence, None, seconds, 1.0, 10, 40)

        return run

    def refuse(key, task):
        raise UserError("Not for this problem.")

    methods = {
        "latentuq": Method("ours", method(0.0, 50.0, 2.0)),
        "far": Method("far away", method(3.0, None, 8.0), repeats=1),
        "refuses": Method("refuses", refuse),
    }
    for module in ("run", "page"):
        monkeypatch.setattr(f"studies.bench.{module}.METHODS", methods)
    monkeypatch.setattr(bench_run, "compile_ours", lambda prior, name, seed: (posts[name], 9.0))
    monkeypatch.setattr(bench_run, "mode_masses", own_masses)
    return methods


def own_masses(key, post, draws):
    """Stands for importance sampling, which takes a while."""
    return Masses(np.asarray(post.weights), np.asarray(post.weight_errors), 0.3)


def references(posts):
    return {
        (name, EXPERIMENTS[name].image): Reference(
            51.0, 0.1, np.asarray(post.sample(jax.random.key(9), 400))
        )
        for name, post in posts.items()
    }


def test_cells_are_measured_once_and_written(prior, posts, fake, tmp_path):
    path = tmp_path / "bench.json"
    seen = []
    plan = Plan(prior, references(posts), [*fake], [*posts], 2)
    cells = run_bench(plan, path, lambda name, cell: seen.append(name))
    assert len(seen) == 2 * (1 + 2 + 1 + 2)
    assert seen[0] == "compiling sparse95"
    ours, far = cells["latentuq solidmask 0"], cells["far solidmask 0"]
    assert ours["evidence_gap"] == pytest.approx(-1)
    assert far["evidence_gap"] is None
    assert ours["two_sample_accuracy"] + 0.2 < far["two_sample_accuracy"]
    assert ours["energy"] < far["energy"]
    assert cells["refuses sparse95 0"]["error"] == "Not for this problem."
    run_bench(plan, path, lambda name, cell: pytest.fail("measured again"))

    page = write_bench(cells, read_file(path)[0], tmp_path, "a command").read_text()
    assert "| far away | 8.00 |  | 4.00 | 1.0 |" in page
    # Ours compile before anything is timed.
    assert "| ours | 2.00 | 2.00-2.00 | 1.00 | 10.0 |" in page
    assert "refuses" not in page
    assert (tmp_path / "bench.png").stat().st_size > 10_000


def test_a_small_comparison(prior, tmp_path):
    """The comparison itself, on the problem with one mode."""
    methods = ["latentuq", "laplace"]
    path = tmp_path / "bench.json"
    cells = run_bench(Plan(prior, read_references(DRAWS, prior), methods, ["blur"], 1), path)
    ours, laplace = (cells[f"{method} blur 0"] for method in methods)
    assert not is_unreliable(ours)
    assert ours["ess"] > 300
    assert cells["compiling blur"]["seconds"] >= 0
    assert abs(ours["evidence_gap"]) < 0.15
    assert ours["two_sample_accuracy"] < 0.58
    assert abs(laplace["evidence_gap"]) > abs(ours["evidence_gap"])
    assert laplace["two_sample_accuracy"] > ours["two_sample_accuracy"] + 0.1
    page = write_bench(cells, read_file(path)[0], tmp_path, "a command").read_text()
    assert "model error `low-rank`" in " ".join(page.split())
    assert f"1 {verdict_word(ours)}" in page


def test_the_page_shows_stages_and_growth(tmp_path):
    ours = {"seconds": 2.0, "compile_seconds": 0.0, "gradients": 10, "forward_equivalents": 4e5}
    ours |= {"evidence_gap": 0.1, "weight_gap": 0.0, "two_sample_accuracy": 0.5}
    ours |= {"reference_weight_error": 0.002, "reference_weight_khat": 0.4}
    ours |= {"energy": 1.0, "crps": 0.1, "stages": {"search": 0.5, "refine": 1.5}}
    ours |= {"verdict": "refined", "khat": 0.61, "ess": 812.3}
    grown = {"seconds": 3.0, "forward_equivalents": 1e6, "modes": 2}
    cells = {
        "latentuq blur 0": ours,
        "latentuq blur 1": ours | {"verdict": "unreliable"},
        "machine": {"matmul_gflops": 100.0, "forward_mflop": {"blur": 0.25}},
        "dimension 32": grown | {"refinements": 1, "verdict": "refined"},
        "starts 64": grown,
    }
    setup = {"model": "m", "model_checksum": "0123456789abcdef", "model_error": "low-rank"}
    page = write_bench(cells, setup, tmp_path, "a command").read_text()
    # 0.4 million evaluations of 0.25 MFLOP in 2 s are 50 GFLOP/s.
    assert (
        "| `blur` | 2.00 | 0.50 | 0.00 | 1.50 | 0.00 | 1 refined, 1 unreliable | 0.61 | 812 | 50% |"
        in page
    )
    assert "standard errors of `blur` 0.002 (k-hat 0.40)" in " ".join(page.split())
    assert "| dimension 32 | 3.00 | 1.000 | 2 | 1 | refined |" in page
    assert "| starts 64 | 3.00 | 1.000 | 2 |  |  |" in page


def test_the_page_holds_times_against_the_bars(tmp_path):
    run = {"compile_seconds": 0.0, "gradients": 10, "forward_equivalents": 4e5, "energy": 1.0}
    run |= {"weight_gap": 0.0, "two_sample_accuracy": 0.5, "crps": 0.1, "reference_error": 0.0}
    cells = {
        "latentuq blur 0": run | {"seconds": 2.0, "evidence_gap": 0.1},
        "adam-batched blur 0": run | {"seconds": 5.0, "evidence_gap": 1.0},
        "smc blur 0": run | {"seconds": 8.0, "evidence_gap": -0.3},
    }
    setup = {"model": "m", "model_checksum": "0123456789abcdef", "model_error": "low-rank"}
    page = write_bench(cells, setup, tmp_path, "a command").read_text()
    assert "| paper's Adam recipe, batched | 3 | 2.5 |" in page
    # Nine runs have the error of one of ours; with a shared plan they cost five calls.
    assert "| SMC from the prior, at equal error | 10 | 20.0 |" in page


def test_what_a_pass_costs(prior):
    machine = measure_machine(prior)
    assert machine["matmul_gflops"] > 0
    # Decoder and flow have about half a million weights, each multiplied and added once; all pixels
    # are made, whatever the mask hides.
    cost = machine["forward_mflop"]
    assert 0.8 < cost["blur"] < 2
    assert cost["sparse95"] == pytest.approx(cost["blur"], rel=0.05)


def test_how_the_cost_grows(prior):
    jobs = scaling_jobs(prior)
    assert len(jobs) == 1 + 4 + 2 + 3
    solved, searched = jobs["dimension 2"]({}), jobs["starts 64"]({})
    assert {"seconds", "forward_equivalents", "modes"} <= {*solved} & {*searched}
    assert verdict_word(solved) in ("reliable", "refined", "unreliable")


def test_what_is_unknown_is_named(prior, fake, tmp_path):
    with pytest.raises(UserError, match="no 'nuts' to compare; there are latentuq"):
        run_bench(Plan(prior, {}, ["nuts"], ["blur"], 1), tmp_path / "b.json")


def test_draws_that_are_not_numbers_are_as_bad_as_can_be(posts):
    post = posts["solidmask"]
    reference = references(posts)["solidmask", EXPERIMENTS["solidmask"].image]
    truth = Truth(post, reference, own_masses(None, post, None))
    found = compare_draws(jax.random.key(0), truth, np.full((50, post.dim), np.nan))
    assert found["weight_gap"] == found["two_sample_accuracy"] == 1.0
    assert found["compared_draws"] == 0
    heaviest = np.argsort(-truth.masses.values)[:2]
    assert found["reference_weight_error"] == pytest.approx(truth.masses.errors[heaviest].max())
    assert found["reference_weight_khat"] == 0.3


def test_draws_that_repeat_are_compared_once(posts):
    post = posts["solidmask"]
    reference = references(posts)["solidmask", EXPERIMENTS["solidmask"].image]
    truth = Truth(post, reference, own_masses(None, post, None))
    draws = np.unique(reference.draws, axis=0)
    found = compare_draws(jax.random.key(0), truth, np.tile(draws, (20, 1)))
    # A thousand of twenty times as many as there are.
    assert 0.85 * len(draws) < found["compared_draws"] <= len(draws)


def test_masses_are_known_better_than_from_draws():
    density, shares = two_gaussians(3, 8.0, (0.9, 0.1)), np.array([0.9, 0.1])
    post = lu.solve_density(jax.random.key(0), density.log_prob, 3, scale=3.0)
    # A reference that knows of the heavy mode alone: the other one is known to our proposal.
    draws = np.asarray(density.sample(jax.random.key(1), 2000))
    heavy = draws[np.argmax(post.responsibilities(draws), axis=1) == 0]
    masses, errors, khat = mode_masses(jax.random.key(2), post, heavy, number=8192)
    assert khat < 0.7
    assert np.all(errors < 0.005)
    np.testing.assert_array_less(np.abs(masses - shares), 4 * errors)


def test_weights_are_held_against_the_masses(posts):
    post = posts["sparse95"]
    assert len(post.weights) > 1
    reference = references(posts)["sparse95", EXPERIMENTS["sparse95"].image]
    draws = np.asarray(post.sample(jax.random.key(0), 300))
    masses = np.asarray(post.responsibilities(draws)).mean(axis=0)
    for off in (0.0, 0.2):
        shifted = masses + off * np.eye(len(masses))[np.argmax(masses)]
        truth = Truth(post, reference, Masses(shifted, 0 * masses, 0.3))
        found = compare_draws(jax.random.key(0), truth, draws)
        assert found["weight_gap"] == pytest.approx(off, abs=1e-5)


def test_published_references_can_be_read(prior):
    found = read_references(DRAWS, prior)
    assert len(found) == 16
    assert {corruption for corruption, _ in found} == set(EXPERIMENTS)
    with pytest.raises(UserError, match="another model"):
        read_references(DRAWS, lu.load_prior("fashion-mnist"))


def test_every_method_has_a_title_and_a_marker_of_its_own():
    assert len({method.title for method in METHODS.values()}) == len(METHODS)
    assert len(set(_MARKERS)) == len(_MARKERS) >= len(METHODS)
