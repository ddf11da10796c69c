"""`reproduce` measures everything that the page needs, cell by cell, and writes the page."""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from latentuq.core.cells import Cells, run_cells
from latentuq.data import load_digits
from latentuq.forward import RandomMask
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior.vae import Decoder
from latentuq.problem import InverseProblem
from latentuq.problem.experiments import EXPERIMENTS
from studies.baselines.svi import FAST, Family
from studies.exact import exact_posterior, linear_prior
from studies.reproduce import gaussians, posteriors
from studies.reproduce.gaussians import Gaussian, gaussian_kl, read_gaussian
from studies.reproduce.page import write_page
from studies.reproduce.plan import (
    ADAM_STEPS,
    FAMILIES,
    MODELS,
    NOISY,
    OURS,
    RATES,
    REPEATS,
    SEARCHED,
    SETTINGS,
    VARIANTS,
    Plan,
    load_models,
    true_image,
)
from studies.reproduce.recipe import run_recipe
from studies.reproduce.variational import DIAGONALS, climb, measure_stability, measure_svi

Cell = dict[str, Any]

_DIRECTIONS = 3
_TRUTHS = 10
# The size of the Gaussian target, on which draws are compared with closed forms.
_DIM, _SHAPE = 10, (8, 8)


def print_cell(name: str, cell: Cell) -> None:
    """Prints the name of a cell that has been measured, and the seconds that it took."""
    print(f"{name}: {cell['seconds']:.1f} s", flush=True)


def reproduce(
    output: Path,
    seed: int = 0,
    command: str = "",
    report: Callable[[str, Cell], None] = print_cell,
) -> Path:
    """Puts the paper to the test; what has been measured is not measured again.

    Args:
        output: The folder of paper.json, of the figures and of the page.
        seed: The seed of everything random.
        command: The command that the page says it was written by.
        report: This is called with the name and the contents of each new cell.

    Returns:
        The path of the page.
    """
    plan = Plan(load_models(), seed)
    cells = run_cells(output / "paper.json", plan.setup, make_jobs(plan), report)
    return write_page(cells, plan, output, command)


def make_jobs(plan: Plan) -> dict[str, Callable[[Cells], Cell]]:
    """Every cell by its name, in an order in which what one needs comes before it."""
    jobs = {}

    def add(measure: Callable[..., Cell], kind: str, *what: Any) -> None:
        jobs[" ".join([kind, *map(str, what)])] = partial(measure, plan, *what)

    for model in MODELS:
        add(_prior, "prior", model)
        for corruption in EXPERIMENTS:
            add(_posterior, "posterior", model, corruption)
        for corruption, variant in product(SEARCHED, VARIANTS):
            add(_recipe, "recipe", model, corruption, variant)
        add(_gaussians, "gaussians", model)
    add(_noise, "noise")
    for samples in REPEATS:
        add(_samples, "samples", samples)
    for diagonal, rate in product(DIAGONALS, RATES):
        add(_stability, "stability", diagonal, rate)
    for corruption in EXPERIMENTS:
        add(_truth, "truth", corruption)
    for model in MODELS:
        for family in FAMILIES:
            add(_svi, "svi", model, family)
        add(_limit, "limit", model)
        add(_slices, "slices", model)
    return jobs


def _prior(plan: Plan, model: str, _: Cells) -> Cell:
    """What a model file says about its networks and how good they are."""
    prior = plan.priors[model]
    config, metrics = prior.card.training["config"], prior.card.metrics
    assert isinstance(prior.decoder, Decoder)
    assert prior.flow is not None
    return {
        "model_error": prior.model_error_name,
        "dim": prior.dim,
        "block_layers": len(prior.decoder.network.blocks),
        # The last layer makes the coupling's scale and shift.
        "flow_layers": len(prior.flow.couplings.layers) - 1,
        **{name: config[name] for name in ("vae", "flow", "vae_fit")},
        **{
            name: metrics[name] for name in ("sigma_model", "image_c2st_before", "image_c2st_after")
        },
    }


def _posterior(plan: Plan, model: str, corruption: str, _: Cells) -> Cell:
    key = plan.key(f"posterior {model} {corruption}")
    problem = plan.problem(model, corruption)
    return posteriors.measure_posterior(key, problem, true_image(corruption))


def _recipe(plan: Plan, model: str, corruption: str, variant: str, _: Cells) -> Cell:
    problem = plan.problem(model, corruption)
    # Both variants have the same starts.
    key = plan.key(f"recipe {model} {corruption}")
    annealed, steps = variant == "annealed", ADAM_STEPS[corruption]
    cell = run_recipe(key, problem.log_density, problem.dim, annealed=annealed, steps=steps)
    draws = jnp.array(cell["draws"], jnp.float32)
    return cell | posteriors.describe_digits(problem.prior, draws)


def _gaussians(plan: Plan, model: str, cells: Cells) -> Cell:
    log_density_fn = plan.problem(model, NOISY).log_density
    mode = np.array(cells[f"posterior {model} {NOISY}"]["map"])
    return gaussians.fit_gaussians(plan.key(f"gaussians {model}"), log_density_fn, mode)


def _truth(plan: Plan, corruption: str, _: Cells) -> Cell:
    key = plan.key(f"truth {corruption}")
    return posteriors.measure_truths(key, plan.priors[OURS], corruption, load_digits(), _TRUTHS)


def _svi(plan: Plan, model: str, family: Family, _: Cells) -> Cell:
    problem, settings = plan.problem(model, NOISY), SETTINGS[model][family]
    key = plan.key(f"svi {model} {family}")
    cell = measure_svi(key, problem.log_density, problem.dim, family, settings)
    u = jnp.array(cell["mean"])
    return cell | posteriors.compare_image(problem.prior, u, true_image(NOISY))


def _samples(plan: Plan, samples: int, _: Cells) -> Cell:
    """Full-rank SVI with the paper's steps and another number of draws for each."""
    problem = plan.problem(OURS, NOISY)
    settings = SETTINGS[OURS]["full-rank"]._replace(samples=samples)
    keys = [plan.key(f"samples {samples} {repeat}") for repeat in range(REPEATS[samples])]
    fit = partial(measure_svi, log_density_fn=problem.log_density, dim=problem.dim)
    return {"runs": [fit(key, family="full-rank", settings=settings) for key in keys]}


def _stability(plan: Plan, diagonal: str, rate: float, _: Cells) -> Cell:
    problem, key = plan.problem(OURS, NOISY), plan.key("stability")
    return measure_stability(key, problem.log_density, problem.dim, diagonal, rate)


def _limit(plan: Plan, model: str, cells: Cells) -> Cell:
    start = read_gaussian(cells[f"svi {model} full-rank"])
    log_density_fn = plan.problem(model, NOISY).log_density
    return gaussians.continue_el2o(plan.key(f"limit {model}"), log_density_fn, start)


def _slices(plan: Plan, model: str, cells: Cells) -> Cell:
    """Three coordinates through the deepest mode, chosen at random as the paper did."""
    posterior, problem = cells[f"posterior {model} {NOISY}"], plan.problem(model, NOISY)
    fits = cells[f"gaussians {model}"]["fits"]
    fits = fits | {family: cells[f"svi {model} {family}"] for family in FAMILIES}
    chosen = np.random.default_rng(plan.seed).choice(problem.dim, _DIRECTIONS, replace=False)
    curves = gaussians.measure_slices(
        problem.log_density,
        np.array(posterior["map"]),
        np.array(posterior["std"]),
        {name: read_gaussian(fit) for name, fit in fits.items()},
        sorted(chosen.tolist()),
    )
    return {"curves": curves}


def _noise(plan: Plan, _: Cells) -> Cell:
    """A linear generator, so that the posterior is Gaussian and known."""
    prior_key, data_key, step_key, svi_key = jax.random.split(plan.key("noise"), 4)
    prior = linear_prior(prior_key, _DIM, _SHAPE)
    empty = InverseProblem(prior, RandomMask(0.5, seed=0), GaussianNoise(0.1), np.zeros(_SHAPE))
    problem = empty.with_data(empty.simulate(data_key).y)
    known = exact_posterior(problem)
    exact = Gaussian(known.mean, np.linalg.cholesky(known.covariance))
    cell: Cell = gaussians.measure_step_noise(step_key, problem.log_density, exact)
    rates = np.repeat(np.asarray(FAST.learning_rates, np.float32), FAST.steps)
    keys = jax.random.split(svi_key, 4)
    means, factors, _ = climb(keys, problem.log_density, _DIM, rates, FAST.samples, "exponential")
    plain = [
        gaussian_kl(Gaussian(np.asarray(m, np.float64), np.asarray(f, np.float64)), exact)
        for m, f in zip(means, factors, strict=True)
    ]
    path = measure_svi(svi_key, problem.log_density, _DIM, "full-rank", FAST)
    return cell | {
        "svi_kl": float(np.median(plain)),
        "path_kl": gaussian_kl(read_gaussian(path), exact),
    }
