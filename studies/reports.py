"""Are the demo's four reports right, and where does their time go: docs/results/reports.md."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from latentuq import GenerativePrior, InverseProblem, load_digits, load_prior, solve
from latentuq.calibration.classifier import load_classifier
from latentuq.core.cells import Cells, Job, job
from latentuq.posterior.maps import decode_images
from latentuq.problem.experiments import EXPERIMENTS, make_problem
from studies.baselines.smc import smc
from studies.pages import ROOT, rows, verdict_word

RUNS = 3
_AGAIN = 7
DRAWS = 2000
FLAGS = {
    "sparse95": "--mask random:0.95 --noise 0",
    "masknoise05": "--mask columns:14-27 --noise 0.5",
    "blur": "--blur 3 --noise 0.05",
    "solidmask": "--mask columns:10-23 --noise 0",
}
STAGES = ("start-up", "compile", "problem", "search", "fit", "certify", "images", "write")
INFERENCE = STAGES[2:7]


def make_setup() -> dict[str, Any]:
    card = load_prior("mnist").card
    return {
        "model": card.name,
        "model_checksum": card.checksum,
        "draws": DRAWS,
        "stages": STAGES,
    }


def make_jobs() -> dict[str, Job]:
    prior = load_prior("mnist")
    jobs: dict[str, Job] = {}
    for name in EXPERIMENTS:
        jobs[f"stages {name}"] = job(measure_stages, name)
        jobs[f"ours {name}"] = job(measure_ours, prior, name)
        for run in range(RUNS):
            jobs[f"smc {name} {run}"] = job(measure_reference, prior, name, run)
    return jobs


def _problem(prior: GenerativePrior, name: str) -> InverseProblem:
    return make_problem(prior, name, load_digits().digit(EXPERIMENTS[name].image))


def classes(prior: GenerativePrior, us: Any) -> list[float]:
    """Mean probabilities of the ten digits over decoded draws."""
    shown = load_classifier().probabilities(decode_images(prior, jnp.asarray(us)))
    return np.asarray(jnp.mean(shown, axis=0)).round(4).tolist()


def measure_ours(prior: GenerativePrior, name: str) -> dict[str, Any]:
    """The solve of `latentuq demo` with its default seed."""
    key = jax.random.fold_in(jax.random.key(0), list(EXPERIMENTS).index(name))
    post = solve(jax.random.split(key)[0], _problem(prior, name))
    return {
        "classes": classes(prior, post.sample(jax.random.key(1), DRAWS)),
        "log_evidence": post.log_evidence,
        "p_value": post.diagnostics.predictive_p_value,
        "verdict": str(post.verdict),
        "weights": [round(float(weight), 4) for weight in post.weights[:4]],
    }


def measure_reference(prior: GenerativePrior, name: str, run: int) -> dict[str, Any]:
    """One run of SMC from the prior on the same posterior."""
    problem = _problem(prior, name)
    result = smc(jax.random.key(100 + run), problem.log_density, problem.dim)
    draws = np.random.default_rng(run).permutation(result.draws)[:DRAWS]
    return {"classes": classes(prior, draws), "log_evidence": result.log_evidence}


def measure_stages(name: str) -> dict[str, Any]:
    """`latentuq reconstruct` in processes of their own: with an empty cache, then seven times.

    Returns:
        Seconds of each stage at first, and medians of the later runs.
    """
    with tempfile.TemporaryDirectory() as folder:
        image = 255 * np.asarray(load_digits().digit(EXPERIMENTS[name].image))
        Image.fromarray(np.rint(image).astype(np.uint8)).save(Path(folder) / "digit.png")
        found = []
        for _ in range(1 + _AGAIN):
            done = subprocess.run(
                [sys.executable, "-m", "latentuq", "reconstruct", "digit.png", "--corrupt",
                 *FLAGS[name].split(), "--json", "--force"],
                cwd=folder,
                env={"LATENTUQ_CACHE": f"{folder}/cache", "PYTHONPATH": str(ROOT / "src")},
                capture_output=True,
                check=True,
            )  # fmt: skip
            found.append(json.loads(done.stdout)["seconds"])
    later = {stage: float(np.median([run[stage] for run in found[1:]])) for stage in STAGES}
    return {"first": found[0], "second": later}


def make_values(cells: Cells) -> dict[str, Any]:
    answers = [_compare(cells, name) for name in EXPERIMENTS]
    form = "`{name}` | {classes} | {theirs} | {gap:.3f} ± {error:.3f} | {evidence:+.2f}"
    times = []
    for name in EXPERIMENTS:
        for run in ("first", "second"):
            seconds = cells[f"stages {name}"][run]
            around = sum(seconds[stage] for stage in ("start-up", "compile", "write"))
            ratio = around / sum(seconds[stage] for stage in INFERENCE)
            times.append(seconds | {"name": name, "run": run, "ratio": ratio})
    stages = " | ".join(f"{{{stage}:.1f}}" for stage in STAGES)
    return {
        "answers": rows(form + " | {p_value:.2g} | {verdict}", answers),
        "runs": RUNS,
        "again": _AGAIN,
        "times": rows(f"`{{name}}` | {{run}} | {stages} | {{ratio:.1f}}", times),
    }


def _compare(cells: Cells, name: str) -> dict[str, Any]:
    """Our answer to one of the demo's problems beside that of SMC."""
    ours = cells[f"ours {name}"]
    runs = [cells[f"smc {name} {run}"] for run in range(RUNS)]
    theirs = np.mean([run["classes"] for run in runs], axis=0)
    spread = np.std([run["classes"] for run in runs], axis=0, ddof=1).max()
    return {
        "name": name,
        "classes": _classes(ours["classes"]),
        "theirs": _classes(theirs),
        "gap": np.abs(np.array(ours["classes"]) - theirs).max(),
        "error": spread / np.sqrt(RUNS),
        "evidence": ours["log_evidence"] - np.mean([run["log_evidence"] for run in runs]),
        "p_value": ours["p_value"],
        "verdict": verdict_word(ours),
    }


def _classes(probabilities: Any) -> str:
    order = np.argsort(-np.asarray(probabilities))
    shown = [digit for digit in order if probabilities[digit] > 0.02]
    return ", ".join(f"{digit}: {probabilities[digit]:.0%}" for digit in shown)
