"""Everything that is measured for the page, cell by cell; what is there is not repeated."""

import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from latentuq.core.cells import commit, read_results
from latentuq.core.files import atomic_path
from latentuq.data import load_digits
from latentuq.forward import RandomMask
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior import GenerativePrior
from latentuq.prior.model_file import load_prior
from latentuq.prior.vae import Decoder
from latentuq.problem import InverseProblem
from latentuq.problem.experiments import EXPERIMENTS, make_problem
from studies.baselines.adam import SHORT_STEPS, STEPS
from studies.baselines.svi import FAST, PAPER, Family, Settings, svi
from studies.exact import exact_posterior, linear_prior
from studies.reproduce.gaussians import (
    Gaussian,
    continue_el2o,
    fit_gaussians,
    gaussian_kl,
    measure_slices,
    measure_step_noise,
    read_gaussian,
)
from studies.reproduce.posteriors import (
    NO_DIGITS,
    compare_image,
    describe_digits,
    measure_posterior,
    measure_truths,
)
from studies.reproduce.recipe import run_recipe
from studies.reproduce.variational import DIAGONALS, climb, fitted, measure_stability, measure_svi

Cells = dict[str, dict[str, Any]]
Job = Callable[[Cells], dict[str, Any]]

THEIRS, OURS = "mnist-paper", "mnist"
"""The paper's networks with its scalar model error, and our default prior."""
MODELS = (THEIRS, OURS)
MASKED, NOISY = "solidmask", "masknoise05"
"""The paper's examples of two modes and of SVI."""
FAMILIES: tuple[Family, ...] = ("mean-field", "full-rank")
VARIANTS = ("annealed", "plain")
SAMPLES = (2, 8, 32)
"""Draws per step of SVI, besides the paper's 512."""
REPEATS = {2: 3, 8: 2, 32: 1}
RATES = (1e-3, 1e-2, 1e-1)
SETTINGS: dict[str, dict[Family, Settings]] = {
    THEIRS: dict.fromkeys(FAMILIES, FAST),
    OURS: PAPER,
}
"""The paper's own networks are nine times larger: its settings would take too long for them."""

ADAM_STEPS: dict[str, Sequence[int]] = {MASKED: STEPS, NOISY: SHORT_STEPS}
"""As published with each."""

_DIRECTIONS = 3
_TRUTHS = 10
# Of the Gaussian target, on which draws are compared with closed forms.
_DIM, _SHAPE = 10, (8, 8)


class Plan(NamedTuple):
    """What the cells are measured on.

    Attributes:
        priors: The two models.
        seed: Of everything random.
        steps: Of Adam, by problem.
        settings: Of SVI, by model and family.
    """

    priors: dict[str, GenerativePrior]
    seed: int
    steps: dict[str, Sequence[int]] = ADAM_STEPS
    settings: dict[str, dict[Family, Settings]] = SETTINGS

    def key(self, name: str) -> Key[Array, ""]:
        """A key of its own for every name, whatever was measured before."""
        return jax.random.fold_in(jax.random.key(self.seed), zlib.crc32(name.encode()))

    def problem(self, model: str, corruption: str) -> InverseProblem:
        image = load_digits().digit(EXPERIMENTS[corruption].image)
        return make_problem(self.priors[model], corruption, image)


def load_models() -> dict[str, GenerativePrior]:
    """The two priors."""
    return {THEIRS: load_prior(THEIRS).with_model_error("scalar"), OURS: load_prior(OURS)}


def make_setup(plan: Plan) -> dict[str, Any]:
    """What all cells depend on."""
    return {
        "models": {
            name: {"checksum": prior.card.checksum, "model_error": prior.model_error_name}
            for name, prior in plan.priors.items()
        },
        "seed": plan.seed,
    }


def run_cells(
    plan: Plan,
    path: Path,
    report: Callable[[str, dict[str, Any]], None] = lambda name, cell: None,
    jobs: dict[str, Job] | None = None,
) -> Cells:
    """Measures what is missing and saves each cell as it finishes.

    Args:
        plan: What to measure on.
        path: The JSON file of the cells.
        report: Called with the name and the contents of each new cell.
        jobs: By default all.
    """
    # Others may commit while this runs, but what runs is the code of the start.
    running = commit()
    setup = make_setup(plan)
    cells: Cells = read_results(path, setup, "cells", "`latentuq reproduce`") or {}
    for name, job in (make_jobs(plan) if jobs is None else jobs).items():
        if name in cells:
            continue
        # JSON knows no infinities.
        cell = json.loads(json.dumps(job(cells)), parse_constant=lambda _: None)
        cells[name] = cell | {"commit": running}
        with atomic_path(path) as temporary:
            temporary.write_text(_dump(setup, cells))
        report(name, cells[name])
    return cells


def _dump(setup: dict[str, Any], cells: Cells) -> str:
    """A line for each cell."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(cell)}" for name, cell in cells.items())
    return f'{{"setup": {json.dumps(setup)},\n"cells": {{\n{lines}\n}}}}\n'


def make_jobs(plan: Plan) -> dict[str, Job]:
    """Every cell by its name, in an order in which what one needs comes before it."""
    jobs: dict[str, Job] = {}
    for model in MODELS:
        jobs[f"prior {model}"] = lambda _, model=model: describe_prior(plan.priors[model])
        for corruption in EXPERIMENTS:
            name = f"posterior {model} {corruption}"
            jobs[name] = lambda _, model=model, corruption=corruption, name=name: measure_posterior(
                plan.key(name),
                plan.problem(model, corruption),
                load_digits().digit(EXPERIMENTS[corruption].image),
            )
        for corruption in (MASKED, NOISY):
            for variant in VARIANTS:
                jobs[f"recipe {model} {corruption} {variant}"] = _recipe_job(
                    plan, model, corruption, variant
                )
        jobs[f"gaussians {model}"] = lambda cells, model=model: fit_gaussians(
            plan.key(f"gaussians {model}"),
            plan.problem(model, NOISY).log_density,
            np.array(cells[f"posterior {model} {NOISY}"]["map"]),
        )
    jobs["noise"] = lambda _: _noise(plan.key("noise"))
    for samples in SAMPLES:
        jobs[f"samples {samples}"] = lambda _, samples=samples: _samples(plan, samples)
    for diagonal in DIAGONALS:
        for rate in RATES:
            jobs[f"stability {diagonal} {rate:g}"] = _stability_job(plan, diagonal, rate)
    for corruption in EXPERIMENTS:
        jobs[f"truth {corruption}"] = lambda _, corruption=corruption: measure_truths(
            plan.key(f"truth {corruption}"),
            plan.priors[OURS],
            corruption,
            load_digits(),
            _TRUTHS,
        )
    for model in MODELS:
        for family in FAMILIES:
            jobs[f"svi {model} {family}"] = _svi_job(plan, model, family)
        jobs[f"limit {model}"] = lambda cells, model=model: continue_el2o(
            plan.key(f"limit {model}"),
            plan.problem(model, NOISY).log_density,
            read_gaussian(cells[f"svi {model} full-rank"]),
        )
        jobs[f"slices {model}"] = lambda cells, model=model: _slices(plan, model, cells)
    return jobs


def describe_prior(prior: GenerativePrior) -> dict[str, Any]:
    """What a model file says about its networks and how good they are."""
    config, metrics = prior.card.training["config"], prior.card.metrics
    assert isinstance(prior.decoder, Decoder)
    assert prior.flow is not None
    names = ("sigma_model", "image_c2st_before", "image_c2st_after")
    return {
        "model_error": prior.model_error_name,
        "dim": prior.dim,
        "vae": config["vae"],
        "flow": config["flow"],
        "block_layers": len(prior.decoder.network.blocks),
        # The last makes the coupling's scale and shift.
        "flow_layers": len(prior.flow.couplings.layers) - 1,
        "vae_fit": config["vae_fit"],
        **{name: metrics[name] for name in names},
    }


def _recipe_job(plan: Plan, model: str, corruption: str, variant: str) -> Job:
    def job(_: Cells) -> dict[str, Any]:
        problem = plan.problem(model, corruption)
        # The same starts for both variants.
        key = plan.key(f"recipe {model} {corruption}")
        annealed = variant == "annealed"
        cell = run_recipe(
            key, problem.log_density, problem.dim, annealed=annealed, steps=plan.steps[corruption]
        )
        draws = jnp.array(cell["draws"], jnp.float32)
        return cell | (describe_digits(problem.prior, draws) if len(draws) else NO_DIGITS)

    return job


def _svi_job(plan: Plan, model: str, family: Family) -> Job:
    def job(_: Cells) -> dict[str, Any]:
        problem = plan.problem(model, NOISY)
        key = plan.key(f"svi {model} {family}")
        settings = plan.settings[model][family]
        cell = measure_svi(key, problem.log_density, problem.dim, family, settings)
        truth = load_digits().digit(EXPERIMENTS[NOISY].image)
        return cell | compare_image(problem.prior, jnp.array(cell["mean"]), truth)

    return job


def _stability_job(plan: Plan, diagonal: str, rate: float) -> Job:
    def job(_: Cells) -> dict[str, Any]:
        problem = plan.problem(OURS, NOISY)
        key = plan.key("stability")
        return measure_stability(key, problem.log_density, problem.dim, diagonal, rate)

    return job


def _slices(plan: Plan, model: str, cells: Cells) -> dict[str, Any]:
    """Three coordinates through the deepest mode, chosen at random as the paper did."""
    posterior = cells[f"posterior {model} {NOISY}"]
    fits = {name: read_gaussian(fit) for name, fit in cells[f"gaussians {model}"]["fits"].items()}
    fits |= {family: read_gaussian(cells[f"svi {model} {family}"]) for family in FAMILIES}
    problem = plan.problem(model, NOISY)
    chosen = np.random.default_rng(plan.seed).choice(problem.dim, _DIRECTIONS, replace=False)
    curves = measure_slices(
        problem.log_density,
        np.array(posterior["map"]),
        np.array(posterior["std"]),
        fits,
        sorted(chosen.tolist()),
    )
    return {"curves": curves}


def _samples(plan: Plan, samples: int) -> dict[str, Any]:
    """Full-rank SVI with the paper's steps and another number of draws for each."""
    problem = plan.problem(OURS, NOISY)
    settings = plan.settings[OURS]["full-rank"]._replace(samples=samples)
    runs = []
    for repeat in range(REPEATS[samples]):
        key = plan.key(f"samples {samples} {repeat}")
        runs.append(measure_svi(key, problem.log_density, problem.dim, "full-rank", settings))
    return {"runs": runs}


def _noise(key: Key[Array, ""]) -> dict[str, Any]:
    """A linear generator, so that the posterior is Gaussian and known."""
    prior_key, data_key, step_key, svi_key = jax.random.split(key, 4)
    prior = linear_prior(prior_key, _DIM, _SHAPE)
    empty = InverseProblem(prior, RandomMask(0.5, seed=0), GaussianNoise(0.1), np.zeros(_SHAPE))
    problem = empty.with_data(empty.simulate(data_key).y)
    known = exact_posterior(problem)
    exact = Gaussian(known.mean, np.linalg.cholesky(known.covariance))
    cell: dict[str, Any] = measure_step_noise(step_key, problem.log_density, exact)
    rates = np.repeat(np.asarray(FAST.learning_rates, np.float32), FAST.steps)
    means, factors, _ = climb(
        jax.random.split(svi_key, 4), problem.log_density, _DIM, rates, FAST.samples, "exponential"
    )
    plain = [
        gaussian_kl(Gaussian(np.asarray(m, np.float64), np.asarray(f, np.float64)), exact)
        for m, f in zip(means, factors, strict=True)
    ]
    path = fitted(svi(svi_key, problem.log_density, _DIM, settings=FAST))
    return cell | {"svi_kl": float(np.median(plain)), "path_kl": gaussian_kl(path, exact)}
