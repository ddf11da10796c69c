"""Ground truth of 16 image posteriors by sequential Monte Carlo, as docs/results/references.md.

Draws come from many runs of SMC. Their pooled evidence is sharpened: a mixture is fitted to the
draws, and importance sampling from it, with fresh draws, gives the evidence with a smaller error.

    python benchmarks/references.py            # what is missing is run, then all is written
    python benchmarks/references.py --write    # the page alone, from what has been published

Every run is saved to the cache directory as it finishes; a second call continues. Evidences and
costs go to docs/results/references.json, pooled draws to docs/results/references.safetensors.
Another model, model error or setting of SMC starts afresh, another setting of the sharpening makes
the evidences alone anew.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

import studies.bench.references
from latentuq.core.cache import cache_dir
from latentuq.core.cells import commit
from latentuq.core.files import atomic_path
from latentuq.core.tensors import read_tensors, write_tensors
from latentuq.data import load_digits
from latentuq.inference.importance import importance_sample, khat_threshold
from latentuq.inference.mixture import Defensive
from latentuq.prior import GenerativePrior
from latentuq.prior.model_file import load_prior
from latentuq.problem import InverseProblem
from latentuq.problem.experiments import EXPERIMENTS, make_problem
from studies.baselines import pool_evidence
from studies.baselines.smc import Plan, Stage, plan_smc, smc
from studies.bench.references import MODEL_ERROR, Reference
from studies.bench.sharpening import SHARPENING as FITTING
from studies.bench.sharpening import fit_proposal
from studies.markdown import table
from studies.priors import ROOT

CELLS = ROOT / "docs" / "results" / "references.json"
DRAWS = ROOT / "docs" / "results" / "references.safetensors"
PAGE = ROOT / "docs" / "results" / "references.md"
MODEL = "mnist"
IMAGES = (1, 6, 12, 18)
SETTINGS = {"particles": 1024, "moves": 4, "ess": 0.5}
# Four runs can agree by chance: the first four of solidmask-1 did, and were 0.3 nats off.
FEWEST_RUNS, MOST_RUNS = 8, 16
# Of the ln evidence in nats, and of the mean of u in posterior standard deviations.
LARGEST_ERROR, LARGEST_MEAN_ERROR = 0.1, 0.05
DRAWS_KEPT = 2000
# Draws of the importance sampling, and all else that it depends on.
SHARPENED = 2**18
SHARPENING = FITTING | {"draws": SHARPENED}
# Read once: others may commit while this runs, but what runs is the code of the start.
COMMIT = commit()


class Problem(NamedTuple):
    """An image under one of the paper's corruptions."""

    corruption: str
    image: int

    @property
    def name(self) -> str:
        return f"{self.corruption}-{self.image}"


class Run(NamedTuple):
    """One run of SMC: its row in references.json, and its draws."""

    record: dict[str, Any]
    draws: Float[np.ndarray, "n dim"]


def read_references() -> dict[tuple[str, int], Reference]:
    """The published references by (corruption, image), checked to be of today's default model."""
    return studies.bench.references.read_references(DRAWS, load_prior(MODEL))


def read_spread(corruption: str, image: int) -> float:
    """Standard deviation of ln evidence over the published runs of one problem."""
    runs = json.loads(CELLS.read_text())["problems"][Problem(corruption, image).name]["runs"]
    return float(np.std([run["log_evidence"] for run in runs], ddof=1))


def problems() -> list[Problem]:
    """All 16, the paper's own four first."""
    own = [Problem(name, experiment.image) for name, experiment in EXPERIMENTS.items()]
    every = [Problem(name, image) for image in IMAGES for name in EXPERIMENTS]
    return own + [problem for problem in every if problem not in own]


def setup(prior: GenerativePrior) -> dict[str, Any]:
    """What a reference depends on besides its problem."""
    card = prior.card
    model = {"name": card.name, "checksum": card.checksum, "model_error": prior.model_error_name}
    return {"model": model, "smc": SETTINGS}


def cache_path(prior: GenerativePrior, problem: Problem, part: str) -> Path:
    fingerprint = hashlib.sha256(json.dumps(setup(prior), sort_keys=True).encode()).hexdigest()
    folder = cache_dir() / "references" / fingerprint[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{problem.name}-{part}.safetensors"


def problem_key(problem: Problem, part: int) -> Key[Array, ""]:
    place = list(EXPERIMENTS).index(problem.corruption)
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(part), place), problem.image)


def cached_plan(prior: GenerativePrior, problem: Problem, density: InverseProblem) -> Plan:
    """The adaptive pass that the runs of one problem share, from the cache or new."""
    path = cache_path(prior, problem, "plan")
    if not path.exists():
        key = problem_key(problem, 0)
        plan = plan_smc(key, density.log_density, density.dim, **SETTINGS)
        stages = jax.tree.map(lambda *leaves: np.stack(leaves), *plan.stages)
        cost = plan._replace(stages=[])._asdict()
        write_tensors(path, {"kind": "plan", "cost": cost}, stages._asdict())
    header, arrays = read_tensors(path, "plan")
    count = len(arrays["temperature"])
    stacked = [jnp.asarray(arrays[name]) for name in Stage._fields]
    stages = [Stage(*(array[index] for array in stacked)) for index in range(count)]
    return Plan(**header["cost"] | {"stages": stages})


def cached_run(
    prior: GenerativePrior, problem: Problem, density: InverseProblem, plan: Plan, number: int
) -> Run:
    """A run from the cache, or a new one."""
    path = cache_path(prior, problem, f"run{number}")
    if not path.exists():
        key = problem_key(problem, 1 + number)
        result = smc(key, density.log_density, density.dim, **SETTINGS, plan=plan)
        record = {
            "log_evidence": result.log_evidence,
            "seconds": round(result.seconds, 2),
            "gradients": result.gradients,
            "forward_equivalents": result.forward_equivalents,
            "commit": COMMIT,
        }
        print(problem.name, number, record, flush=True)
        header = {"kind": "reference run", "record": record}
        write_tensors(path, header, {"draws": result.draws})
    header, arrays = read_tensors(path, "reference run")
    return Run(header["record"], arrays["draws"])


def measure(prior: GenerativePrior, problem: Problem) -> tuple[dict[str, Any], np.ndarray]:
    """Runs until the pooled runs are good enough: the problem's cell, and pooled draws."""
    image = load_digits().digit(problem.image)
    density = make_problem(prior, problem.corruption, image)
    plan = cached_plan(prior, problem, density)
    runs = [cached_run(prior, problem, density, plan, number) for number in range(FEWEST_RUNS)]
    cell = summarise(plan, runs)
    while not finished(cell):
        runs.append(cached_run(prior, problem, density, plan, len(runs)))
        cell = summarise(plan, runs)
    return cell, pool_draws(runs)


def summarise(plan: Plan, runs: list[Run]) -> dict[str, Any]:
    """The cell of one problem."""
    log_evidence, error = pool_evidence([run.record["log_evidence"] for run in runs])
    return {
        "log_evidence": log_evidence,
        "error": error,
        "mean_error": mean_error(runs),
        "temperatures": [float(f"{stage.temperature:.4g}") for stage in plan.stages],
        "plan": {"gradients": plan.gradients, "forward_equivalents": plan.forward_equivalents},
        "runs": [run.record for run in runs],
    }


def mean_error(runs: list[Run]) -> float:
    """Error of the runs' mean of u, in posterior standard deviations, in the worst dimension."""
    means = np.array([run.draws.mean(0) for run in runs])
    spread = np.concatenate([run.draws for run in runs]).std(0)
    return float(np.max(means.std(0, ddof=1) / spread) / np.sqrt(len(runs)))


def accurate(cell: dict[str, Any]) -> bool:
    return cell["error"] <= LARGEST_ERROR and cell["mean_error"] <= LARGEST_MEAN_ERROR


def finished(cell: dict[str, Any]) -> bool:
    runs = len(cell["runs"])
    return runs >= MOST_RUNS or (runs >= FEWEST_RUNS and accurate(cell))


def pool_draws(runs: list[Run]) -> Float[np.ndarray, "n dim"]:
    """Draws of all runs, in proportion to the runs' evidences."""
    logs = np.array([run.record["log_evidence"] for run in runs])
    shares = np.exp(logs - logs.max())
    edges = np.rint(DRAWS_KEPT * np.cumsum(shares) / shares.sum()).astype(int)
    counts = np.diff(edges, prepend=0)
    generator = np.random.default_rng(0)
    parts = [
        run.draws[generator.choice(len(run.draws), count, replace=count > len(run.draws))]
        for run, count in zip(runs, counts, strict=True)
    ]
    return np.concatenate(parts).astype(np.float32)


def sharpen(
    prior: GenerativePrior, problem: Problem, draws: Float[np.ndarray, "n dim"]
) -> dict[str, Any]:
    """Evidence by importance sampling from a mixture that is fitted to the draws."""
    density = make_problem(prior, problem.corruption, load_digits().digit(problem.image))
    proposal = Defensive(fit_proposal(jnp.asarray(draws)))
    key = problem_key(problem, 1000)
    found = importance_sample(key, density.log_density, proposal, SHARPENED)
    return {
        "log_evidence": float(found.log_evidence),
        "error": float(found.log_evidence_error),
        "khat": float(found.khat),
        "ess": float(found.ess),
        "settings": SHARPENING,
        "commit": COMMIT,
    }


def evidence(cell: dict[str, Any]) -> dict[str, float]:
    """The better evidence of a cell: the sharpened one, if that is what it is."""
    best = cell["sharpened"] if is_sharper(cell) else cell
    return {"log_evidence": best["log_evidence"], "error": best["error"]}


def is_sharpened(cell: dict[str, Any]) -> bool:
    """Whether that has been done, with today's settings."""
    return cell.get("sharpened", {}).get("settings") == SHARPENING


def is_sharper(cell: dict[str, Any]) -> bool:
    """Whether importance sampling can be trusted, and has the smaller error."""
    if not is_sharpened(cell):
        return False
    sharp = cell["sharpened"]
    light = sharp["khat"] <= khat_threshold(SHARPENED)
    return light and sharp["error"] < cell["error"]


def run_missing() -> None:
    prior = load_prior(MODEL).with_model_error(MODEL_ERROR)
    cells, arrays = published(prior)
    for problem in problems():
        if problem.name not in cells:
            cells[problem.name], arrays[problem.name] = measure(prior, problem)
        cell = cells[problem.name]
        if not is_sharpened(cell):
            cell["sharpened"] = sharpen(prior, problem, arrays[problem.name])
        print(problem.name, evidence(cell), cell["mean_error"], flush=True)
        publish(prior, cells, arrays)


def published(prior: GenerativePrior) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Finished cells and their draws that were published for this very setup."""
    if not CELLS.exists() or not DRAWS.exists():
        return {}, {}
    results = json.loads(CELLS.read_text())
    header, arrays = read_tensors(DRAWS, "references")
    if not results["setup"] == header["setup"] == setup(prior):
        return {}, {}
    done = {name: results["problems"][name] for name in arrays}
    return {name: cell for name, cell in done.items() if finished(cell)}, arrays


def publish(prior: GenerativePrior, cells: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    summary = {name: evidence(cell) for name, cell in cells.items()}
    with atomic_path(CELLS) as path:
        path.write_text(json.dumps({"setup": setup(prior), "problems": cells}, indent=1) + "\n")
    header = {"kind": "references", "setup": setup(prior), "problems": summary}
    write_tensors(DRAWS, header, arrays)


def row(problem: Problem, cell: dict[str, Any]) -> list[str]:
    runs = cell["runs"]
    gradients = np.mean([run["gradients"] for run in runs])
    spread, sharp = read_spread(*problem), cell["sharpened"]
    return [
        f"`{problem.corruption}`",
        str(problem.image),
        f"{cell['log_evidence']:.3f}",
        f"{cell['error']:.3f}",
        f"{sharp['log_evidence']:.3f}",
        f"{sharp['error']:.3f}" + ("" if is_sharper(cell) else " (!)"),
        f"{sharp['khat']:.2f}",
        f"{cell['mean_error']:.3f}",
        str(len(runs)) + ("" if accurate(cell) else " (!)"),
        f"{spread:.2f}",
        str(len(cell["temperatures"])),
        f"{gradients / 1e3:.0f}",
        f"{min(run['seconds'] for run in runs):.0f}",
    ]


def pull(cell: dict[str, Any]) -> float:
    """How far the sharpened evidence is from the pooled one, in errors of both."""
    sharp = cell["sharpened"]
    error = np.hypot(sharp["error"], cell["error"])
    return float((sharp["log_evidence"] - cell["log_evidence"]) / error)


def write_page() -> None:
    results = json.loads(CELLS.read_text())
    cells, used = results["problems"], results["setup"]
    done = [problem for problem in problems() if problem.name in cells]
    made = [each for cell in cells.values() for each in (*cell["runs"], cell["sharpened"])]
    commits = sorted({each["commit"] for each in made})
    titles = ["corruption", "image", "SMC", "error", "sharpened", "error", "k-hat",
              "error of mean", "runs", "spread", "temperatures", "thousand gradients",
              "seconds"]  # fmt: skip
    missed = [problem.name for problem in done if not accurate(cells[problem.name])]
    note = f"Both were not reached for {', '.join(missed)} (!)." if missed else "All reach both."
    gaps, components = np.array([pull(cells[each.name]) for each in done]), FITTING["components"]
    text = f"""# References: ground truth of {len(done)} image posteriors

Written by `python benchmarks/references.py` from [references.json](references.json) (commit
{", ".join(commits)}). `references.safetensors` holds {DRAWS_KEPT} draws of u per posterior.

The prior is `{used["model"]["name"]}` (sha256 {used["model"]["checksum"][:12]}) with its
{used["model"]["model_error"]} model error; images are places in the MNIST test set, corruptions
those of `latentuq.problem.experiments`. Each run is `studies.baselines.smc` with
{", ".join(f"{name} = {value}" for name, value in used["smc"].items())}, started from the prior with
its own key. The runs of one problem share the temperatures, mass matrices and steps of an adaptive
pass that costs as much as a run and whose own evidence, being biased, is not used. Runs are
repeated, {FEWEST_RUNS} to {MOST_RUNS} times, until the error of the pooled evidence is at most
{LARGEST_ERROR} nats and that of the mean of u at most {LARGEST_MEAN_ERROR} posterior standard
deviations. {note}

{table(titles, [row(problem, cells[problem.name]) for problem in done])}

`SMC` is the logarithm of the runs' mean evidence, `error` its standard error from the spread of the
runs. `sharpened` is ln evidence by importance sampling: a mixture of {components} Student-t
components is fitted to the draws that were kept, and {SHARPENED} fresh draws of its wider copies,
5 % of them from the prior, are weighted. It owes its proposal to SMC, not its value, and is what
the other pages compare with, unless its k-hat is too high or its error larger (!). The two differ
by {np.mean(gaps):+.1f} of their joint errors on average and by {np.sqrt(np.mean(gaps**2)):.1f} in
root mean square; if both are right, that is 0 and 1.

`error of mean`: of the posterior mean of u in the worst of the dimensions, in posterior standard
deviations. `spread`: the standard deviation of one run's ln evidence. Gradients are the mean per
run; seconds are those of the fastest run, because the one core was shared, without compilation.
"""
    with atomic_path(PAGE) as path:
        path.write_text(text)
    print(f"Wrote {PAGE.relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Run what is missing, then write the page.")
    parser.add_argument("--write", action="store_true", help="write the page, run nothing")
    if not parser.parse_args().write:
        run_missing()
    write_page()


if __name__ == "__main__":
    main()
