"""Flags that describe operator and noise, for every command that takes an observation.

JAX is imported by the functions that need it: commands that merely show their help do not.
"""

import warnings
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import typer

from latentuq.core.errors import UserError

if TYPE_CHECKING:
    from latentuq.forward import Operator
    from latentuq.likelihood.noise import GaussianNoise
    from latentuq.problem.files import ProblemFile

MaskOption = Annotated[
    str | None,
    typer.Option(
        "--mask",
        metavar="FILE|RULE",
        help="Which data are missing: an image (0 = missing), or columns:10-23, rows:0-13,"
        " box:TOP,LEFT,BOTTOM,RIGHT (ends included), random:FRACTION[,SEED].",
    ),
]
QualityOption = Annotated[
    str | None,
    typer.Option(
        "--quality",
        metavar="FILE",
        help="Data-quality flags: every pixel that is not 0 is missing (FITS: file.fits[DQ]).",
    ),
]
BlurOption = Annotated[
    str | None,
    typer.Option(
        "--blur",
        metavar="SIGMA[,SIZE]|FILE",
        help="Blur: a Gaussian's sigma (and its kernel's side) in pixels, or a kernel's image.",
    ),
]
BoundaryOption = Annotated[
    str | None,
    typer.Option(
        "--boundary", help="What the blur finds beyond the border: zero, periodic or reflect."
    ),
]
GainOption = Annotated[
    str | None,
    typer.Option("--gain", metavar="NUMBER|FILE", help="Multiply every pixel, before any blur."),
]
DownsampleOption = Annotated[
    int | None,
    typer.Option("--downsample", metavar="N", help="Then average blocks of N x N pixels."),
]
AnglesOption = Annotated[
    str | None,
    typer.Option(
        "--angles",
        metavar="DEGREES,...|FILE",
        help="Then project along these angles (tomography).",
    ),
]
MatrixOption = Annotated[
    Path | None,
    typer.Option("--matrix", metavar="FILE.npy", help="Then multiply the flattened image."),
]
NoiseOption = Annotated[
    str | None,
    typer.Option(
        "--noise",
        metavar="SIGMA|FILE",
        help="Standard deviation of the noise: a number on the scale of [0, 1], or a map of the"
        " data's shape.",
    ),
]
VarianceOption = Annotated[
    str | None,
    typer.Option("--variance", metavar="VARIANCE|FILE", help="The same, as a variance."),
]
CovarianceOption = Annotated[
    Path | None,
    typer.Option("--covariance", metavar="FILE.npy", help="Noise covariance of flattened data."),
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
    boundary: str | None = None
    gain: str | None = None
    angles: str | None = None
    matrix: Path | None = None
    covariance: Path | None = None
    quality: str | None = None


class _Units(NamedTuple):
    """What the data were divided by, and whether they came from a FITS file."""

    scale: float
    fits: bool


def problem_from_flags(
    flags: ProblemFlags, shape: tuple[int, ...], scale: float = 1.0, fits: bool = False
) -> "ProblemFile":
    """Turns flags into operator and noise for images of one shape.

    Gain, blur, downsampling, projection and matrix act in this order; the mask says which of the
    resulting data are missing. Without a flag for the noise there is none.

    Args:
        flags: The flags as given.
        shape: Shape of the prior's images.
        scale: What the data were divided by.
        fits: Whether the data came from a FITS file: then maps of the noise are in their units.
    """
    from latentuq.problem.files import ProblemFile, read_problem_file

    if flags.problem is not None:
        given = [name for name, value in flags._asdict().items() if value is not None]
        if others := [name for name in given if name != "problem"]:
            raise UserError(
                f"--problem already describes operator and noise: leave out --{others[0]}."
            )
        content = read_problem_file(flags.problem)
        return content._replace(operator=content.operator.bind(shape))
    return ProblemFile(_operator(flags, shape), _noise(flags, _Units(scale, fits)))


def _operator(flags: ProblemFlags, shape: tuple[int, ...]) -> "Operator":
    from latentuq.forward import Downsample, Gain, Matrix, Projection
    from latentuq.problem.files import read_array, read_mask, read_quality

    chain: list[Operator] = []
    if flags.gain is not None:
        chain.append(Gain(_numbers_or_array(flags.gain)))
    if flags.blur is not None:
        chain.append(_blur(flags.blur, flags.boundary or "zero"))
    elif flags.boundary is not None:
        raise UserError("--boundary belongs to a blur: give --blur too.")
    if flags.downsample is not None:
        chain.append(Downsample(flags.downsample))
    if flags.angles is not None:
        chain.append(Projection(np.atleast_1d(_numbers_or_array(flags.angles))))
    if flags.matrix is not None:
        chain.append(Matrix(read_array(flags.matrix)))
    if flags.mask is not None:
        chain.append(read_mask(flags.mask))
    if flags.quality is not None:
        chain.append(read_quality(flags.quality))
    # Without any flag the image itself is observed.
    return reduce(lambda inner, outer: outer @ inner, chain or [Gain(1.0)]).bind(shape)


def _blur(text: str, boundary: str) -> "Operator":
    from latentuq.forward import Blur
    from latentuq.problem.files import read_psf

    numbers = _numbers(text)
    if not numbers:
        return Blur(psf=read_psf(Path(text)), boundary=boundary)
    sigma, *sides = numbers
    if len(sides) > 1 or not all(side.is_integer() for side in sides):
        raise UserError(f"--blur {text} is neither SIGMA nor SIGMA,SIZE nor a file.")
    return Blur(sigma, *map(int, sides), boundary=boundary)


def _noise(flags: ProblemFlags, units: _Units) -> "GaussianNoise":
    from latentuq.likelihood.noise import GaussianNoise
    from latentuq.problem.files import read_array

    given = [name for name in ("noise", "variance", "covariance") if getattr(flags, name)]
    if len(given) > 1:
        raise UserError(f"Give --{' or --'.join(given)}, not both.")
    if flags.covariance is not None:
        return GaussianNoise(covariance=read_array(flags.covariance))
    if flags.variance is not None:
        return GaussianNoise(variance=_noise_level(flags.variance, units, power=2))
    return GaussianNoise(0.0 if flags.noise is None else _noise_level(flags.noise, units, power=1))


def _noise_level(text: str, units: _Units, power: int) -> float | list[float] | np.ndarray:
    """Standard deviations (power 1) or variances (power 2) on the scale of [0, 1].

    Numbers are on it already. Maps are in the units of the data if these or the maps are FITS;
    otherwise whole numbers of a map have the range of their kind.
    """
    from latentuq.data.images import is_fits
    from latentuq.data.observation import full_scale

    values = _numbers_or_array(text)
    if isinstance(values, np.ndarray):
        if units.fits or is_fits(text):
            return values / units.scale**power
        if values.dtype.kind in "ui":
            values = values / full_scale(values) ** power
    highest = float(np.max(values, initial=0))
    if highest > 1 and units.scale > 1:
        flag = "--noise" if power == 1 else "--variance"
        warnings.warn(
            f"{flag} {text} reaches {highest:.3g} on the scale of [0, 1]; if it is in the units"
            f" of the data, which were divided by {units.scale:g}, give"
            f" {highest / units.scale**power:.2g} instead.",
            stacklevel=2,
        )
    return values


def _numbers_or_array(text: str) -> float | list[float] | np.ndarray:
    from latentuq.problem.files import read_array

    numbers = _numbers(text)
    if not numbers:
        return read_array(Path(text))
    return numbers[0] if len(numbers) == 1 else numbers


def _numbers(text: str) -> list[float]:
    """The numbers in `1.5` or `0,45,90`; none in the name of a file."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return []
