"""docs/results/paper.md and its figures, from the cells of a run.

The sentences of the page are in the template `studies/text/paper.md`; each claim of the paper is a
question there, and its answer is chosen here by the numbers.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from latentuq.core.cells import Cells
from latentuq.core.files import atomic_path
from latentuq.data.digits import load_digits
from latentuq.problem.experiments import EXPERIMENTS
from studies.commits import commits
from studies.pages import fill_page, rows
from studies.reproduce import fit_claims, posterior_claims
from studies.reproduce.figures import FIGURES, STYLE
from studies.reproduce.numbers import make_rows
from studies.reproduce.plan import MASKED, MODELS, THEIRS, Plan, by_model
from studies.reproduce.recipe import ARRIVED, are_minima
from studies.reproduce.words import listed, name_digits

CLAIMS: dict[str, Callable[[Cells], dict[str, Any]]] = {
    "two_digits": posterior_claims.check_two_digits,
    "weights": posterior_claims.check_weights,
    "data": posterior_claims.check_data,
    "flow": posterior_claims.check_flow,
    "annealing": posterior_claims.check_annealing,
    "truth": posterior_claims.check_truth,
    "starts": posterior_claims.check_starts,
    "agreement": fit_claims.check_agreement,
    "noise": fit_claims.check_noise,
    "accuracy": fit_claims.check_accuracy,
    "samples": fit_claims.check_samples,
    "stability": fit_claims.check_stability,
    "means": fit_claims.check_means,
}
"""What finds the answer (`short`) to each claim, and the numbers behind it."""

_DPI = 110
# Stands for the table of all claims until their answers are in the page.
_SUMMARY = "| summary |"


def write_page(cells: Cells, plan: Plan, folder: Path, command: str) -> Path:
    """Draws the figures and writes the page beside the cells."""
    for name, draw in FIGURES.items():
        path = folder / f"paper-{name}.png"
        with matplotlib.rc_context(STYLE), atomic_path(path) as temporary:
            draw(cells, plan).savefig(temporary, dpi=_DPI)
    page = folder / "paper.md"
    with atomic_path(page) as temporary:
        temporary.write_text(make_page(cells, plan.setup, command))
    return page


def make_page(cells: Cells, setup: dict[str, Any], command: str) -> str:
    """The text of the page, which is made of nothing but the cells."""
    models = listed(
        f"`{name}` (sha256 {model['checksum'][:12]}, model error {model['model_error']})"
        for name, model in setup["models"].items()
    )
    draws = by_model(cells, "svi", "full-rank").items()
    values = {name: check(cells) for name, check in CLAIMS.items()} | {
        "posterior_claims": posterior_claims,
        "fit_claims": fit_claims,
        "arrived": ARRIVED,
        "command": command,
        "commits": commits(cells.values()),
        "models": models,
        "read": _read(cells),
        "recipe": _recipe(cells),
        "ends": " ".join(_ends(cells, model) for model in MODELS),
        "svi_draws": listed(f"{fit['samples']} draws per step under `{m}`" for m, fit in draws),
        "numbers": make_rows(cells),
        "summary": _SUMMARY,
        **_verdicts(cells),
    }
    text = fill_page("paper", values)
    claims = re.findall(r"^### (.+)\n\n\*\*([^*]+)\*\*", text, re.MULTILINE)
    answers = [{"claim": claim, "short": " ".join(short.split())} for claim, short in claims]
    return text.replace(_SUMMARY, rows("{claim} | {short}", answers))


def _read(cells: Cells) -> str:
    """In how many images of the deepest modes a classifier reads the true digit."""
    digits, parts = load_digits(), []
    for model in MODELS:
        right = []
        for name, experiment in EXPERIMENTS.items():
            truth = digits.labels[digits.indices == experiment.image][0]
            if cells[f"posterior {model} {name}"]["map_digit"] == truth:
                right.append(f"`{name}`")
        where = f" ({', '.join(right)})" if 0 < len(right) < len(EXPERIMENTS) else ""
        parts.append(f"in {len(right)} of {len(EXPERIMENTS)} under `{model}`{where}")
    return listed(parts)


def _recipe(cells: Cells) -> str:
    """What the paper's recipe makes of the masked 4."""
    recipe = cells[f"recipe {THEIRS} {MASKED} annealed"]
    if not recipe["classes"]:
        return "The paper's recipe found no minimum, so the first panel is empty."
    return (
        f"The first panel shows the paper's recipe with its networks: it found {recipe['minima']}"
        " minima, and in draws of their Laplace mixture a classifier sees"
        f" {name_digits(recipe['classes'])}."
    )


def _ends(cells: Cells, model: str) -> str:
    """Where the starts on the masked 4 end."""
    recipe = cells[f"recipe {model} {MASKED} annealed"]
    ours = np.array(cells[f"posterior {model} {MASKED}"]["ends"])
    near = min(min(recipe["ends"]), ours.min()) + 1
    return (
        f"Under `{model}`, {sum(end < near for end in recipe['ends'])} of {recipe['starts']} starts"
        f" of Adam end within 1 nat of the deepest end, {sum(recipe['definite'])} end with a"
        f" positive definite Hessian, {sum(are_minima(recipe))} of them where a Newton step would"
        f" gain less than {ARRIVED:g} nats, and the recipe tells {recipe['minima']} minima apart."
        f" Of our first {len(ours)} descents from the prior with a finite end,"
        f" {int(np.sum(ours < near))} end within 1 nat of the deepest end."
    )


def _verdicts(cells: Cells) -> dict[str, str]:
    """What the posteriors say about themselves, and which of them are doubtful."""
    found, doubtful = [], []
    for model in MODELS:
        for name in EXPERIMENTS:
            cell = cells[f"posterior {model} {name}"]
            word = cell["verdict"].split()[0].strip(":;,.")
            khat = "-" if cell["khat"] is None else f"{cell['khat']:.2f}"
            found.append(cell | {"of": f"`{model}` `{name}`", "verdict": word, "khat": khat})
            if word == "unreliable":
                doubtful.append(f"`{name}` under `{model}`: {cell['verdict']}")
    form = "{of} | {verdict} | {relevant_modes} | {khat} | {log_evidence_error:.3f} | {starts}"
    care = "These answers are to be taken with care: " + "; ".join(doubtful) if doubtful else ""
    return {"verdicts": rows(form + " | {seconds:.0f}", found), "doubtful": care}
