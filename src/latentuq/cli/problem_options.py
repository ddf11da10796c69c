"""Flags that describe operator and noise, for every command that takes an observation.

JAX is imported by the functions that need it: commands that merely show their help do not.
"""

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from latentuq.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from latentuq.noise import GaussianNoise
    from latentuq.operators import Operator
    from latentuq.problem_file import ProblemFile

MaskOption = Annotated[
    str | None,
    typer.Option(
        "--mask",
        metavar="FILE|RULE",
        help="Which data are missing: an image (0 = missing), or columns:10-23, rows:0-13,"
        " box:TOP,LEFT,BOTTOM,RIGHT (ends included), random:FRACTION[,SEED].",
    ),
]
BlurOption = Annotated[
    str | None,
    typer.Option(
        "--blur",
        metavar="SIGMA|FILE",
        help="Blur before anything else: a Gaussian's sigma in pixels, or a kernel's image.",
    ),
]
DownsampleOption = Annotated[
    int | None,
    typer.Option("--downsample", metavar="N", help="Then average blocks of N x N pixels."),
]
NoiseOption = Annotated[
    str | None,
    typer.Option(
        "--noise",
        metavar="SIGMA|FILE",
        help="Standard deviation of the noise: a number, or a map of the data's shape.",
    ),
]
VarianceOption = Annotated[
    str | None,
    typer.Option("--variance", metavar="VARIANCE|FILE", help="The same, as a variance."),
]
ProblemOption = Annotated[
    Path | None,
    typer.Option("--problem", metavar="FILE.toml", help="Operator and noise from a problem file."),
]


class ProblemFlags(NamedTuple):
    """The flags as given on the command line."""

    mask: str | None = None
    blur: str | None = None
    downsample: int | None = None
    noise: str | None = None
    variance: str | None = None
    problem: Path | None = None


def problem_from_flags(flags: ProblemFlags, shape: tuple[int, ...]) -> "ProblemFile":
    """Turns flags into operator and noise for images of one shape.

    Blur acts first, then downsampling; the mask says which of the resulting data are missing.
    Without a flag for the noise there is none.

    Args:
        flags: The flags as given.
        shape: Shape of the prior's images.
    """
    from latentuq.problem_file import ProblemFile, read_problem_file

    if flags.problem is not None:
        others = [name for name, value in flags._asdict().items() if value is not None]
        if others != ["problem"]:
            raise UserError(
                f"--problem already describes operator and noise: leave out --{others[0]}."
            )
        content = read_problem_file(flags.problem)
        return content._replace(operator=content.operator.bind(shape))
    return ProblemFile(_operator(flags, shape), _noise(flags))


def _operator(flags: ProblemFlags, shape: tuple[int, ...]) -> "Operator":
    from latentuq.operators import Blur, Downsample, Gain
    from latentuq.problem_file import read_mask, read_psf

    chain: list[Operator] = []
    if flags.blur is not None:
        sigma = _number(flags.blur)
        chain.append(Blur(psf=read_psf(Path(flags.blur))) if sigma is None else Blur(sigma))
    if flags.downsample is not None:
        chain.append(Downsample(flags.downsample))
    if flags.mask is not None:
        chain.append(read_mask(flags.mask))
    # Without any flag the image itself is observed.
    return reduce(lambda inner, outer: outer @ inner, chain or [Gain(1.0)]).bind(shape)


def _noise(flags: ProblemFlags) -> "GaussianNoise":
    from latentuq.noise import GaussianNoise

    if flags.noise is not None and flags.variance is not None:
        raise UserError("Give --noise or --variance, not both.")
    if flags.variance is not None:
        return GaussianNoise(variance=_number_or_array(flags.variance))
    return GaussianNoise(0.0 if flags.noise is None else _number_or_array(flags.noise))


def _number_or_array(text: str) -> "float | np.ndarray":
    from latentuq.problem_file import read_array

    number = _number(text)
    return read_array(Path(text)) if number is None else number


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
