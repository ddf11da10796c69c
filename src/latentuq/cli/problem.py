"""`latentuq problem`: state an inverse problem, check it, and keep it as a file."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from latentuq.cli.flags import PROBLEM_FLAGS, with_flags
from latentuq.core.errors import UserError


@with_flags(PROBLEM_FLAGS)
def problem(
    *,
    data: Annotated[
        str,
        typer.Argument(
            help="The observation: png, jpg, webp, tif, npy, npz, fits or fits.gz, read as by"
            " latentuq reconstruct."
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The .toml file to write.")
    ],
    model: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Embedded model or model file.")
    ] = "mnist",
    flags: dict[str, Any],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Describe what happened to an image, check it, and save it as a problem file.

    Gain, blur, downsampling, projection and matrix act in this order, the mask last.
    """
    from latentuq.prior.model_file import load_prior
    from latentuq.problem.files import make_problem, read_data, save_problem
    from latentuq.problem.specification import Specification

    if output.exists() and not force:
        raise UserError(f"{output} exists; --force overwrites it.")
    prior, specification = load_prior(model), Specification.from_flags(flags)
    observation = read_data(specification, data, prior)
    stated = make_problem(specification, prior, observation)
    save_problem(stated, output, overwrite=force)
    if as_json:
        summary = {
            "problem": str(output),
            "model": model,
            "operator": repr(stated.operator),
            "noise": repr(stated.noise),
            "observed": int(stated.observed.sum()),
            "data": int(stated.y.size),
            "units": observation.assumed,
        }
        typer.echo(json.dumps(summary))
    else:
        typer.echo(observation.assumed)
        typer.echo(stated.explain())
        typer.echo(f"Wrote {output}")
