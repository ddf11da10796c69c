"""docs/results/paper.md and its figures, from the cells of a run."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from latentuq.core.cells import commits
from latentuq.core.files import atomic_path
from latentuq.data import load_digits
from latentuq.problem.experiments import EXPERIMENTS
from studies.pages import table
from studies.reproduce import fit_claims, posterior_claims, search_claims, svi_claims
from studies.reproduce.claim import Claim, listed, name_digits
from studies.reproduce.figures import FIGURES
from studies.reproduce.numbers import make_table
from studies.reproduce.recipe import ARRIVED, are_minima
from studies.reproduce.run import MASKED, MODELS, NOISY, OURS, THEIRS, Cells, Plan

_DPI = 110


def write_page(cells: Cells, setup: dict[str, Any], plan: Plan, folder: Path, command: str) -> Path:
    """Draws the figures and writes the page beside the cells."""
    for name, draw in FIGURES.items():
        with atomic_path(folder / f"paper-{name}.png") as temporary:
            draw(cells, plan).savefig(temporary, dpi=_DPI)
    page = folder / "paper.md"
    with atomic_path(page) as temporary:
        temporary.write_text(make_page(cells, setup, command))
    return page


def make_page(cells: Cells, setup: dict[str, Any], command: str) -> str:
    """The whole page; it reads nothing but the cells."""
    claims = make_claims(cells)
    sections = [
        "# The paper, figure by figure",
        _introduction(cells, setup, command),
        "## Figure 1: reconstructions, and samples of the masked 4",
        _figure("figure1", "Reconstructions under two priors"),
        _reconstructions(cells),
        "## Figure 2: prior samples before and after the flow",
        _figure("figure2", "Prior samples"),
        "The generator's images of the same draws of N(0, I), taken as z and as u. In brackets the"
        " accuracy of a classifier that tells them from decoded test images.",
        "## Figure 3: the latent posterior of the masked 4",
        _figure("figure3", "Latent posterior"),
        _latent(cells),
        "## Appendix A: twenty starts",
        _figure("starts", "Where twenty starts ended"),
        _starts(cells),
        "## Appendix A: EL2O beside stochastic variational inference",
        _figure("svi", "Images at the mode and at the means of SVI"),
        _figure("slices", "Slices of the posterior and of the fits"),
        _fits(cells),
        "## Appendix B: the forward model, in our code",
        _figure("forward", "From u to y"),
        "The quantities are in italics, the functions between them in boxes, our names for them"
        " above. The flow is fitted to samples of the encoder, and the model error is part of the"
        " model: the images are one simulation with it.",
        "## The paper says, we find",
        make_table(cells),
        "## Its claims, tested",
        table(["claim", "answer"], [[claim.question, claim.answer] for claim in claims]),
        *(f"### {claim.question}\n\n**{claim.answer}** {claim.evidence}" for claim in claims),
        "## How far to trust our own answers",
        _verdicts(cells),
    ]
    return "\n\n".join(_wrapped(section) for section in sections) + "\n"


def make_claims(cells: Cells) -> list[Claim]:
    """All claims, in the order of the paper."""
    checks = [
        posterior_claims.check_two_digits,
        posterior_claims.check_weights,
        posterior_claims.check_data,
        posterior_claims.check_flow,
        search_claims.check_annealing,
        search_claims.check_truth,
        search_claims.check_starts,
        fit_claims.check_agreement,
        fit_claims.check_noise,
        fit_claims.check_accuracy,
        svi_claims.check_samples,
        svi_claims.check_stability,
        svi_claims.check_means,
    ]
    return [check(cells) for check in checks]


def _introduction(cells: Cells, setup: dict[str, Any], command: str) -> str:
    models = listed(
        f"`{name}` (sha256 {model['checksum'][:12]}, model error {model['model_error']})"
        for name, model in setup["models"].items()
    )
    return (
        f"Written by `{command}` from [paper.json](paper.json) ({commits(cells.values())}):"
        " Böhm, Lanusse and Seljak,"
        " *Uncertainty Quantification with Generative Models* (2019, arXiv 1910.10046), with"
        f" {models}. `{THEIRS}` has the paper's networks and its scalar model error; `{OURS}` is"
        " our default. Their weights are not the paper's, so shapes of results should agree, digits"
        " need not. Every number but those of the paper, and every yes and no, is read off the"
        " measured cells; images are decoder means without the model error, as the paper's are."
    )


def _figure(name: str, title: str) -> str:
    return f"![{title}](paper-{name}.png)"


def _reconstructions(cells: Cells) -> str:
    parts = []
    for model in MODELS:
        right = []
        for name in EXPERIMENTS:
            if cells[f"posterior {model} {name}"]["map_digit"] == _true_digit(name):
                right.append(f"`{name}`")
        where = f" ({', '.join(right)})" if 0 < len(right) < len(EXPERIMENTS) else ""
        parts.append(f"in {len(right)} of {len(EXPERIMENTS)} under `{model}`{where}")
    return (
        "Left: data, the image at the deepest mode, and the truth. A classifier reads the true"
        f" digit in the deepest mode {listed(parts)}. Middle and right: sixteen draws of the"
        f" certified posterior of `{MASKED}`, whole and as the mask shows them."
    )


def _true_digit(corruption: str) -> int:
    digits = load_digits()
    return int(digits.labels[digits.indices == EXPERIMENTS[corruption].image][0])


def _latent(cells: Cells) -> str:
    claim = posterior_claims.check_two_digits(cells)
    recipe = cells[f"recipe {THEIRS} {MASKED} annealed"]
    first = "The paper's recipe found no minimum, so the first panel is empty. "
    if recipe["classes"]:
        first = (
            f"First the paper's recipe with its networks: {recipe['minima']} minima, and in draws"
            f" of their Laplace mixture {name_digits(recipe['classes'])}. "
        )
    return (
        f"{first}Then draws of the certified posteriors. Colours are the digits that a classifier"
        f" finds likeliest, and each prior has a plane of its own. {claim.question} {claim.answer}"
    )


def _starts(cells: Cells) -> str:
    parts = []
    for model in MODELS:
        recipe = cells[f"recipe {model} {MASKED} annealed"]
        ours = np.array(cells[f"posterior {model} {MASKED}"]["ends"])
        deepest = min(min(recipe["ends"]), ours.min())
        near = sum(end < deepest + 1 for end in recipe["ends"])
        parts.append(
            f"`{model}`: {near} of {recipe['starts']} starts of Adam end within 1 nat of the"
            f" deepest end; {sum(recipe['definite'])} end with a positive definite Hessian,"
            f" {sum(are_minima(recipe))} of them where a Newton step would gain less than"
            f" {ARRIVED:g} nats, and the recipe tells {recipe['minima']} separate minima; of our"
            f" first {len(ours)} descents from the prior with a finite end"
            f" {int(np.sum(ours < deepest + 1))} end within 1 nat"
        )
    return (
        f"{'; '.join(parts)}. Our descents stop as soon as it is known where they lead, new minima"
        " are polished afterwards, and hopeless descents are given up; half of our starts are not"
        " prior draws but likely ones, and not shown here."
    )


def _fits(cells: Cells) -> str:
    means = svi_claims.check_means(cells)
    settings = listed(
        f"{cells[f'svi {model} full-rank']['samples']} draws per step under `{model}`"
        for model in MODELS
    )
    return (
        f"The noisy half-masked 4, `{NOISY}`. SVI takes {settings}. The black line is -ln p along"
        " one coordinate of u through the deepest mode, three coordinates drawn at random. Each fit"
        " is drawn through its own mean, from -ln p there, as in the paper (with the 1/2). Means"
        f" away from the mode, and a fault? {means.answer} The numbers are below."
    )


def _verdicts(cells: Cells) -> str:
    rows, doubtful = [], []
    for model in MODELS:
        for name in EXPERIMENTS:
            cell = cells[f"posterior {model} {name}"]
            word = cell["verdict"].split()[0].strip(":;,.")
            if word == "unreliable":
                doubtful.append(f"`{name}` under `{model}`: {cell['verdict']}")
            rows.append(
                [
                    f"`{model}` `{name}`",
                    word,
                    str(cell["relevant_modes"]),
                    "-" if cell["khat"] is None else f"{cell['khat']:.2f}",
                    f"{cell['log_evidence_error']:.3f}",
                    str(cell["starts"]),
                    f"{cell['seconds']:.0f}",
                ]
            )
    titles = ["problem", "verdict", "modes above 1 %", "k-hat", "error of ln evidence", "starts"]
    text = table([*titles, "seconds, with compilation"], rows)
    if doubtful:
        text += "\n\nTo be taken with care: " + "; ".join(doubtful)
    return text


def _wrapped(section: str) -> str:
    """Lines of at most 100 characters, but for tables, headings and figures."""
    parts = section.split("\n\n")
    return "\n\n".join(
        part
        if part.startswith(("|", "#", "!"))
        else textwrap.fill(part, 100, break_long_words=False, break_on_hyphens=False)
        for part in parts
    )
