"""`latentuq demo`: the paper's four corruptions, without any download."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latentuq.cli.ahead import importing
from latentuq.cli.progress import Bar

if TYPE_CHECKING:
    from latentuq.posterior import Posterior
    from latentuq.prior import GenerativePrior

# Draws that the classifier reads.
_READ = 1000


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the reports.")] = Path(
        "latentuq-demo"
    ),
    model: Annotated[str, typer.Option(help="Embedded model or model file.")] = "mnist",
    budget: Annotated[str, typer.Option(help="preview, default or thorough.")] = "default",
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write to a folder that exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summaries as JSON.")] = False,
) -> None:
    """Reconstruct four corrupted digits, with a report on each and an index of them all."""
    from latentuq.compilation import keep_compiled

    keep_compiled()
    import jax

    from latentuq.data import load_digits
    from latentuq.experiments import EXPERIMENTS, make_problem
    from latentuq.files import staged_folder
    from latentuq.posterior import solve
    from latentuq.report.figures import draw_gallery
    from latentuq.report.index import Entry, make_index
    from latentuq.report.words import first_word
    from latentuq.report.write import MODULES, write_report, write_summary
    from latentuq.store import load_prior

    command = shlex.join(["latentuq", *sys.argv[1:]])
    summaries: dict[str, Any] = {}
    entries, lines = [], []
    with staged_folder(output, force) as staged:
        prior = load_prior(model)
        for place, (name, experiment) in enumerate(EXPERIMENTS.items()):
            truth = load_digits().digit(experiment.image)
            problem = make_problem(prior, name, truth)
            key = jax.random.fold_in(jax.random.key(seed), place)
            solve_key, report_key = jax.random.split(key)
            folder = staged / name
            folder.mkdir()
            with Bar(quiet=as_json) as bar:
                with importing(MODULES, bar.show) as progress:
                    post = solve(solve_key, problem, budget=budget, progress=progress)
                bar.say("Writing the report.")
                content, facts = write_report(
                    folder,
                    report_key,
                    post,
                    title=f"{name}: {experiment.summary}",
                    truth=truth,
                    command=command,
                    seed=seed,
                )
            facts["digits"] = _digits(prior, post)
            write_summary(folder, facts)
            summaries[name] = facts
            note = f"Read as digits: {_in_words(facts['digits'])}."
            entries.append(Entry(name, experiment.summary, note, first_word(post), content))
            lines += [f"{name}: {experiment.summary}", f"  {post!r}", f"  {note}"]
        introduction = (
            f"The paper's four corruptions of test digits under the prior {prior.card.name}."
            " A name leads to the whole report. Blue-grey pixels are missing."
        )
        page = make_index("latentuq: four corrupted digits", introduction, entries)
        (staged / "index.html").write_text(page, encoding="utf-8")
        gallery = draw_gallery({entry.name: entry.content for entry in entries})
        gallery.savefig(staged / "overview.png", dpi=130)
    if as_json:
        typer.echo(json.dumps({"index": str(output / "index.html"), "reports": summaries}))
        return
    typer.echo("\n".join([*lines, f"Open {output / 'index.html'} in a browser."]))


def _digits(prior: "GenerativePrior", post: "Posterior") -> list[float]:
    """Probabilities of the ten digits: what a classifier sees in posterior draws."""
    import jax
    import numpy as np

    from latentuq.calibration.classifier import load_classifier
    from latentuq.posterior.maps import decode_images

    images = decode_images(prior, post.sample(jax.random.fold_in(post.key, 3), _READ))
    probabilities = np.asarray(load_classifier().probabilities(images))
    return [round(float(each), 4) for each in probabilities.mean(axis=0)]


def _in_words(digits: list[float]) -> str:
    """Those of at least one per cent, the most probable first."""
    order = sorted(range(len(digits)), key=lambda digit: -digits[digit])
    return ", ".join(f"{digit} {digits[digit]:.0%}" for digit in order if digits[digit] >= 0.01)
