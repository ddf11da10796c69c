"""The paper's four corruptions of test digits: a report on each, and an index of them all."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from latentuq.app.progress import Listener, Stages
from latentuq.calibration.classifier import load_classifier
from latentuq.core.files import staged_folder
from latentuq.data.digits import load_digits
from latentuq.inference.result import Progress
from latentuq.posterior.maps import decode_images
from latentuq.posterior.posterior import Posterior
from latentuq.posterior.solve import solve
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_file import load_prior
from latentuq.problem.experiments import EXPERIMENTS, make_problem
from latentuq.report.collect import collect
from latentuq.report.figures import draw_gallery
from latentuq.report.index import Entry, make_index, make_row
from latentuq.report.write import Background, stamp, write_report, write_summary

# Draws that the classifier reads.
_READ = 1000
# What the paper sees in the problem that it calls ambiguous.
_AMBIGUOUS, _PUBLISHED = "solidmask", (4, 9)
# Weight from which a mode is worth a reading.
_LEAST_WEIGHT = 0.01


class DemoRequest(NamedTuple):
    """What the demonstration needs.

    Attributes:
        folder: Where the reports shall be.
        model: The name or the model file of a prior of 28 x 28 digits.
        budget: "preview", "default" or "thorough".
        seed: The seed of everything random.
        force: Whether the folder may hold files already.
        command: What the reports name as the command that made them.
    """

    folder: Path
    model: str = "mnist"
    budget: str = "default"
    seed: int = 0
    force: bool = False
    command: str = ""


class DemoReport(NamedTuple):
    """One of the four reports: its row of the index, its `summary.json`, its posterior."""

    entry: Entry
    facts: dict[str, Any]
    posterior: Posterior


def make_demo(request: DemoRequest, progress: Listener | None = None) -> list[DemoReport]:
    """Solves the four problems and writes reports and index; all of them or nothing.

    Args:
        request: What is to be made.
        progress: Called with an `Event` whenever there is something to say.
    """
    with staged_folder(request.folder, request.force) as staged:
        prior = load_prior(request.model)
        stages = Stages(progress)
        reports = [_make_report(staged / name, prior, request, stages) for name in EXPERIMENTS]
        introduction = (
            f"The paper's four corruptions of test digits under the prior {prior.card.name}."
        )
        entries = [report.entry for report in reports]
        rows = [make_row(entry) for entry in entries]
        page = make_index("latentuq: four corrupted digits", introduction, rows)
        (staged / "index.html").write_text(page, encoding="utf-8")
        gallery = draw_gallery({entry.name: entry.content for entry in entries})
        gallery.savefig(staged / "overview.png", dpi=130)
    return reports


def _make_report(
    folder: Path, prior: GenerativePrior, request: DemoRequest, stages: Stages
) -> DemoReport:
    """Solves the experiment that the folder is named after, and writes its report there."""
    name = folder.name
    place, experiment = [*EXPERIMENTS].index(name), EXPERIMENTS[name]

    def follow(progress: Progress) -> None:
        stages.say(f"{name}: {progress.message}")

    stages.say(f"{name}: Searching for modes.", place / len(EXPERIMENTS))
    truth = load_digits().digit(experiment.image)
    key = jax.random.fold_in(jax.random.key(request.seed), place)
    solve_key, report_key = jax.random.split(key)
    problem = make_problem(prior, name, truth)
    post = solve(solve_key, problem, budget=request.budget, progress=follow)
    post = stamp(post, request.command, request.seed)
    stages.say(f"{name}: Writing the report.")
    digits = _read_digits(prior, post)
    notes = [f"Read as digits: {_in_words(digits)}."]
    if name == _AMBIGUOUS:
        notes += _compare_with_paper(post)
    content = collect(report_key, post, truth)
    background = Background(f"{name}: {experiment.summary}", notes=notes)
    folder.mkdir()
    facts = write_report(folder, post, content, background) | {"digits": digits}
    write_summary(folder, facts)
    entry = Entry(name, experiment.summary, " ".join(notes), post.verdict, content)
    return DemoReport(entry, facts, post)


def _read_digits(prior: GenerativePrior, post: Posterior) -> list[float]:
    """Probabilities of the ten digits: what a classifier sees in posterior draws."""
    images = decode_images(prior, post.sample(jax.random.fold_in(post.key, 3), _READ))
    probabilities = np.asarray(load_classifier().probabilities(images))
    return [round(float(each), 4) for each in probabilities.mean(axis=0)]


def _compare_with_paper(post: Posterior) -> list[str]:
    """Which of the paper's digits no mode is read as, in a sentence; none if there is none."""
    heavy = np.asarray(post.weights) >= _LEAST_WEIGHT
    read = np.argmax(load_classifier().probabilities(post.mode_images[heavy]), axis=1)
    missing = [str(digit) for digit in _PUBLISHED if digit not in read]
    if not missing:
        return []
    found, lacking = " and a ".join(map(str, _PUBLISHED)), " or a ".join(missing)
    return [
        f"The paper finds a {found}; here no mode of {100 * _LEAST_WEIGHT:.0f} % or more is read as"
        f" a {lacking}: what a prior can make of the visible part differs from prior to prior, see"
        " docs/results/paper.md."
    ]


def _in_words(digits: list[float]) -> str:
    """Those of at least one per cent, the most probable first."""
    order = sorted(range(len(digits)), key=lambda digit: -digits[digit])
    return ", ".join(
        f"{digit} ({100 * digits[digit]:.0f} %)" for digit in order if digits[digit] >= 0.01
    )
