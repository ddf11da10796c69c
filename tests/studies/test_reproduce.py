"""The page that puts the paper to the test: other numbers must change its words."""

import copy
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentuq as lu
from latentuq.core.cells import read_file
from latentuq.problem.experiments import EXPERIMENTS
from studies.pages import RESULTS
from studies.reproduce import fit_claims, posterior_claims, published
from studies.reproduce.figures import FIGURES, mosaic, parting_axes
from studies.reproduce.gaussians import EL2O, HESSIANS, LAPLACE
from studies.reproduce.numbers import make_rows
from studies.reproduce.page import CLAIMS, make_page
from studies.reproduce.plan import (
    FAMILIES,
    MASKED,
    MODELS,
    NOISY,
    OURS,
    RATES,
    REPEATS,
    THEIRS,
    Plan,
)
from studies.reproduce.posteriors import compare_image, describe_digits, measure_truths
from studies.reproduce.run import make_jobs, reproduce
from studies.reproduce.variational import DIAGONALS

DIM = 10
SETUP, MEASURED = read_file(RESULTS / "paper.json")


@pytest.fixture
def cells():
    """What has been measured, for a test to change."""
    return copy.deepcopy(MEASURED)


@pytest.fixture(scope="module")
def plan():
    """The embedded model stands for both: it is the smaller one."""
    return Plan(dict.fromkeys(MODELS, lu.load_prior("mnist")), 0)


def change(cells, start, **values):
    """Changes all cells whose name starts with these words."""
    for name in cells:
        if f"{name} ".startswith(f"{start} "):
            cells[name] |= copy.deepcopy(values)


def shares(**digits):
    """Probabilities of digits, as of d4=0.7, d9=0.3."""
    return [digits.get(f"d{digit}", 0.0) for digit in range(10)]


def find_row(cells, start):
    (row,) = [line for line in make_rows(cells).splitlines() if line.startswith(f"| {start}")]
    return [part.strip() for part in row.strip("|").split(" | ")]


def test_the_committed_page_is_that_of_the_committed_cells():
    page = (RESULTS / "paper.md").read_text()
    command = " ".join(page.partition("Written by `")[2].partition("`")[0].split())
    assert make_page(MEASURED, SETUP, command) == page


@pytest.mark.slow
def test_the_committed_cells_are_resumed(tmp_path):
    (tmp_path / "paper.json").write_text(json.dumps({"setup": SETUP, "cells": MEASURED}))
    measured = []
    page = reproduce(tmp_path, SETUP["seed"], "a command", lambda name, cell: measured.append(name))
    assert measured == []
    assert page == tmp_path / "paper.md"
    assert "Written by `a command`" in page.read_text()
    for name in FIGURES:
        assert f"(paper-{name}.png)" in page.read_text()
        assert 5_000 < (tmp_path / f"paper-{name}.png").stat().st_size < 200_000


def test_every_job_has_a_committed_cell(plan):
    assert set(make_jobs(plan)) == set(MEASURED)


def test_the_page_is_well_formed(cells):
    parts = make_page(cells, SETUP, "a command").split("\n\n")
    questions = [part for part in parts if part.startswith("### ")]
    assert len(questions) == len(CLAIMS)
    (summary,) = [part for part in parts if part.startswith("| claim | answer |")]
    assert all(question[4:] in summary for question in questions)
    text = [part for part in parts if not part.startswith(("|", "#", "!"))]
    assert max(len(line) for part in text for line in part.splitlines()) <= 100
    assert not re.search(r"\bnan\b|None|\{|  ", " ".join(text))
    # A bar in a word would add a column.
    tables = [part.splitlines() for part in parts if part.startswith("|")]
    assert all(len({line.count("|") for line in lines}) == 1 for lines in tables)


def test_keys_do_not_depend_on_the_order(plan):
    data = [jax.random.key_data(plan.key(name)).tolist() for name in ("a", "b", "a")]
    assert data[0] == data[2] != data[1]
    assert jax.random.key_data(plan._replace(seed=1).key("a")).tolist() != data[0]


@pytest.mark.parametrize(
    ("theirs", "ours", "answer"),
    [
        (0.3, 0.4, "Yes, under both priors."),
        (0.3, 0.0, "Under `mnist-paper` yes, under `mnist` no."),
        (0.0, 0.4, "Under `mnist` yes, under `mnist-paper` no."),
        (0.0, 0.0, "No, under neither prior."),
    ],
)
def test_two_digits(theirs, ours, answer, cells):
    for model, nines in ((THEIRS, theirs), (OURS, ours)):
        change(cells, f"posterior {model} {MASKED}", classes=shares(d4=1 - nines, d9=nines))
    found = posterior_claims.check_two_digits(cells)
    assert found["short"] == answer
    if theirs and not ours:
        seen = "under `mnist-paper` a 4 (0.70) and a 9 (0.30); under `mnist` a 4 (1.00)"
        assert found["seen"] == seen


@pytest.mark.parametrize(
    ("both", "annealed", "plain", "answer"),
    [
        (0, 0, 0, "nothing to avoid"),
        # 2 / 2^6 = 0.03 and 2 / 2^5 = 0.06.
        (3, 0, 6, "Yes."),
        (3, 6, 0, "stall more often"),
        (0, 0, 5, "no difference"),
        (9, 0, 0, "no difference"),
    ],
)
def test_paired_starts_are_compared_by_a_test(both, annealed, plain, answer):
    rest = 40 - both - annealed - plain
    first = [True] * both + [True] * annealed + [False] * plain + [False] * rest
    second = [True] * both + [False] * annealed + [True] * plain + [False] * rest
    found, words = posterior_claims.compare_pairs(first, second)
    assert answer in found
    assert f"{both + annealed} of 40 with annealing, {both + plain} without" in words


def test_starts_that_stall_are_counted(cells):
    change(cells, "recipe", definite=[True] * 20, gains=[0.0] * 20)
    for model in MODELS:
        change(cells, f"recipe {model} {MASKED} plain", gains=[1.0] * 9 + [0.0] * 11)
    found = posterior_claims.check_annealing(cells)
    assert found["short"] == "Yes."
    assert found["stalled"].startswith("0 of 80 with annealing, 18 without")


def test_data_that_fit_too_well_do_fit(cells):
    change(cells, "posterior", p_value=0.5)
    assert posterior_claims.check_data(cells)["short"] == "Yes."
    cells[f"posterior {OURS} blur"]["p_value"] = 0.999
    found = posterior_claims.check_data(cells)
    assert found["short"].startswith("Yes; in 1 case more closely than the stated error")
    assert "black border" in found["remark"]
    cells[f"posterior {THEIRS} blur"]["p_value"] = 0.001
    short = posterior_claims.check_data(cells)["short"]
    assert short == "Not always: not for `blur` under `mnist-paper` (p = 0.001)."


def test_weights_are_compared_digit_by_digit(cells):
    change(cells, "posterior", classes=shares(d4=1.0), log_evidence=0.0)
    change(cells, "recipe", classes=shares(d4=1.0), log_evidence=0.5)
    assert posterior_claims.check_weights(cells)["short"] == "Roughly."
    change(cells, f"recipe {OURS} {MASKED}", classes=shares(d5=1.0))
    found = posterior_claims.check_weights(cells)
    assert found["short"] == "Roughly under `mnist-paper`, not under the other prior."
    assert "| `mnist` | a 5 (1.00) | a 4 (1.00) | 1.00 | +0.50 |" in found["rows"]
    change(cells, f"recipe {THEIRS} {MASKED}", classes=[], log_evidence=None)
    found = posterior_claims.check_weights(cells)
    assert found["short"] == "No."
    assert "| no minimum | a 4 (1.00) | 1.00 | - |" in found["rows"]


def test_the_truth_is_near_or_not(cells):
    change(cells, "posterior", rms=0.1, floor=0.09)
    assert posterior_claims.check_truth(cells)["short"] == "Yes, in all examples."
    cells[f"posterior {OURS} blur"]["rms"] = 0.5
    assert posterior_claims.check_truth(cells)["short"] == "In 7 of 8 cases."


def make_fits(cells, svi_mean):
    """Unit Gaussians at 0 with an ELBO of -1, for SVI of -0.5; ln evidence and draws about 0."""
    fit = {"factor": np.eye(DIM).tolist(), "elbo_error": 0.01, "forward_equivalents": 1000}
    at_zero = fit | {"mean": [0.0] * DIM, "elbo": -1.0}
    draws = np.random.default_rng(0).normal(size=(200, DIM)).tolist()
    change(cells, "gaussians", fits=dict.fromkeys((LAPLACE, EL2O, HESSIANS), at_zero))
    change(cells, "svi", **fit, mean=[svi_mean] * DIM, elbo=-0.5, finite=True)
    change(cells, "limit", **at_zero)
    change(cells, "recipe", starts=20, forward_equivalents=2000)
    change(cells, "posterior", log_evidence=0.0, log_evidence_error=0.02, draws=draws)
    change(cells, "posterior", map=[0.1] * DIM, mean=[0.4] * DIM, std=[1.0] * DIM)


def test_both_divergences_judge_the_accuracy(cells):
    # As Gaussians of one width, those nearer to the draws fit them better.
    make_fits(cells, svi_mean=0.0)
    assert fit_claims.check_accuracy(cells)["short"] == (
        "More accurate than mean-field SVI: no. More accurate than full-rank SVI: no."
    )
    make_fits(cells, svi_mean=3.0)
    mixed = fit_claims.check_accuracy(cells)["short"]
    assert "than full-rank SVI: no by KL(q given p), yes by KL(p given q)." in mixed
    cells[f"svi {OURS} full-rank"]["elbo"] = -2.0
    found = fit_claims.check_accuracy(cells)
    wanted = "full-rank SVI: under `mnist` only by KL(q given p), yes by KL(p given q)."
    assert wanted in found["short"]
    # The search of 10 of 20 starts costs 1000, and each fit as much.
    assert "| `mnist` | EL2O, gradients | 1.00 ± 0.02 |" in found["rows"]
    assert found["rows"].count("| 0.002 |") == 6
    assert found["ratios"] == "0.5 (`mnist-paper`) and 0.5 (`mnist`)"


def test_means_belong_where_the_posterior_is(cells):
    # The mode is at 0.1 and the posterior's mean at 0.4.
    for svi_mean, answer in (
        (0.35, "Away: yes. A fault: no."),
        (0.2, "Away: in 0 of 4 fits. A fault: no."),
        (3.0, "Away: yes. A fault: in 4 of 4 fits."),
    ):
        make_fits(cells, svi_mean)
        assert fit_claims.check_means(cells)["short"] == answer


def test_agreement_is_that_of_the_bounds(cells):
    make_fits(cells, 0.0)
    for theirs, ours, error, answer in (
        (-0.5, -0.45, 0.01, "Yes, within 0.05 nats of the ELBO."),
        (-0.5, -0.9, 0.01, "Under `mnist-paper` only, within 0.00 nats of the ELBO."),
        (-1.0, -0.9, 0.01, "No: the ELBOs differ by up to 0.50 nats."),
        # A difference within the errors is none.
        (-1.0, -0.9, 0.2, "Yes, within 0.50 nats of the ELBO."),
    ):
        change(cells, f"limit {THEIRS}", elbo=theirs, elbo_error=error)
        change(cells, f"limit {OURS}", elbo=ours, elbo_error=error)
        assert fit_claims.check_agreement(cells)["short"] == answer


def test_el2o_is_noisy_or_not(cells):
    change(cells, "noise", plain=0.2, el2o=1e-7, el2o_kl=1e-9)
    assert fit_claims.check_noise(cells)["short"] == "Yes."
    change(cells, "noise", el2o=0.1)
    assert fit_claims.check_noise(cells)["short"] == "No."


def test_instability_and_slowness_are_named(cells):
    make_fits(cells, 0.0)
    change(cells, "stability", broken=0, fallen=0, elbos=[-3.0] * 4, steps=600)
    found = fit_claims.check_stability(cells)
    assert found["short"] == "No instability was seen in 600 steps under `mnist`."
    assert found["unfinished"] == ""
    cells[f"stability softplus {RATES[-1]:g}"]["broken"] = 2
    assert "higher ones" in fit_claims.check_stability(cells)["short"]
    for diagonal in DIAGONALS:
        elbos = [-40.5, None, -40.5, -40.5]
        change(cells, f"stability {diagonal} {RATES[0]:g}", elbos=elbos)
    found = fit_claims.check_stability(cells)
    assert found["unfinished"].endswith("at a rate of 0.001 by 40 nats.")
    cells[f"svi {OURS} full-rank"]["finite"] = False
    assert fit_claims.check_stability(cells)["short"] == "Yes."


def test_more_draws_help_until_they_do_not(cells):
    make_fits(cells, 0.0)
    run = cells[f"svi {OURS} full-rank"]
    # KL falls by 1 / draws: far from 2 to 512, not measurably from 32 on.
    for samples in REPEATS:
        cells[f"samples {samples}"]["runs"] = [run | {"elbo": -0.5 - 1 / samples}]
    found = fit_claims.check_samples(cells)
    assert found["short"] == "Up to 32 draws, not beyond."
    assert found["falls"] == pytest.approx([1 / 2, 1 / 32])
    assert found["bars"] == pytest.approx([3 * np.hypot(0.01, 0.01)] * 2)
    assert found["once"].startswith("With 2, 8, 32 and 512 draws there is one run each")
    for samples in REPEATS:
        cells[f"samples {samples}"]["runs"] = [run]
    assert fit_claims.check_samples(cells)["short"] == "No."


def test_weights_differ_by_their_errors(cells):
    name = f"weights, certified, `{NOISY}`"
    # 0.9992 and 0.0008 are published.
    for model in MODELS:
        start = f"posterior {model} {NOISY}"
        change(cells, start, weights=[0.95, 0.05], weight_errors=[0.02, 0.02])
    assert find_row(cells, name)[-1] == ""
    cells[f"posterior {OURS} {NOISY}"]["weight_errors"] = [0.016, 0.014]
    assert "another posterior" in find_row(cells, name)[-1]
    cells[f"posterior {OURS} {NOISY}"] |= {"weights": [1.0], "weight_errors": [0.0]}
    assert find_row(cells, name)[-1] == ""


def test_ratios_differ_by_a_factor_of_two(cells):
    name = "SVI, full-rank: cost over that of ten starts of Adam"
    # Ten of the twenty starts cost 1000; the paper's ratio is 1.7 to 1.85.
    change(cells, "recipe", starts=20, steps=1600, forward_equivalents=2000)
    change(cells, "svi", forward_equivalents=1000)
    for cost, differs in ((1000, False), (3600, False), (3800, True), (800, True)):
        cells[f"svi {OURS} full-rank"]["forward_equivalents"] = cost
        row = find_row(cells, name)
        assert row[1:4] == ["1.7 (seconds)", "1.0", f"{cost / 1000:.1f}"]
        # 170 seconds for 8000 steps, 10 for 1600.
        assert ("takes only 3.4 times" in row[-1]) == differs
        assert ("half of our batch of 20 starts" in row[-1]) == differs


def test_fewer_draws_are_explained_by_the_work_of_all(cells):
    change(cells, "svi", samples=512, steps=10000)
    assert find_row(cells, "SVI, full-rank: draws")[1:] == ["512"] * 3 + [""]
    cells[f"svi {THEIRS} full-rank"] |= {"samples": 32, "steps": 1000}
    # 16 times the draws and 10 times the steps.
    reason = find_row(cells, "SVI, full-rank: draws")[-1]
    assert reason.startswith("512 draws and 10000 steps would be 160 times as many evaluations")


def test_numbers_that_agree_need_no_reason(cells):
    change(cells, f"prior {OURS}", **{n: MEASURED[f"prior {THEIRS}"][n] for n in ("vae", "flow")})
    assert find_row(cells, f"columns removed, `{NOISY}`")[1:] == ["14 to 27"] * 3 + [""]
    assert find_row(cells, f"columns removed, `{MASKED}`")[1:] == ["10 to 23"] * 3 + [""]
    assert find_row(cells, "Gaussian kernel")[1:] == ["standard deviation 3, 11x11"] * 3 + [""]
    assert find_row(cells, "flow")[1:] == ["8 couplings, [512, 512]"] * 3 + [""]
    assert find_row(cells, "decoder")[2] == "4 blocks of 2 layers of 512, LeakyReLU"
    assert "singular" in find_row(cells, "noise, `blur`")[-1]
    change(cells, "recipe", weights=[0.7, 0.3])
    assert find_row(cells, "dominating minima")[1:] == ["2", "2", "2", ""]
    cells[f"recipe {OURS} {MASKED} annealed"]["weights"] = [0.95, 0.05]
    reason = "Other networks have other minima."
    assert find_row(cells, "dominating minima")[1:] == ["2", "2", "1", reason]
    change(cells, "posterior", classes=shares(d4=0.7, d9=0.3))
    digits = find_row(cells, "digits above 2%")
    assert digits[1:] == ["a 4 and a 9"] + ["a 4 (0.70) and a 9 (0.30)"] * 2 + [""]


def test_what_was_published_is_consistent(cells):
    for corruption, weights in published.WEIGHTS.items():
        assert sum(weights) == pytest.approx(1, abs=2e-3)
        row = find_row(cells, f"weights, certified, `{corruption}`")
        assert row[1].startswith(" / ".join(f"{weight:g}" for weight in weights))
    printed = 1 / 0.1**2 + 1 / 0.5**2
    row = find_row(cells, "precision of a datum")
    assert row[1] == f"{printed:.0f} (printed formula)"
    assert f"{printed / float(row[2]):.0f} times too much" in row[-1]
    ten = published.STARTS * published.SECONDS_PER_START
    for family in FAMILIES:
        low, high = published.SVI_SECONDS[family]
        said = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        assert find_row(cells, f"SVI, {family}: seconds")[1] == said
        assert find_row(cells, f"SVI, {family}: cost")[1] == f"{low / ten:.1f} (seconds)"


def test_a_recipe_without_a_minimum_leaves_its_panel_empty(cells, plan):
    digits = np.where(np.arange(400) < 280, 4, 9).tolist()
    change(cells, f"posterior {THEIRS} {MASKED}", digits=digits)
    change(
        cells, f"recipe {THEIRS} {MASKED}", draws=[], digits=[], classes=[], weights=[], minima=0
    )
    change(cells, f"recipe {THEIRS} {MASKED}", log_evidence=None, basins=[-1] * 20)
    text = " ".join(make_page(cells, SETUP, "").split())
    assert "found no minimum, so the first panel is empty" in text
    first, second, _ = FIGURES["figure3"](cells, plan).axes
    assert first.get_legend() is None
    shown = [label.get_text() for label in second.get_legend().get_texts()]
    assert set(shown) == {"4: 70%", "9: 30%"}


def test_doubtful_answers_are_named(cells):
    change(cells, "posterior", verdict="reliable: because.")
    assert "with care" not in make_page(cells, SETUP, "")
    change(cells, f"posterior {OURS} blur", verdict="unreliable: because.", khat=None)
    parts = make_page(cells, SETUP, "").split("\n\n")
    assert "are to be taken with care: `blur` under `mnist`: unreliable: because." in parts[-1]
    assert "| `mnist` `blur` | unreliable | 1 | - |" in parts[-2]


def test_the_plane_parts_the_digits():
    rng = np.random.default_rng(0)
    draws, digits = rng.normal(size=(300, 4)), np.repeat([4, 9, 1], (110, 100, 90))
    draws[:, 2] *= 0.1
    draws[digits == 9, 2] += 2
    axes, pair = parting_axes(draws, digits)
    assert pair == [4, 9]
    assert abs(axes[2, 0]) > 0.95
    np.testing.assert_allclose(axes.T @ axes, np.eye(2), atol=1e-9)
    assert parting_axes(draws, np.full(300, 4))[1] == []


def test_tiles_lie_on_white():
    sheet = mosaic([np.zeros((2, 3, 3), np.uint8)] * 3, 2)
    assert sheet.shape == (6, 8, 3)
    assert np.all(sheet[:2, :3] == 0)
    assert np.all(sheet[4:, 5:] == 255)


@pytest.mark.slow
def test_an_image_is_read_and_compared(plan):
    prior, digit = plan.priors[OURS], lu.load_digits().digit(6)
    u, _ = prior.flow.inverse(prior.encoder(jnp.asarray(digit))[0])
    assert describe_digits(prior, u[None])["digits"] == [4]
    found = compare_image(prior, u, digit)
    # The very point that the floor is taken at, but for the flow's rounding.
    assert found["rms"] == pytest.approx(found["floor"], rel=1e-3)
    assert compare_image(prior, -u, digit)["rms"] > 1.5 * found["floor"]


@pytest.mark.slow
def test_the_lowest_minimum_of_another_digit(plan):
    found = measure_truths(plan, NOISY, 1)
    assert len(found["rms"]) == len(found["right"]) == 1
    assert found["images"][0] not in {experiment.image for experiment in EXPERIMENTS.values()}
    assert found["floor"][0] < found["rms"][0] < 0.5
