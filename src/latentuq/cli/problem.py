"""`latentuq problem`: state an inverse problem, check it, and keep it as a file."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from latentuq.cli import problem_options as options
from latentuq.core.errors import UserError


def problem(
    data: Annotated[
        Path,
        typer.Argument(
            help="The observation (npy, npz, png, tif or fits), NaN where missing. Whole numbers "
            "are in the units of the model's training files, floats are on its [0, 1] scale."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The .toml file to write.")],
    model: Annotated[str, typer.Option(help="Embedded model or model file.")] = "mnist",
    gain: options.GainOption = None,
    blur: options.BlurOption = None,
    boundary: options.BoundaryOption = None,
    downsample: options.DownsampleOption = None,
    angles: options.AnglesOption = None,
    matrix: options.MatrixOption = None,
    mask: options.MaskOption = None,
    quality: options.QualityOption = None,
    noise: options.NoiseOption = None,
    variance: options.VarianceOption = None,
    covariance: options.CovarianceOption = None,
    from_file: options.ProblemOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Describe what happened to an image, check it, and save it as a problem file.

    Gain, blur, downsampling, projection and matrix act in this order, the mask last.
    """
    from latentuq.data.images import is_fits
    from latentuq.prior.model_file import embedded_models, load_prior
    from latentuq.problem import InverseProblem
    from latentuq.problem.files import in_prior_units, read_array, save_problem

    if output.exists() and not force:
        raise UserError(f"{output} exists; --force overwrites it.")
    prior = load_prior(model)
    flags = options.ProblemFlags(
        gain=gain,
        blur=blur,
        boundary=boundary,
        downsample=downsample,
        angles=angles,
        matrix=matrix,
        mask=mask,
        quality=quality,
        noise=noise,
        variance=variance,
        covariance=covariance,
        problem=from_file,
    )
    raw = read_array(data)
    scale = prior.scaling.scale if raw.dtype.kind in "uib" else 1.0
    content = options.problem_from_flags(flags, prior.shape, scale, is_fits(data))
    y = in_prior_units(raw, prior)
    stated = InverseProblem(prior, content.operator, content.noise, y)
    # A model file is named relative to the problem file, so that both can move together.
    name = model if model in embedded_models() else os.path.relpath(model, output.parent)
    save_problem(stated, output, prior=name, overwrite=force)
    if as_json:
        summary = {
            "problem": str(output),
            "model": model,
            "operator": repr(stated.operator),
            "noise": repr(stated.noise),
            "observed": int(stated.observed.sum()),
            "data": int(stated.y.size),
        }
        typer.echo(json.dumps(summary))
    else:
        typer.echo(stated.explain())
        typer.echo(f"Wrote {output}")
