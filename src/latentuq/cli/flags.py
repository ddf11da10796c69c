"""Flags that several commands share, or that a table declares."""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer


def with_flags(flags: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Puts flags in the place of a command's parameter `flags`.

    The command, all of whose parameters are keywords, gets a dictionary there: the name of every
    flag and what was given for it, None where nothing was.

    Args:
        flags: The annotation of every flag by its name, as Typer reads it.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            command(flags={name: given.pop(name) for name in flags}, **given)

        declared = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
            )
            for name, annotation in flags.items()
        ]
        parameters = []
        for parameter in inspect.signature(command).parameters.values():
            parameters += declared if parameter.name == "flags" else [parameter]
        run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def seed_option(text: str = "The seed of everything random.", panel: str | None = None) -> Any:
    """An option for seeds that JAX tells apart: any larger one gives a smaller one's answer."""
    return typer.Option(metavar="N", min=0, max=2**32 - 1, help=text, rich_help_panel=panel)


_NOISE_FLAGS = ("noise", "variance", "covariance")


def _flag(name: str, kind: type, text: str, metavar: str | None = None) -> Any:
    """A flag that describes a problem, in the panel of the help text where it belongs."""
    panel = "The noise" if name in _NOISE_FLAGS else "What happened to the clean image"
    option = typer.Option(f"--{name}", metavar=metavar, help=text, rich_help_panel=panel)
    return Annotated[kind | None, option]


_FLAGS: dict[str, tuple[Any, ...]] = {
    "scale": (
        float,
        "White minus black in the units of the image; by default that of the images that the"
        " model was trained on, 255 or 65535 for 8 or 16 bits, 1 for floats.",
        "NUMBER",
    ),
    "offset": (float, "Black in the units of the image.", "NUMBER"),
    "invert": (bool, "The image is dark on white: turn it round."),
    "gain": (str, "Multiply every pixel, before any blur.", "NUMBER|FILE"),
    "blur": (
        str,
        "Blur: a Gaussian's sigma (and its kernel's side) in pixels, or a kernel's image.",
        "SIGMA[,SIZE]|FILE",
    ),
    "boundary": (str, "What the blur finds beyond the border: zero, periodic or reflect."),
    "downsample": (int, "Then average blocks of N x N pixels.", "N"),
    "angles": (str, "Then project along these angles (tomography).", "DEGREES,...|FILE"),
    "matrix": (Path, "Then multiply the flattened image.", "FILE.npy"),
    "mask": (
        str,
        "Which data are missing: an image (0 = missing), or columns:10-23, rows:0-13,"
        " box:TOP,LEFT,BOTTOM,RIGHT (ends included), random:FRACTION[,SEED].",
        "FILE|RULE",
    ),
    "quality": (
        str,
        "Data-quality flags: every pixel that is not 0 is missing (FITS: file.fits[DQ]).",
        "FILE",
    ),
    "noise": (
        str,
        "Standard deviation of the noise in the units of the image (25 is 25 of 255 in 8 bits): a"
        " number, a share of white such as 10%, a map of the data's shape, or auto to estimate it"
        " (reconstruct only).",
        "SIGMA|10%|FILE|auto",
    ),
    "variance": (str, "The same, as a variance.", "VARIANCE|FILE"),
    "covariance": (Path, "Noise covariance of flattened data.", "FILE.npy"),
    "problem": (Path, "Operator and noise from a problem file.", "FILE.toml"),
}
PROBLEM_FLAGS = {name: _flag(name, *each) for name, each in _FLAGS.items()}
"""What describes operator and noise; `Specification.from_flags` reads it."""
