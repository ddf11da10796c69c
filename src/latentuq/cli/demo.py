"""`latentuq demo`: the paper's four corruptions, without any download."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from latentuq.cli.parallel import Say, in_processes
from latentuq.cli.progress import Bar
from latentuq.cli.seeds import seed_option

if TYPE_CHECKING:
    from latentuq.posterior import Posterior
    from latentuq.prior import GenerativePrior
    from latentuq.report.index import Entry

# Draws that the classifier reads.
_READ = 1000
# What the paper sees in the problem that it calls ambiguous.
_AMBIGUOUS, _PUBLISHED = "solidmask", (4, 9)
# Weight from which a mode is worth a reading.
_LEAST_WEIGHT = 0.01


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the reports.")] = Path(
        "latentuq-demo"
    ),
    model: Annotated[str, typer.Option(help="Embedded model or model file.")] = "mnist",
    budget: Annotated[str, typer.Option(help="preview, default or thorough.")] = "default",
    seed: Annotated[int, seed_option()] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write to a folder that exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summaries as JSON.")] = False,
) -> None:
    """Reconstruct four corrupted digits, with a report on each and an index of them all."""
    from latentuq.core.files import staged_folder
    from latentuq.prior.model_file import load_prior
    from latentuq.problem.experiments import EXPERIMENTS
    from latentuq.report.figures import draw_gallery
    from latentuq.report.index import make_index

    with staged_folder(output, force) as staged:
        prior = load_prior(model)
        command = shlex.join(["latentuq", *sys.argv[1:]])
        jobs = [
            _Job(names, staged, model, budget, seed, command) for names in _by_operator(prior.shape)
        ]
        with Bar(quiet=as_json, pulsing=True) as bar:
            parts = in_processes(_make_reports, jobs, bar.say)
        made = {name: report for part in parts for name, report in part.items()}
        reports = [made[name] for name in EXPERIMENTS]
        introduction = (
            f"The paper's four corruptions of test digits under the prior {prior.card.name}."
            " A name leads to the whole report. Blue-grey pixels are missing."
        )
        entries = [report.entry for report in reports]
        page = make_index("latentuq: four corrupted digits", introduction, entries)
        (staged / "index.html").write_text(page, encoding="utf-8")
        gallery = draw_gallery({entry.name: entry.content for entry in entries})
        gallery.savefig(staged / "overview.png", dpi=130)
    if as_json:
        summaries = {report.entry.name: report.facts for report in reports}
        typer.echo(json.dumps({"index": str(output / "index.html"), "reports": summaries}))
        return
    for report in reports:
        name, summary, note, *_ = report.entry
        typer.echo(f"{name}: {summary}\n  {report.line}\n  {note}")
    typer.echo(f"Open {output / 'index.html'} in a browser.")


class _Job(NamedTuple):
    """Experiments that one process works on, and what their reports need."""

    names: list[str]
    folder: Path
    model: str
    budget: str
    seed: int
    command: str


class _Report(NamedTuple):
    """A row of the index, the summary, and a line about the answer."""

    entry: "Entry"
    facts: dict[str, Any]
    line: str


def _by_operator(shape: tuple[int, ...]) -> list[list[str]]:
    """The experiments, those with operators of one kind together: they share programs."""
    from latentuq.problem.experiments import EXPERIMENTS

    kinds: dict[type, list[str]] = {}
    for name, experiment in EXPERIMENTS.items():
        kinds.setdefault(type(experiment.make_operator().bind(shape)), []).append(name)
    return list(kinds.values())


def _make_reports(job: _Job, say: Say) -> dict[str, _Report]:
    """Solves the experiments of one process and writes their reports."""
    from latentuq.core.compilation import keep_compiled

    keep_compiled()
    import jax

    from latentuq.data import load_digits
    from latentuq.posterior import solve
    from latentuq.prior.model_file import load_prior
    from latentuq.problem.experiments import EXPERIMENTS, make_problem
    from latentuq.report.index import Entry
    from latentuq.report.write import write_report, write_summary

    prior = load_prior(job.model)
    reports = {}
    for name in job.names:
        experiment = EXPERIMENTS[name]
        truth = load_digits().digit(experiment.image)
        problem = make_problem(prior, name, truth)
        key = jax.random.fold_in(jax.random.key(job.seed), [*EXPERIMENTS].index(name))
        solve_key, report_key = jax.random.split(key)
        folder = job.folder / name
        folder.mkdir()

        def show(progress: Any, name: str = name) -> None:
            say(f"{name}: {progress.message}")

        post = solve(solve_key, problem, budget=job.budget, progress=show)
        say(f"{name}: Writing the report.")
        digits = _digits(prior, post)
        notes = [f"Read as digits: {_in_words(digits)}."]
        if name == _AMBIGUOUS:
            notes += _compare_with_paper(post)
        content, facts = write_report(
            folder,
            report_key,
            post,
            title=f"{name}: {experiment.summary}",
            truth=truth,
            notes=notes,
            command=job.command,
            seed=job.seed,
        )
        facts["digits"] = digits
        write_summary(folder, facts)
        entry = Entry(name, experiment.summary, " ".join(notes), post.verdict, content)
        reports[name] = _Report(entry, facts, repr(post))
    return reports


def _digits(prior: "GenerativePrior", post: "Posterior") -> list[float]:
    """Probabilities of the ten digits: what a classifier sees in posterior draws."""
    import jax
    import numpy as np

    from latentuq.calibration.classifier import load_classifier
    from latentuq.posterior.maps import decode_images

    images = decode_images(prior, post.sample(jax.random.fold_in(post.key, 3), _READ))
    probabilities = np.asarray(load_classifier().probabilities(images))
    return [round(float(each), 4) for each in probabilities.mean(axis=0)]


def _compare_with_paper(post: "Posterior") -> list[str]:
    """Which of the paper's digits no mode is read as, in a sentence; none if there is none."""
    import numpy as np

    from latentuq.calibration.classifier import load_classifier

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
