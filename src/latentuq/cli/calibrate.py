"""`latentuq calibrate`: does what the posterior says happen as often as it says?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from latentuq.cli.flags import seed_option


def calibrate(
    study: Annotated[
        str, typer.Option(help="Data simulated from the model (simulated) or test images (real).")
    ] = "simulated",
    corruption: Annotated[
        str, typer.Option(help="One of the paper's four corruptions.")
    ] = "masknoise05",
    model_error: Annotated[
        str, typer.Option(help="One of the model's; default: low-rank if simulated, else in use.")
    ] = "",
    problems: Annotated[int, typer.Option(min=1, help="The number of problems in all.")] = 200,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder of the rows.")] = Path(
        "latentuq-calibration"
    ),
    model: Annotated[str, typer.Option(help="An embedded model or a model file.")] = "mnist",
    seed: Annotated[int, seed_option("The seed of the problems and of the inference.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Solve problems with known answers; each is saved as it finishes, a second call continues."""
    from latentuq.calibration.run import Study, default_model_error, run_study
    from latentuq.calibration.summary import describe
    from latentuq.prior.model_file import load_prior

    prior = load_prior(model)
    chosen = Study(study, corruption, model_error or default_model_error(prior, study))

    def report(name: str, row: dict) -> None:
        told = f"{chosen.name}: {int(name) + 1} of {problems}, {row['seconds']:.1f} s"
        typer.echo(told, err=True)

    rows = run_study(chosen, prior, problems, output, seed, report)
    facts = describe([*rows.values()])
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name:32s} {value}")
    typer.echo(f"Rows: {output / chosen.name}.json")
