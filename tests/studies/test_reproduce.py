import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentuq as lu
from latentuq.core.cells import commit
from latentuq.core.errors import UserError
from latentuq.problem.experiments import EXPERIMENTS
from studies.reproduce import fit_claims, posterior_claims, published, search_claims, svi_claims
from studies.reproduce.figures import FIGURES, mosaic, parting_axes
from studies.reproduce.gaussians import (
    EL2O,
    HESSIANS,
    LAPLACE,
)
from studies.reproduce.numbers import make_table
from studies.reproduce.page import make_claims, make_page, write_page
from studies.reproduce.posteriors import compare_image, measure_truths, read_digits
from studies.reproduce.run import (
    FAMILIES,
    MASKED,
    MODELS,
    NOISY,
    OURS,
    RATES,
    SAMPLES,
    THEIRS,
    VARIANTS,
    Plan,
    make_jobs,
    make_setup,
    run_cells,
)
from studies.reproduce.variational import (
    DIAGONALS,
)

RESULTS = Path(__file__).parents[1] / "docs" / "results"
DIM = 10


@pytest.mark.parametrize(
    ("both", "annealed", "plain", "answer"),
    [
        (0, 0, 0, "nothing to avoid"),
        # 2 / 2^6 = 0.03 and 2 / 2^5 = 0.06.
        (3, 0, 6, "Yes."),
        (3, 6, 0, "reverse"),
        (0, 0, 5, "No difference"),
        (9, 0, 0, "No difference"),
    ],
)
def test_paired_starts_are_compared_by_a_test(both, annealed, plain, answer):
    rest = 40 - both - annealed - plain
    first = [True] * both + [True] * annealed + [False] * plain + [False] * rest
    second = [True] * both + [False] * annealed + [True] * plain + [False] * rest
    found, words = search_claims.compare_pairs(first, second)
    assert answer in found
    assert f"{both + annealed} of 40 with annealing, {both + plain} without" in words


@pytest.fixture(scope="module")
def plan():
    """The embedded model stands for both: it is the smaller one."""
    prior = lu.load_prior("mnist")
    return Plan(dict.fromkeys(MODELS, prior), 0)


def test_an_image_is_read_and_compared(plan):
    prior, digit = plan.priors[OURS], lu.load_digits().digit(6)
    u, _ = prior.flow.inverse(prior.encoder(jnp.asarray(digit))[0])
    assert read_digits(prior, u[None]) == [4]
    found = compare_image(prior, u, digit)
    # The very point that the floor is taken at, but for the flow's rounding.
    assert found["rms"] == pytest.approx(found["floor"], rel=1e-3)
    assert compare_image(prior, -u, digit)["rms"] > 1.5 * found["floor"]


def make_cells(nines=0.3, our_nines=0.0, stalls=(1, 9), svi_mean=0.35, broken=0):
    """Cells of a run that never was; the arguments decide what the page says."""
    rng = np.random.default_rng(0)
    classes = {THEIRS: nines, OURS: our_nines}
    cells = {}
    gaussian = {
        "mean": [0.0] * DIM,
        "factor": np.eye(DIM).tolist(),
        "elbo": -1.0,
        "elbo_error": 0.01,
        "forward_equivalents": 1000,
    }
    for model in MODELS:
        cells[f"prior {model}"] = {
            "model_error": "scalar",
            "dim": DIM,
            "vae": {"blocks": 4, "width": 512, "activation": "leaky_relu"},
            "flow": {"depth": 8, "width": 512},
            "block_layers": 2,
            "flow_layers": 2,
            "vae_fit": {"batch": 1024, "learning_rate": 1e-3},
            "sigma_model": 0.101,
            "image_c2st_before": 0.9,
            "image_c2st_after": 0.6,
        }
        share = classes[model]
        draws = rng.normal(size=(200, DIM))
        digits = np.where(np.arange(200) < 200 * share, 9, 4)
        draws[digits == 9, 0] += 5
        for name in EXPERIMENTS:
            cells[f"posterior {model} {name}"] = {
                "seconds": 12.0,
                "verdict": "refined: because.",
                "khat": 0.5,
                "log_evidence": 0.0,
                "log_evidence_error": 0.02,
                "relevant_modes": 2,
                "weights": [0.7, 0.3],
                "weight_errors": [0.01, 0.01],
                "map": [0.1] * DIM,
                "map_digit": 4,
                "chi_squared": 100.0,
                "data": 40 if name == "sparse95" else 392,
                "p_value": 0.5,
                "classes": [0.0] * 4 + [1 - share] + [0.0] * 4 + [share],
                "mean": [0.4] * DIM,
                "std": [1.0] * DIM,
                "samples": draws[:16].tolist(),
                "draws": draws.tolist(),
                "digits": digits.tolist(),
                "starts": 128,
                "independent_starts": 64,
                "starts_needed": 7,
                "ends": (3 + rng.uniform(size=20)).tolist(),
                "rms": 0.1,
                "floor": 0.09,
            }
        for name in (MASKED, NOISY):
            for variant, stalled in zip(VARIANTS, stalls, strict=True):
                cells[f"recipe {model} {name} {variant}"] = {
                    "starts": 20,
                    "steps": 1600,
                    "seconds": 10.0,
                    "ends": (3 + rng.uniform(size=20)).tolist(),
                    "forward_equivalents": 2000,
                    "definite": [True] * 20,
                    "gains": [1.0] * stalled + [0.0] * (20 - stalled),
                    "basins": [0, 1] * 10,
                    "minima": 2,
                    "weights": [0.7, 0.3],
                    "log_evidence": 0.5,
                    "draws": draws.tolist(),
                    "digits": digits.tolist(),
                    "classes": [0.0] * 4 + [1 - share] + [0.0] * 4 + [share],
                }
        cells[f"gaussians {model}"] = {"fits": dict.fromkeys((LAPLACE, EL2O, HESSIANS), gaussian)}
        cells[f"limit {model}"] = gaussian | {"elbo": -0.5, "samples": 2048, "iterations": 30}
        for family in FAMILIES:
            cells[f"svi {model} {family}"] = gaussian | {
                "mean": [svi_mean] * DIM,
                "elbo": -0.5,
                "samples": 512,
                "steps": 10000,
                "converged": 4321,
                "seconds": 150.0,
                "finite": True,
                "rms": 0.12,
            }
        steps = np.linspace(-1, 1, 9)
        curve = {
            "direction": 3,
            "steps": steps.tolist(),
            "exact": (steps**2).tolist(),
            "fits": {name: (steps**2).tolist() for name in (LAPLACE, EL2O, *FAMILIES)},
        }
        cells[f"slices {model}"] = {"curves": [curve] * 3}
    cells["noise"] = {
        "plain": 0.2,
        "el2o": 1e-7,
        "el2o_kl": 1e-9,
        "samples": 32,
        "repeats": 64,
        "svi_kl": 1e-2,
        "path_kl": 1e-6,
    }
    for samples in SAMPLES:
        run = cells[f"svi {OURS} full-rank"] | {"elbo": -0.5 - 1 / samples, "elbo_error": 0.01}
        cells[f"samples {samples}"] = {"runs": [run]}
    for diagonal in DIAGONALS:
        for rate in RATES:
            bad = broken if rate == RATES[-1] else 0
            cells[f"stability {diagonal} {rate:g}"] = {
                "runs": 4,
                "broken": bad,
                "fallen": 0,
                "elbos": [-3.0] * 4,
                "steps": 600,
                "samples": 32,
            }
    for name in EXPERIMENTS:
        cells[f"truth {name}"] = {"rms": [0.1, 0.2], "floor": [0.1, 0.1], "right": [True, False]}
    return {name: cell | {"commit": "abc1234"} for name, cell in cells.items()}


def test_every_job_has_a_cell_on_the_page(plan):
    assert set(make_jobs(plan)) == set(make_cells())


def test_the_page_says_what_the_cells_say(plan):
    page = make_page(make_cells(), make_setup(plan), "a command")
    text = " ".join(page.split())
    assert "Under `mnist-paper` yes, under `mnist` no." in text
    assert "under `mnist-paper` a 4 (0.70) and a 9 (0.30); under `mnist` a 4 (1.00)" in text
    assert "| 4 of 10 | 10 of 20 | 10 of 20 |" in page
    assert "| 0.9992 / 0.0008 | 0.700 / 0.300 | 0.700 / 0.300 |" in page
    assert "4 of 80 with annealing, 36 without" in text
    assert "4321 of 10000" in page
    assert "27 times too much" in text
    for name in FIGURES:
        assert f"(paper-{name}.png)" in page
    longest = max(len(line) for line in page.splitlines() if line[:1] not in "|#!")
    assert longest <= 100
    assert len(make_claims(make_cells())) == page.count("\n### ")
    # A bar in a word would add a column.
    tables = [part.splitlines() for part in page.split("\n\n") if part.startswith("|")]
    assert all(len({line.count("|") for line in lines}) == 1 for lines in tables)


def test_the_committed_page_is_that_of_the_committed_cells():
    contents = json.loads((RESULTS / "paper.json").read_text())
    page = (RESULTS / "paper.md").read_text()
    command = page.partition("Written by `")[2].partition("`")[0]
    assert make_page(contents["cells"], contents["setup"], " ".join(command.split())) == page


def test_another_outcome_changes_the_words():
    cells = make_cells
    assert posterior_claims.check_two_digits(cells(our_nines=0.4)).answer.startswith("Yes, under")
    assert posterior_claims.check_two_digits(cells(nines=0.0)).answer.startswith("No")
    other = posterior_claims.check_two_digits(cells(nines=0.0, our_nines=0.4))
    assert other.answer == "Under `mnist` yes, under `mnist-paper` no."
    assert search_claims.check_annealing(cells()).answer == "Yes."
    assert "reverse" in search_claims.check_annealing(cells(stalls=(9, 1))).answer
    # Means of SVI at 0.35, the mode at 0.1 and the posterior's mean at 0.4.
    assert svi_claims.check_means(cells()).answer == "Away: yes. A fault: no."
    assert svi_claims.check_means(cells(svi_mean=0.2)).answer.startswith("Away: in 0 of 4 fits.")
    assert svi_claims.check_means(cells(svi_mean=3.0)).answer.endswith("in 4 of 4 fits.")
    assert svi_claims.check_stability(cells()).answer == "Not seen in 600 steps under `mnist`."
    assert "higher ones" in svi_claims.check_stability(cells(broken=2)).answer
    assert fit_claims.check_noise(cells()).answer == "Yes."
    assert search_claims.check_truth(cells()).answer == "Yes, in all examples."
    worse = cells()
    worse[f"posterior {OURS} blur"]["rms"] = 0.5
    assert search_claims.check_truth(worse).answer == "In 7 of 8 cases."


def test_data_that_fit_too_well_do_fit():
    cells = make_cells()
    assert posterior_claims.check_data(cells).answer == "Yes."
    cells[f"posterior {OURS} blur"]["p_value"] = 0.999
    claim = posterior_claims.check_data(cells)
    assert claim.answer.startswith("Yes; in 1 case more closely than the stated error")
    assert "black border" in claim.evidence
    cells[f"posterior {THEIRS} blur"]["p_value"] = 0.001
    answer = posterior_claims.check_data(cells).answer
    assert answer == "Not always: not for `blur` under `mnist-paper` (p = 0.001)."


def test_weights_are_compared_digit_by_digit():
    cells = make_cells()
    assert posterior_claims.check_weights(cells).answer == "Roughly."
    cells[f"recipe {OURS} {MASKED} annealed"]["classes"] = [0.0] * 5 + [1.0] + [0.0] * 4
    claim = posterior_claims.check_weights(cells)
    assert claim.answer == "Roughly under `mnist-paper`, not under the other prior."
    assert "| `mnist` | a 5 (1.00) | a 4 (1.00) | 1.00 | +0.50 |" in claim.evidence
    cells[f"recipe {THEIRS} {MASKED} annealed"] |= {"classes": [], "log_evidence": None}
    claim = posterior_claims.check_weights(cells)
    assert claim.answer == "No."
    assert "| no minimum |" in claim.evidence


def test_both_divergences_judge_the_accuracy():
    # ELBOs of -1 and -0.5; as Gaussians of one width, those nearer to the draws fit them better.
    worse = fit_claims.check_accuracy(make_cells(our_nines=0.3, svi_mean=0.1))
    assert worse.answer == "Than mean-field SVI: no. Than full-rank SVI: no."
    mixed = fit_claims.check_accuracy(make_cells(svi_mean=3.0))
    assert "Than full-rank SVI: no by KL(q given p), yes by KL(p given q)." in mixed.answer
    cells = make_cells(svi_mean=3.0)
    cells[f"svi {OURS} full-rank"]["elbo"] = -2.0
    claim = fit_claims.check_accuracy(cells)
    assert (
        "full-rank SVI: under `mnist` only by KL(q given p), yes by KL(p given q)." in claim.answer
    )
    # The search of 10 of 20 starts costs 1000, and each fit as much.
    assert "| `mnist` | EL2O, gradients | 1.00 ± 0.02 |" in claim.evidence
    assert claim.evidence.count("| 0.002 |") == 6
    assert "costs 0.5 (`mnist-paper`) and 0.5 (`mnist`) times as much" in claim.evidence


def test_agreement_is_that_of_the_bounds():
    cells = make_cells()
    cells[f"limit {OURS}"]["elbo"] = -0.45
    agreed = fit_claims.check_agreement(cells)
    assert agreed.answer == "Yes, within 0.05 nats of the ELBO."
    cells[f"limit {OURS}"]["elbo"] = -0.9
    answer = fit_claims.check_agreement(cells).answer
    assert answer == "Under `mnist-paper` only, within 0.00 nats of the ELBO."
    cells[f"limit {THEIRS}"]["elbo"] = -1.0
    answer = fit_claims.check_agreement(cells).answer
    assert answer == "No: the ELBOs differ by up to 0.50 nats."
    # A difference within the errors is none.
    for model in MODELS:
        cells[f"limit {model}"]["elbo_error"] = 0.2
    assert fit_claims.check_agreement(cells).answer.startswith("Yes")


def test_runs_that_have_not_converged_are_named():
    cells = make_cells()
    assert "converged" not in svi_claims.check_stability(cells).evidence
    for diagonal in DIAGONALS:
        cells[f"stability {diagonal} {RATES[0]:g}"]["elbos"] = [-40.5, None, -40.5, -40.5]
    assert "at a rate of 0.001 by 40 nats." in svi_claims.check_stability(cells).evidence
    cells[f"svi {OURS} full-rank"]["finite"] = False
    assert svi_claims.check_stability(cells).answer == "Yes."


def test_more_draws_help_until_they_do_not():
    # KL falls by 1 / draws: far from 2 to 512, not measurably from 32 on.
    assert svi_claims.check_samples(make_cells()).answer == "Up to 32 draws, not beyond."
    evidence = svi_claims.check_samples(make_cells()).evidence
    # The bars of 3 hypot(0.01, 0.01) are alike here, but each gap has its own.
    assert "falls by 0.500 nats (three standard errors: 0.042)" in evidence
    assert "from 32 to 512 by 0.031 (0.042)" in evidence
    assert "With 2, 8, 32 and 512 draws there is one run each" in evidence
    flat = make_cells()
    for samples in SAMPLES:
        flat[f"samples {samples}"]["runs"][0]["elbo"] = -0.5
    assert svi_claims.check_samples(flat).answer == "No."


def test_numbers_that_agree_need_no_reason(plan):
    page = make_page(make_cells(), make_setup(plan), "a command")
    (row,) = [line for line in page.splitlines() if line.startswith("| flow |")]
    assert row.endswith("|  |")
    (row,) = [line for line in page.splitlines() if line.startswith("| noise, `blur` |")]
    assert "singular" in row


def find_row(cells, start):
    (row,) = [line for line in make_table(cells).splitlines() if line.startswith(f"| {start}")]
    return [part.strip() for part in row.strip("|").split(" | ")]


def test_weights_differ_by_their_errors():
    cells, name = make_cells(), f"weights, certified, `{NOISY}`"
    # 0.9992 and 0.0008 are published.
    for model in MODELS:
        cells[f"posterior {model} {NOISY}"] |= {
            "weights": [0.95, 0.05],
            "weight_errors": [0.02, 0.02],
        }
    assert find_row(cells, name)[-1] == ""
    cells[f"posterior {OURS} {NOISY}"]["weight_errors"] = [0.016, 0.014]
    assert "another posterior" in find_row(cells, name)[-1]
    cells[f"posterior {OURS} {NOISY}"] |= {"weights": [1.0], "weight_errors": [0.0]}
    assert find_row(cells, name)[-1] == ""


def test_ratios_differ_by_a_factor_of_two():
    cells, name = make_cells(), "SVI, full-rank: cost over that of ten starts of Adam"
    # Ten of the twenty starts cost 1000; the paper's ratio is 1.7 to 1.85.
    for cost, differs in ((1000, False), (3600, False), (3800, True), (800, True)):
        cells[f"svi {OURS} full-rank"]["forward_equivalents"] = cost
        row = find_row(cells, name)
        assert row[1:4] == ["1.7 (seconds)", "1.0", f"{cost / 1000:.1f}"]
        # 170 seconds for 8000 steps, 10 for 1600.
        assert ("takes only 3.4 times" in row[-1]) == differs
        assert ("half of our batch of 20 starts" in row[-1]) == differs


def test_what_the_corruptions_remove():
    cells = make_cells()
    assert find_row(cells, f"columns removed, `{NOISY}`")[1:] == ["14 to 27"] * 3 + [""]
    assert find_row(cells, f"columns removed, `{MASKED}`")[1:] == ["10 to 23"] * 3 + [""]
    kernel = find_row(cells, "Gaussian kernel")
    assert kernel[1:] == ["standard deviation 3, 11x11"] * 3 + [""]
    assert find_row(cells, "flow")[1:] == ["8 couplings, [512, 512]"] * 3 + [""]
    assert find_row(cells, "decoder")[2] == "4 blocks of 2 layers of 512, LeakyReLU"
    assert find_row(cells, "dominating minima")[1:] == ["2", "2", "2", ""]
    cells[f"recipe {OURS} {MASKED} annealed"]["weights"] = [0.95, 0.05]
    assert find_row(cells, "dominating minima")[1:] == [
        "2",
        "2",
        "1",
        "Other networks have other minima.",
    ]
    digits = find_row(make_cells(our_nines=0.3), "digits above 2%")
    assert digits[1:] == ["a 4 and a 9"] + ["a 4 (0.70) and a 9 (0.30)"] * 2 + [""]


def test_a_recipe_without_a_minimum_leaves_its_panel_empty(plan):
    cells = make_cells()
    assert "2 minima, and in draws" in " ".join(make_page(cells, make_setup(plan), "").split())
    empty = {"draws": [], "digits": [], "classes": [], "weights": [], "log_evidence": None}
    cells[f"recipe {THEIRS} {MASKED} annealed"] |= empty | {"minima": 0, "basins": [-1] * 20}
    text = " ".join(make_page(cells, make_setup(plan), "").split())
    assert "found no minimum, so the first panel is empty" in text
    first, second, _ = FIGURES["figure3"](cells, plan).axes
    assert first.get_legend() is None
    shown = [label.get_text() for label in second.get_legend().get_texts()]
    assert shown == ["4: 70%", "9: 30%"]


def test_fewer_draws_are_explained_by_the_work_of_all(plan):
    cells = make_cells()
    cells[f"svi {THEIRS} full-rank"] |= {"samples": 32, "steps": 1000}
    # 16 times the draws and 10 times the steps.
    assert "would be 160 times as many evaluations" in make_page(cells, make_setup(plan), "")


def test_figures_are_drawn_at_web_size(plan, tmp_path):
    page = write_page(make_cells(), make_setup(plan), plan, tmp_path, "a command")
    assert page == tmp_path / "paper.md"
    for name in FIGURES:
        assert 5_000 < (tmp_path / f"paper-{name}.png").stat().st_size < 200_000
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".md"] + [".png"] * len(FIGURES)


def test_the_plane_parts_the_digits():
    rng = np.random.default_rng(0)
    draws, digits = rng.normal(size=(300, 4)), np.repeat([4, 9, 1], (110, 100, 90))
    draws[:, 2] *= 0.1
    draws[digits == 9, 2] += 2
    basis = parting_axes(draws, digits)
    assert basis.digits == (4, 9)
    assert abs(basis.axes[2, 0]) > 0.95
    np.testing.assert_allclose(basis.axes.T @ basis.axes, np.eye(2), atol=1e-9)
    assert parting_axes(draws, np.full(300, 4)).digits == ()


def test_tiles_lie_on_white():
    sheet = mosaic([np.zeros((2, 3, 3), np.uint8)] * 3, 2)
    assert sheet.shape == (6, 8, 3)
    assert np.all(sheet[:2, :3] == 0)
    assert np.all(sheet[4:, 5:] == 255)


def test_cells_are_measured_once_and_written(plan, tmp_path):
    path, seen = tmp_path / "paper.json", []

    def interrupt(cells):
        raise KeyboardInterrupt

    jobs = {"one": lambda cells: {"value": float("nan")}, "two": interrupt}
    with pytest.raises(KeyboardInterrupt):
        run_cells(plan, path, lambda name, cell: seen.append(name), jobs)
    stamp = {"commit": commit()}
    assert json.loads(path.read_text())["cells"] == {"one": {"value": None} | stamp}
    jobs = {"one": interrupt, "two": lambda cells: {"before": list(cells)}}
    cells = run_cells(plan, path, lambda name, cell: seen.append(name), jobs)
    assert cells["two"] == {"before": ["one"]} | stamp
    assert seen == ["one", "two"]
    assert [file.name for file in tmp_path.iterdir()] == ["paper.json"]
    with pytest.raises(UserError, match="another model, seed or setting"):
        run_cells(plan._replace(seed=1), path, jobs=jobs)
    path.write_text("{}")
    with pytest.raises(UserError, match="not a file of `latentuq reproduce`"):
        run_cells(plan, path, jobs=jobs)


def test_keys_do_not_depend_on_the_order(plan):
    data = [jax.random.key_data(plan.key(name)).tolist() for name in ("a", "b", "a")]
    assert data[0] == data[2] != data[1]
    other = jax.random.key_data(plan._replace(seed=1).key("a")).tolist()
    assert other != data[0]


def test_what_was_published_is_consistent():
    assert sum(published.MASKED_WEIGHTS) == pytest.approx(1, abs=2e-3)
    assert sum(published.NOISY_WEIGHTS) == pytest.approx(1)
    assert EXPERIMENTS[NOISY].noise_std == published.NOISE


def test_the_lowest_minimum_of_another_digit(plan):
    found = measure_truths(jax.random.key(0), plan.priors[OURS], NOISY, lu.load_digits(), 1)
    assert len(found["rms"]) == len(found["right"]) == 1
    assert found["images"][0] not in {experiment.image for experiment in EXPERIMENTS.values()}
    assert found["floor"][0] < found["rms"][0] < 0.5


@pytest.mark.parametrize(
    ("folder", "message"),
    [("text.png/x", "cannot be made"), (".", "is not a file of `latentuq reproduce`")],
)
def test_bad_input_is_one_sentence_and_exit_code_2(folder, message, tmp_path):
    (tmp_path / "text.png").write_text("not a folder")
    (tmp_path / "paper.json").write_text('{"cells": 3}')
    program = "from latentuq.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "reproduce", "-o", folder],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["paper.json", "text.png"]
