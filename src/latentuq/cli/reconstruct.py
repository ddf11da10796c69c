"""`latentuq reconstruct`: from a corrupted image to a report."""

import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latentuq.cli import problem_options as options
from latentuq.errors import UserError

if TYPE_CHECKING:
    from latentuq.data.observation import Observation
    from latentuq.posterior import Posterior
    from latentuq.prior import GenerativePrior
    from latentuq.problem import InverseProblem

_STARTED = time.perf_counter()


def reconstruct(
    image: Annotated[
        str,
        typer.Argument(
            metavar="IMAGE",
            help="The observation: png, tif, npy, npz or fits (file.fits[1] chooses an extension)."
            " NaN marks missing pixels; 8 and 16 bits are scaled to [0, 1].",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder of the report; default: IMAGE's name."),
    ] = None,
    model: Annotated[str, typer.Option(help="Embedded model or model file.")] = "mnist",
    gain: options.GainOption = None,
    blur: options.BlurOption = None,
    boundary: options.BoundaryOption = None,
    downsample: options.DownsampleOption = None,
    angles: options.AnglesOption = None,
    matrix: options.MatrixOption = None,
    mask: options.MaskOption = None,
    noise: options.NoiseOption = None,
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
    samples: Annotated[int, typer.Option(min=1, help="Draws in samples.npy.")] = 100,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write to a folder that exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json.")] = False,
) -> None:
    """Find every clean image that the data allow, its probability, and how far to trust that."""
    from latentuq.compilation import CompileClock, keep_compiled

    keep_compiled()
    clock = CompileClock()
    import jax

    from latentuq.data.observation import read_observation
    from latentuq.files import staged_folder
    from latentuq.posterior import solve
    from latentuq.report.write import write_report
    from latentuq.store import load_prior

    flags = options.ProblemFlags(
        gain=gain,
        blur=blur,
        boundary=boundary,
        downsample=downsample,
        angles=angles,
        matrix=matrix,
        mask=mask,
        noise=noise,
        variance=variance,
        covariance=covariance,
        problem=from_file,
    )
    folder = output or Path(f"{Path(image.partition('[')[0]).stem}-report")
    with staged_folder(folder, force) as staged:
        prior = load_prior(model)
        observation = read_observation(image)
        solve_key, corrupt_key, report_key = jax.random.split(jax.random.key(seed), 3)
        problem, truth = _state(corrupt_key, prior, flags, observation, corrupt, resize)
        startup = time.perf_counter() - _STARTED - clock.seconds
        with _Bar(quiet=as_json) as bar:
            post = solve(solve_key, problem, budget=budget, progress=bar.show)
        begin, compiled = time.perf_counter(), clock.seconds
        facts = write_report(
            staged,
            report_key,
            post,
            title=f"{Path(image).name} under {prior.card.name}",
            truth=truth,
            observation=observation,
            samples=samples,
            command=shlex.join(["latentuq", *sys.argv[1:]]),
            seed=seed,
        )
        writing = time.perf_counter() - begin - (clock.seconds - compiled)
        facts["seconds"] = _stages(post, startup, clock.seconds, writing)
        (staged / "summary.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(facts))
        return
    typer.echo(post.summary())
    typer.echo(f"Report: {folder / 'report.html'}")


def _state(
    key: Any,
    prior: "GenerativePrior",
    flags: options.ProblemFlags,
    observation: "Observation",
    corrupt: bool,
    resized: bool,
) -> "tuple[InverseProblem, Any]":
    """The problem, and the clean image if that was given."""
    import jax.numpy as jnp
    import numpy as np

    from latentuq.data.observation import resize
    from latentuq.problem import InverseProblem

    content = options.problem_from_flags(flags, prior.shape)
    wanted = prior.shape if corrupt else content.operator.output_shape
    values = observation.values
    if values.shape != wanted:
        if not resized or len(wanted) != 2:
            offer = "; --resize changes the image" if len(wanted) == 2 else ""
            raise UserError(
                f"The image has shape {values.shape}, but {'the model' if corrupt else 'the data'}"
                f" {prior.card.name} {'makes' if corrupt else 'of this problem have'} {wanted}"
                f"{offer}."
            )
        values = resize(values, wanted)
    if not corrupt:
        return InverseProblem(prior, content.operator, content.noise, values), None
    if np.isnan(values).any():
        raise UserError("A clean image has no missing pixels: fill them or leave out --corrupt.")
    y = content.operator.apply(jnp.asarray(values, jnp.float32))
    y = np.asarray(y + content.noise.sample(key, y.shape))
    return InverseProblem(prior, content.operator, content.noise, y), values


def _stages(post: "Posterior", startup: float, compiled: float, writing: float) -> dict[str, float]:
    seconds = {"start-up": startup, "compile": compiled, **post.diagnostics.seconds}
    return {stage: round(value, 3) for stage, value in (seconds | {"write": writing}).items()}


class _Bar:
    """A line that says what is going on, where people look."""

    _STEPS = ("map", "modes", "fitted", "certified")

    def __init__(self, quiet: bool):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=quiet or not sys.stderr.isatty(),
        )
        self.task = self.progress.add_task("Searching for modes.", total=len(self._STEPS))

    def __enter__(self) -> "_Bar":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show(self, progress: Any) -> None:
        """Moves on to the next stage."""
        done = self._STEPS.index(progress.stage) + 1
        self.progress.update(self.task, completed=done, description=progress.message)
