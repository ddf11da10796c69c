"""`reproduce` measures everything that the page needs, cell by cell, and writes the page."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from latentuq.core.cells import Cells, run_cells
from latentuq.forward.mask import RandomMask
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior.vae import Decoder
from latentuq.problem.experiments import EXPERIMENTS
from latentuq.problem.inverse import InverseProblem
from studies.baselines.adam import SHORT_STEPS, STEPS
from studies.baselines.schedule import staged_rates
from studies.baselines.svi import FAST, PAPER, Family, Settings
from studies.commits import commit
from studies.exact import exact_posterior, linear_prior
from studies.reproduce import gaussians, posteriors, variational
from studies.reproduce.gaussians import Gaussian, gaussian_kl, read_gaussian
from studies.reproduce.page import write_page
from studies.reproduce.plan import (
    FAMILIES,
    MASKED,
    MODELS,
    NOISY,
    OURS,
    RATES,
    REPEATS,
    SEARCHED,
    THEIRS,
    VARIANTS,
    Plan,
    load_models,
    true_image,
)
from studies.reproduce.recipe import run_recipe

Cell = dict[str, Any]

ADAM_STEPS: dict[str, Sequence[int]] = {MASKED: STEPS, NOISY: SHORT_STEPS}
"""The steps of each stage of Adam, as published with each problem."""
SETTINGS: dict[str, dict[Family, Settings]] = {
    THEIRS: dict.fromkeys(FAMILIES, FAST),
    OURS: PAPER,
}
"""The paper's own networks are nine times larger: its settings would take too long for them."""

_DIRECTIONS = 3
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
    cells = run_cells(output / "paper.json", plan.setup, make_jobs(plan), report, commit=commit())
    return write_page(cells, plan, output, command)


def make_jobs(plan: Plan) -> dict[str, Callable[[Cells], Cell]]:
    """Every cell by its name, in an order in which what one needs comes before it."""
    jobs: dict[str, Callable[[Cells], Cell]] = {}

    def add(kind: str, measure: Callable[..., Cell], *what: Any) -> None:
        jobs[" ".join([kind, *map(str, what)])] = lambda _: measure(plan, *what)

    def add_dependent(kind: str, measure: Callable[..., Cell], model: str) -> None:
        jobs[f"{kind} {model}"] = lambda cells: measure(plan, model, cells)

    for model in MODELS:
        add("prior", _prior, model)
        for corruption in EXPERIMENTS:
            add("posterior", posteriors.measure_posterior, model, corruption)
        for corruption, variant in product(SEARCHED, VARIANTS):
            add("recipe", _recipe, model, corruption, variant)
        add_dependent("gaussians", _gaussians, model)
    add("noise", _noise)
    for samples in REPEATS:
        add("samples", _samples, samples)
    for diagonal, rate in product(variational.DIAGONALS, RATES):
        add("stability", _stability, diagonal, rate)
    for corruption in EXPERIMENTS:
        add("truth", posteriors.measure_truths, corruption)
    for model in MODELS:
        for family in FAMILIES:
            add("svi", _svi, model, family)
        add_dependent("limit", _limit, model)
        add_dependent("slices", _slices, model)
    return jobs


def _prior(plan: Plan, model: str) -> Cell:
    """What a model file says about its networks and how good they are."""
    prior = plan.priors[model]
    config, metrics = prior.card.training["config"], prior.card.metrics
    assert isinstance(prior.decoder, Decoder)
    assert prior.flow is not None
    scores = ("sigma_model", "image_c2st_before", "image_c2st_after")
    return {
        "model_error": prior.model_error_name,
        "dim": prior.dim,
        "block_layers": len(prior.decoder.network.blocks),
        # The last layer makes the coupling's scale and shift.
        "flow_layers": len(prior.flow.couplings.layers) - 1,
        **{name: config[name] for name in ("vae", "flow", "vae_fit")},
        **{name: metrics[name] for name in scores},
    }


def _recipe(plan: Plan, model: str, corruption: str, variant: str) -> Cell:
    problem = plan.problem(model, corruption)
    # Both variants have the same starts.
    key = plan.key(f"recipe {model} {corruption}")
    annealed, steps = variant == "annealed", ADAM_STEPS[corruption]
    cell = run_recipe(key, problem.log_density, problem.dim, annealed=annealed, steps=steps)
    return cell | posteriors.describe_digits(problem.prior, jnp.array(cell["draws"], jnp.float32))


def _gaussians(plan: Plan, model: str, cells: Cells) -> Cell:
    mode = np.array(cells[f"posterior {model} {NOISY}"]["map"])
    problem = plan.problem(model, NOISY)
    return gaussians.fit_gaussians(plan.key(f"gaussians {model}"), problem.log_density, mode)


def _svi(plan: Plan, model: str, family: Family) -> Cell:
    problem, key = plan.problem(model, NOISY), plan.key(f"svi {model} {family}")
    settings = SETTINGS[model][family]
    cell = variational.measure_svi(key, problem.log_density, problem.dim, family, settings)
    mean = jnp.array(cell["mean"])
    return cell | posteriors.compare_image(problem.prior, mean, true_image(NOISY))


def _samples(plan: Plan, samples: int) -> Cell:
    """Full-rank SVI with the paper's steps and another number of draws for each."""
    problem = plan.problem(OURS, NOISY)
    settings = SETTINGS[OURS]["full-rank"]._replace(samples=samples)
    given = (problem.log_density, problem.dim, "full-rank", settings)
    keys = [plan.key(f"samples {samples} {repeat}") for repeat in range(REPEATS[samples])]
    return {"runs": [variational.measure_svi(key, *given) for key in keys]}


def _stability(plan: Plan, diagonal: str, rate: float) -> Cell:
    problem, key = plan.problem(OURS, NOISY), plan.key("stability")
    return variational.measure_stability(key, problem.log_density, problem.dim, diagonal, rate)


def _limit(plan: Plan, model: str, cells: Cells) -> Cell:
    start = read_gaussian(cells[f"svi {model} full-rank"])
    problem = plan.problem(model, NOISY)
    return gaussians.continue_el2o(plan.key(f"limit {model}"), problem.log_density, start)


def _slices(plan: Plan, model: str, cells: Cells) -> Cell:
    """Three coordinates through the deepest mode, chosen at random as the paper did."""
    posterior, problem = cells[f"posterior {model} {NOISY}"], plan.problem(model, NOISY)
    mode, std = np.array(posterior["map"]), np.array(posterior["std"])
    fits = cells[f"gaussians {model}"]["fits"]
    fits = fits | {family: cells[f"svi {model} {family}"] for family in FAMILIES}
    known = {name: read_gaussian(fit) for name, fit in fits.items()}
    chosen = np.random.default_rng(plan.seed).choice(problem.dim, _DIRECTIONS, replace=False)
    directions = sorted(chosen.tolist())
    return {"curves": gaussians.measure_slices(problem.log_density, mode, std, known, directions)}


def _noise(plan: Plan) -> Cell:
    """A linear generator, so that the posterior is Gaussian and known."""
    prior_key, data_key, step_key, svi_key = jax.random.split(plan.key("noise"), 4)
    prior = linear_prior(prior_key, _DIM, _SHAPE)
    empty = InverseProblem(prior, RandomMask(0.5, seed=0), GaussianNoise(0.1), np.zeros(_SHAPE))
    problem = empty.with_data(empty.simulate(data_key).y)
    known = exact_posterior(problem)
    exact = Gaussian(known.mean, np.linalg.cholesky(known.covariance))
    keys, rates = jax.random.split(svi_key, 4), staged_rates(FAST.learning_rates, FAST.steps)
    given = (problem.log_density, _DIM, rates, FAST.samples, "exponential")
    means, factors, _ = (np.asarray(part, np.float64) for part in variational.climb(keys, *given))
    plain = [gaussian_kl(Gaussian(*fit), exact) for fit in zip(means, factors, strict=True)]
    path = variational.measure_svi(svi_key, problem.log_density, _DIM, "full-rank", FAST)
    return gaussians.measure_step_noise(step_key, problem.log_density, exact) | {
        "svi_kl": float(np.median(plain)),
        "path_kl": gaussian_kl(read_gaussian(path), exact),
    }
