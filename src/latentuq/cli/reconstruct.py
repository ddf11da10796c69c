"""`latentuq reconstruct`: from a corrupted image to a report."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from latentuq.cli import problem_options as options
from latentuq.cli.notes import noting
from latentuq.cli.progress import SEARCHING, Bar, Stages
from latentuq.cli.seeds import seed_option
from latentuq.core.errors import UserError

if TYPE_CHECKING:
    from latentuq.data.observation import Observation
    from latentuq.posterior import NoiseLevel, Posterior
    from latentuq.prior import GenerativePrior
    from latentuq.problem import InverseProblem

AUTO = "auto"


def reconstruct(
    image: Annotated[
        str,
        typer.Argument(
            metavar="IMAGE",
            help="The observation: png, tif, npy, npz or fits (file.fits[1] chooses an extension)."
            " NaN marks missing pixels; whole numbers are scaled to [0, 1], colour to grey.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder of the report; default: IMAGE's name."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Embedded model or model file; default: that of --problem, or mnist."),
    ] = None,
    gain: options.GainOption = None,
    blur: options.BlurOption = None,
    boundary: options.BoundaryOption = None,
    downsample: options.DownsampleOption = None,
    angles: options.AnglesOption = None,
    matrix: options.MatrixOption = None,
    mask: options.MaskOption = None,
    quality: options.QualityOption = None,
    noise: Annotated[
        str | None,
        typer.Option(
            "--noise",
            metavar="SIGMA|FILE|auto",
            help="Standard deviation of the noise: a number on the scale of [0, 1], a map of the"
            " data's shape, or auto to estimate it.",
        ),
    ] = None,
    variance: options.VarianceOption = None,
    covariance: options.CovarianceOption = None,
    from_file: options.ProblemOption = None,
    corrupt: Annotated[
        bool,
        typer.Option("--corrupt", help="IMAGE is clean: corrupt it first, compare with it after."),
    ] = False,
    resize: Annotated[
        bool, typer.Option("--resize", help="Resize IMAGE to the shape of the data.")
    ] = False,
    budget: Annotated[str, typer.Option(help="preview, default or thorough.")] = "default",
    samples: Annotated[int, typer.Option(min=1, help="Draws of u and x in posterior.nc.")] = 500,
    seed: Annotated[int, seed_option()] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write to a folder that exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json.")] = False,
) -> None:
    """Find every clean image that the data allow, its probability, and how far to trust that."""
    from latentuq.core.compilation import CompileClock, keep_compiled

    keep_compiled()
    stages = Stages(CompileClock())
    estimated = noise == AUTO
    if estimated and corrupt:
        raise UserError("--corrupt adds noise of a known level: give it instead of --noise auto.")
    flags = options.ProblemFlags(
        gain=gain,
        blur=blur,
        boundary=boundary,
        downsample=downsample,
        angles=angles,
        matrix=matrix,
        mask=mask,
        quality=quality,
        # A placeholder: the level is estimated once the data are known.
        noise="1" if estimated else noise,
        variance=variance,
        covariance=covariance,
        problem=from_file,
    )
    asked = _Asked(
        image=image,
        folder=output or Path(f"{Path(image.partition('[')[0]).stem}-report"),
        model=model,
        flags=flags,
        estimated=estimated,
        corrupt=corrupt,
        resize=resize,
        budget=budget,
        samples=samples,
        seed=seed,
        force=force,
    )
    post, facts, level = _write(asked, stages, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    typer.echo(post.summary())
    for advice in post.verdict.advice:
        typer.echo(f"- {advice}")
    if level is not None:
        typer.echo(f"noise {level}")
    typer.echo(f"Report: {asked.folder / 'report.html'}")


class _Asked(NamedTuple):
    """What is to be reconstructed, and how."""

    image: str
    folder: Path
    model: str | None
    flags: options.ProblemFlags
    estimated: bool
    corrupt: bool
    resize: bool
    budget: str
    samples: int
    seed: int
    force: bool


def _write(
    asked: _Asked, stages: Stages, quiet: bool
) -> "tuple[Posterior, dict[str, Any], NoiseLevel | None]":
    """Solves the problem and writes the report.

    Returns:
        The posterior, what summary.json says, and the level of the noise if it was estimated.
    """
    import jax

    from latentuq.core.files import staged_folder
    from latentuq.data.observation import read_observation
    from latentuq.posterior import solve
    from latentuq.report.write import FILES, write_report, write_summary

    with staged_folder(asked.folder, asked.force, FILES) as staged:
        prior = _prior(asked.model, asked.flags.problem)
        data_key, noise_key, solve_key, report_key = jax.random.split(jax.random.key(asked.seed), 4)
        with noting() as notes:
            observation = read_observation(asked.image, prior.scaling)
            stages.mark("start-up")
            problem, truth = _state(data_key, prior, observation, asked)
        stages.mark("problem")
        level = None

        def follow(progress: Any) -> None:
            stages.follow(progress)
            bar.show(progress)

        with Bar(quiet) as bar:
            if asked.estimated:
                bar.say("Estimating the noise.")
                problem, level = _with_noise(noise_key, problem)
                stages.mark("noise")
                bar.say(SEARCHING)
            post = solve(solve_key, problem, budget=asked.budget, progress=follow)
            stages.mark("certify")
            bar.say("Writing the report.")
            _, facts = write_report(
                staged,
                report_key,
                post,
                title=f"{Path(asked.image).name} under {prior.card.name}",
                truth=truth,
                observation=observation,
                notes=notes,
                noise_level=level,
                samples=asked.samples,
                command=shlex.join(["latentuq", *sys.argv[1:]]),
                seed=asked.seed,
                imaged=lambda: stages.mark("images"),
            )
        stages.mark("write")
        facts["seconds"] = stages.seconds
        write_summary(staged, facts)
    return post, facts, level


def _prior(model: str | None, problem_file: Path | None) -> "GenerativePrior":
    """The prior that was asked for, or that of a problem file."""
    from latentuq.prior.model_file import load_prior
    from latentuq.problem.files import read_prior, read_problem_file

    if model is None and problem_file is not None:
        content = read_problem_file(problem_file)
        if content.prior is not None:
            return read_prior(content, problem_file)
    return load_prior(model or "mnist")


def _state(
    key: Any, prior: "GenerativePrior", observation: "Observation", asked: _Asked
) -> "tuple[InverseProblem, Any]":
    """The problem, and the clean image if that was given."""
    import numpy as np

    from latentuq.data.observation import resize
    from latentuq.problem import InverseProblem, observe

    scale, fits = observation.scaling.scale, observation.header is not None
    content = options.problem_from_flags(asked.flags, prior.shape, scale, fits)
    wanted = prior.shape if asked.corrupt else content.operator.output_shape
    values = observation.values
    if values.shape != wanted:
        source = f"the images of {prior.card.name}" if asked.corrupt else "the data of this problem"
        resizable = len(wanted) == values.ndim == 2
        if not asked.resize or not resizable:
            offer = "; --resize changes it" if resizable else ""
            raise UserError(
                f"The image has shape {values.shape}, but {source} have shape {wanted}{offer}."
            )
        values = resize(values, wanted)
    if not asked.corrupt:
        return InverseProblem(prior, content.operator, content.noise, values), None
    if np.isnan(values).any():
        raise UserError("A clean image has no missing pixels: fill them or leave out --corrupt.")
    content.noise.check(content.operator.output_shape)
    y = np.asarray(observe(key, content.operator, content.noise, values.astype(np.float32)))
    return InverseProblem(prior, content.operator, content.noise, y), values


def _with_noise(key: Any, problem: "InverseProblem") -> "tuple[InverseProblem, NoiseLevel]":
    """The problem with the level of the noise that its data tell."""
    import numpy as np

    from latentuq.likelihood.noise import GaussianNoise
    from latentuq.posterior import estimate_noise
    from latentuq.problem import InverseProblem

    y = np.where(problem.observed, problem.y, np.nan)
    level = estimate_noise(key, problem.prior, problem.operator, y)
    noise = GaussianNoise(level.std)
    return InverseProblem(problem.prior, problem.operator, noise, y), level
