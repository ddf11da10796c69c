"""`latentuq calibrate`: does what the posterior says happen as often as it says?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from latentuq.cli.seeds import seed_option


def calibrate(
    study: Annotated[str, typer.Option(help="simulated, real or alarms.")] = "simulated",
    corruption: Annotated[str, typer.Option(help="One of the paper's four.")] = "masknoise05",
    model_error: Annotated[
        str, typer.Option(help="One of the model's; default: low-rank if simulated, else in use.")
    ] = "",
    method: Annotated[str, typer.Option(help="What draws from the posterior.")] = "latentuq",
    problems: Annotated[
        int, typer.Option(min=1, help="How many, in all (of each kind of image for alarms).")
    ] = 200,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the rows.")] = Path(
        "latentuq-calibration"
    ),
    model: Annotated[str, typer.Option(help="Embedded model or model file.")] = "mnist",
    seed: Annotated[int, seed_option("Of problems and inference.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Write what the folder holds as a page; measure nothing.")
    ] = None,
) -> None:
    """Solve problems with known answers; each is saved as it finishes, a second call continues."""
    from latentuq.calibration.alarms import SETS, STUDY, describe_alarms, run_alarms
    from latentuq.calibration.studies import Study, check_study, run_study
    from latentuq.calibration.summary import describe
    from latentuq.core.files import make_folder
    from latentuq.prior.model_error import LOW_RANK
    from latentuq.prior.model_file import load_prior
    from studies.calibration_page import write_page

    if page is not None:
        typer.echo(f"Wrote {write_page(output, page)}")
        return
    prior = load_prior(model)
    if not model_error:
        # Only here likelihood and simulation are one Gaussian, which ranks need.
        exact = study == "simulated" or method != "latentuq"
        exact &= LOW_RANK in prior.model_errors
        model_error = LOW_RANK if exact else prior.model_error_name
    chosen = Study(study, corruption, model_error, method)
    if study != STUDY:
        check_study(chosen, prior)
    prior = prior.with_model_error(chosen.model_error)
    make_folder(output)

    def report(done: int, row: dict) -> None:
        total = problems * len(SETS) if study == STUDY else problems
        name = STUDY if study == STUDY else chosen.name
        typer.echo(f"{name}: {done} of {total}, {row['seconds']:.1f} s", err=True)

    if study == STUDY:
        path = run_alarms(prior, problems, output, seed, report)
        facts = describe_alarms(json.loads(path.read_text())["rows"])
    else:
        path = run_study(chosen, prior, problems, output, seed, report)
        facts = describe(json.loads(path.read_text())["rows"])
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name:32s} {value}")
    typer.echo(f"Rows: {path}")
