"""`python -m studies NAME`: the one way to run what only we run."""

import importlib
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import typer

from latentuq import UserError
from latentuq.cli.flags import seed_option
from latentuq.core.cells import job, read_cells, read_file, run_cells
from studies.commits import commit, commits
from studies.pages import RESULTS, write_page

MEASURED = {
    "priors": "Network sizes, training speed and the metrics of the embedded models.",
    "references": "Ground truth of 16 image posteriors by sequential Monte Carlo.",
    "inference": "Is the inference right, repeatable and honest?",
    "verdicts": "Does the verdict notice what is wrong with the data?",
    "reports": "Are the reports of the demo right, and where does their time go?",
    "scale": "Surveys: images per second, memory, and the answers to a thousand digits.",
    "page": "How long does somebody who paints on the page wait?",
}
"""Studies whose module has `make_setup`, `make_jobs` and `make_values`."""

app = typer.Typer(
    help="Run a study; what has been measured is saved and not repeated.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Write = Annotated[bool, typer.Option("--write", help="Write the page alone; measure nothing.")]
Model = Annotated[str, typer.Option(help="An embedded model or a model file.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="The folder of cells and page.")]
Seed = Annotated[int, seed_option()]


def _report(name: str, cell: dict[str, Any]) -> None:
    told = cell.get("error") or (f"{cell['seconds']:.2f} s" if "seconds" in cell else "")
    typer.echo(f"{name}: {told}", err=True)


def _command() -> str:
    """What was called, without what only leaves out the measurements."""
    words = [word for word in sys.argv[1:] if word != "--write"]
    return shlex.join(["python", "-m", "studies", *words])


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _add_measured(name: str, text: str) -> None:
    @app.command(name, help=text)
    def run(
        write: Write = False,
        only: Annotated[str, typer.Option(help="Measure only cells whose name starts so.")] = "",
    ) -> None:
        study: Any = importlib.import_module(f"studies.{name}")
        path, jobs = RESULTS / f"{name}.json", study.make_jobs()
        if not write:
            chosen = {each: job for each, job in jobs.items() if each.startswith(only)}
            run_cells(path, study.make_setup(), chosen, _report, commit=commit())
        cells = read_cells(path)
        if missing := jobs.keys() - cells.keys():
            raise UserError(f"{len(missing)} cells are missing in {path}, so there is no page yet.")
        values = {"commits": commits(cells.values()), **study.make_values(cells)}
        typer.echo(f"Wrote {write_page(name, path.with_suffix('.md'), values)}")


for each in MEASURED.items():
    _add_measured(*each)


@app.command()
def bench(
    methods: Annotated[
        str, typer.Option(help="Names, separated by commas; 'all' includes the slow ones.")
    ] = "",
    corruptions: Annotated[str, typer.Option(help="Names, separated by commas.")] = "",
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each but the slow methods.")] = 3,
    references: Annotated[
        Path, typer.Option(help="Ground truth, from `python -m studies references`.")
    ] = RESULTS / "references.safetensors",
    output: Output = RESULTS,
    model: Model = "mnist",
    seed: Seed = 0,
    scaling: Annotated[
        bool, typer.Option(help="Also measure the cost against dimension, image size and starts.")
    ] = False,
    write: Write = False,
) -> None:
    """Our inference beside the others, on the paper's four problems."""
    from latentuq.prior.model_file import load_prior
    from latentuq.problem.experiments import EXPERIMENTS
    from studies.bench.methods import METHODS
    from studies.bench.page import write_bench
    from studies.bench.run import Plan, run_bench
    from studies.references import read_references

    path = output / "bench.json"
    if not write:
        chosen = _listed(methods)
        if methods in ("", "all"):
            chosen = [each for each, method in METHODS.items() if methods or not method.slow]
        problems = _listed(corruptions) or [*EXPERIMENTS]
        prior = load_prior(model)
        truths = read_references(references, prior)
        plan = Plan(prior, truths, chosen, problems, repeats, seed, scaling)
        run_bench(plan, path, _report)
    setup, cells = read_file(path)
    typer.echo(f"Wrote {write_bench(cells, setup, output, _command())}")


@app.command()
def calibration(
    study: Annotated[str, typer.Option(help="simulated or real.")] = "simulated",
    corruption: Annotated[
        str, typer.Option(help="One of the paper's four corruptions.")
    ] = "masknoise05",
    model_error: Annotated[
        str, typer.Option(help="One of the model's; default: low-rank if simulated, else in use.")
    ] = "",
    method: Annotated[str, typer.Option(help="What draws from the posterior.")] = "latentuq",
    problems: Annotated[int, typer.Option(min=1, help="The number of problems.")] = 200,
    output: Output = RESULTS / "calibration",
    model: Model = "mnist",
    seed: Seed = 0,
    write: Write = False,
) -> None:
    """Does what the posterior says happen as often as it says, for other methods too?"""
    from latentuq.prior.model_file import load_prior
    from studies.calibration import run_calibration
    from studies.calibration_cases import Study
    from studies.calibration_page import write_calibration

    if not write:
        chosen = Study(study, corruption, model_error, method)
        run_calibration(chosen, load_prior(model), problems, output, seed, _report)
    page = output.resolve().with_name(f"{output.resolve().name}.md")
    place = "" if output == RESULTS / "calibration" else f" -o {output}"
    command = f"python -m studies calibration --write{place}"
    typer.echo(f"Wrote {write_calibration(output, page, command)}")


@app.command()
def dimensions(
    parts: Annotated[
        str,
        typer.Option(help="Of trained, growth, discovery and errors, separated by commas; or all."),
    ] = "all",
    solves: Annotated[
        int, typer.Option(min=0, help="The number of targets with many modes.")
    ] = 300,
    keys: Annotated[int, typer.Option(min=0, help="How many runs of each hard shape.")] = 10,
    only: Annotated[str, typer.Option(help="Measure only cells whose name starts so.")] = "",
    output: Output = RESULTS,
    write: Write = False,
) -> None:
    """From 10 to 256 dimensions, and no mode lost in silence: is the inference still right?"""
    from studies.dimensions import PARTS, make_jobs, make_setup
    from studies.dimensions_page import make_values

    path = output / "dimensions.json"
    if not write:
        chosen = PARTS if parts == "all" else _listed(parts)
        jobs = make_jobs(chosen, solves, keys, output)
        jobs = {name: job for name, job in jobs.items() if name.startswith(only)}
        run_cells(path, make_setup(), jobs, _report, commit=commit())
    _, cells = read_file(path)
    values = {"command": _command(), "commits": commits(cells.values())} | make_values(cells)
    typer.echo(f"Wrote {write_page('dimensions', output / 'dimensions.md', values)}")


@app.command()
def memory(
    operators: Annotated[int, typer.Option(min=1, help="The number of different operators.")] = 200,
    densities: Annotated[int, typer.Option(min=0, help="The number of different densities.")] = 300,
    output: Output = RESULTS,
    write: Write = False,
) -> None:
    """Does memory stay bounded over many different problems in one process?"""
    from studies.memory import make_values, measure

    path = output / "memory.json"
    if not write:
        # One cell, because all of it must be one process.
        jobs = {"series": job(measure, operators, densities, _report)}
        run_cells(
            path, {"operators": operators, "densities": densities}, jobs, _report, commit=commit()
        )
    setup, cells = read_file(path)
    values = {"command": _command(), "commits": commits(cells.values()), **setup}
    typer.echo(f"Wrote {write_page('memory', output / 'memory.md', values | make_values(cells))}")


@app.command()
def reproduce(output: Output = RESULTS, seed: Seed = 0) -> None:
    """The paper's figures, numbers and claims."""
    from latentuq.core.compilation import keep_compiled
    from studies.reproduce.run import reproduce as run

    keep_compiled()
    typer.echo(f"Wrote {run(output, seed, _command(), _report)}")


@app.command()
def settings() -> None:
    """Write docs/settings.md anew, from the settings of the engine."""
    from studies.settings_page import make_values

    path = RESULTS.parent / "settings.md"
    typer.echo(f"Wrote {write_page('settings', path, make_values())}")


@app.command()
def classifier() -> None:
    """Train the classifier of digits that comes with the package: about a minute."""
    from studies.classifier import train

    typer.echo(f"Wrote {train()}")


def main() -> NoReturn:
    """Runs a study; everything that a person can get wrong is one sentence and exit code 2."""
    # The class of all complaints about flags and arguments; typer does not export it by name.
    usage_error = cast(type[Exception], typer.BadParameter.__base__)
    try:
        sys.exit(app(prog_name="python -m studies", standalone_mode=False))
    except UserError as error:
        message = str(error)
    except usage_error as error:
        message = str(cast(Any, error).format_message())
        if not message:  # A bare `python -m studies` was answered with its help text already.
            sys.exit(0)
        message = f"{message.rstrip('.')}; see python -m studies --help."
    except ModuleNotFoundError as error:
        message = f"This study needs the package {error.name}; `make env-test` installs it."
    except (KeyboardInterrupt, typer.Abort):
        print("studies: Interrupted; the same command continues.", file=sys.stderr, flush=True)
        # Threads of XLA may still be at work: an orderly exit under them can crash.
        os._exit(130)
    print(f"studies: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
