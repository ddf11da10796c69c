"""What an inverse problem is made of, as plain data: from flags, a TOML file or a JSON object.

Every operator is a table, its kind with its parameters, in the order in which they act. A parameter
is a number, a list, an array, a text such as the mask `columns:10-23`, or a `Path`: a file that is
read by `with_files` and not before.
"""

import dataclasses
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from latentuq.core.arrays import read_real
from latentuq.core.errors import UserError
from latentuq.core.reading import existing_file, explaining, read_path
from latentuq.data.images import read_array, read_fits_header
from latentuq.data.observation import RESIZING, Observation, Units
from latentuq.forward.mask import is_mask_text, parse_mask
from latentuq.forward.operator import Operator
from latentuq.forward.registry import build_operator, check_parameters
from latentuq.forward.stacked import stack
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior.model_file import embedded_models

FORMAT = 1
"""The version of problem files that this package reads and writes."""
MOST_OPERATORS = 50
"""More than these in one problem, stacks included, are taken for a mistake."""
UNITS = ("scale", "offset", "invert")
"""What tables and flags say about black and white, see `Units`."""
AUTO = "auto"
"""The standard deviation of noise whose level is to be estimated from the data."""

Table = Mapping[str, Any]
Find = Callable[[str], Any]

_KNOWN = ("format", "prior", "model_error", "y", *UNITS, "operator", "noise")
_NOISES = ("std", "variance", "covariance")
# Without any operator the image itself is observed, without noise the data are exact.
_IDENTITY = ({"kind": "gain", "gain": 1.0},)
_NONE = {"std": 0.0}
# The kind and the parameter that each flag stands for, in the order in which operators act.
_OPERATOR_FLAGS = {
    "gain": ("gain", "gain"),
    "blur": ("blur", "psf"),
    "downsample": ("downsample", "n"),
    "angles": ("projection", "angles"),
    "matrix": ("matrix", "a"),
    "mask": ("mask", "mask"),
    "quality": ("quality", "flags"),
}
# Noise below this share of white is rather a share of white itself.
_LEAST_NOISE = 1e-4
_NOISE_FLAGS = {"noise": "std", "variance": "variance", "covariance": "covariance"}
_FLAGS = {*UNITS, *_OPERATOR_FLAGS, *_NOISE_FLAGS, "boundary", "problem"}


@dataclass(frozen=True, eq=False)
class Specification:
    """Operators, noise, and where they are given the prior and the data.

    Attributes:
        operators: One table per operator, the one that acts first in front.
        noise: One of std, variance and covariance, in the units of the data; the std may be
            "auto", or a percentage of white such as "10%".
        prior: The name or the model file of the prior.
        model_error: The name of the prior's model error that is to be used.
        y: The data, or the file that holds them.
        units: What is said about black and white of the data.
        noise_scale: White minus black in the units of the noise; None if they are those of the
            data.
    """

    operators: Sequence[Table] = _IDENTITY
    noise: Table = field(default_factory=lambda: _NONE)
    prior: str | None = None
    model_error: str | None = None
    y: Path | Float[np.ndarray, "*data"] | None = None
    units: Units = Units()
    noise_scale: float | None = None

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any]) -> "Specification":
        """Reads flags of the command line by their names; those that are None were not given.

        Gain, blur, downsampling, projection and matrix act in this order; mask and quality say
        which of the resulting data are missing. Without a flag for the noise there is none.
        """
        given = {name: value for name, value in flags.items() if value is not None}
        if unknown := given.keys() - _FLAGS:
            raise UserError(f"{min(unknown)!r} is none of {', '.join(sorted(_FLAGS))}.")
        units = {name: given.pop(name) for name in UNITS if name in given}
        if (path := given.pop("problem", None)) is not None:
            if given:
                raise UserError(
                    f"--problem already describes operator and noise: leave out --{min(given)}."
                )
            found = cls.read(path)
            # The noise of the file stays in the units of the file. If that holds data, its scale is
            # theirs, and the image may have another.
            certain = found.y is None or "scale" in units
            units = dataclasses.replace(found.units, certain=certain, **units)
            return dataclasses.replace(found, units=units)
        if "boundary" in given and "blur" not in given:
            raise UserError("--boundary belongs to a blur: give --blur too.")
        noises = [flag for flag in _NOISE_FLAGS if flag in given]
        if len(noises) > 1:
            raise UserError(f"Give --{' or --'.join(noises)}, not both.")
        noise = {_NOISE_FLAGS[flag]: _numbers(given[flag]) for flag in noises}
        operators = [_table_of_flag(flag, given) for flag in _OPERATOR_FLAGS if flag in given]
        table = {"operator": operators or [*_IDENTITY], "noise": noise or _NONE}
        return dataclasses.replace(cls.from_dict(table, Path), units=Units(**units))

    @classmethod
    def read(cls, path: str | Path) -> "Specification":
        """Reads a problem file; the names of files in it are relative to it."""
        path = existing_file(path)
        with explaining(f"{path} is not TOML"):
            text = path.read_text(encoding="utf-8")
        try:
            found = cls.from_toml(text, lambda name: path.parent / name)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        beside = read_path(path.parent / (found.prior or ""))
        return dataclasses.replace(found, prior=str(beside)) if beside.is_file() else found

    @classmethod
    def from_toml(cls, text: str, find: Find | None = None) -> "Specification":
        """Reads the text of a problem file; `find` is that of `from_dict`."""
        with explaining("This is not TOML"):
            table = tomllib.loads(text)
        return cls.from_dict(table, find)

    @classmethod
    def from_dict(cls, table: Table, find: Find | None = None) -> "Specification":
        """Checks a table such as a TOML file or a JSON object holds.

        Args:
            table: The entries of a problem file by their names.
            find: Says what the name of a file stands for: a path, or the array itself. Without it
                such names, model files included, are refused: a stranger must not choose files to
                be read.
        """
        if unknown := set(table) - set(_KNOWN):
            raise UserError(
                f"The problem has {min(unknown)!r}, which is none of {', '.join(_KNOWN)}."
            )
        if table.get("format", FORMAT) != FORMAT:
            raise UserError(
                f"The problem has format {table['format']}; this version reads {FORMAT}."
            )
        for name in ("prior", "model_error"):
            if not isinstance(table.get(name, ""), str):
                raise UserError(f"The problem has {name} = {table[name]!r}, which is not text.")
        prior = table.get("prior")
        if find is None and prior is not None and prior not in embedded_models():
            raise UserError(f"There is no embedded model {prior!r}.")
        operators, noise = table.get("operator"), table.get("noise")
        if not isinstance(operators, list) or not operators or not isinstance(noise, Mapping):
            raise UserError("A problem needs at least one [[operator]] and a [noise] table.")
        if _count(operators) > MOST_OPERATORS:
            raise UserError(
                f"The problem has more than {MOST_OPERATORS} operators: give one matrix instead."
            )
        if len(noise) != 1 or not set(noise) <= set(_NOISES):
            given = ", ".join(noise) or "none"
            raise UserError(f"The noise is one of {', '.join(_NOISES)}, not {given}.")
        y = table.get("y")
        if y is not None:
            y = _value("y", y, find) if isinstance(y, str) else read_real(y, "y")
        units = _check_units({name: table[name] for name in UNITS if name in table})
        return cls(
            [_check_operator(each, find) for each in operators],
            {name: _value(name, value, find) for name, value in noise.items()},
            prior,
            table.get("model_error"),
            y,
            units,
            units.scale,
        )

    @property
    def noise_is_unknown(self) -> bool:
        """Whether the level of the noise is to be estimated from the data."""
        level = self.noise.get("std")
        return isinstance(level, str) and level == AUTO

    def with_files(self, observation: Observation) -> "Specification":
        """Reads every file of operators and noise, and brings the noise to the scale of [0, 1].

        Args:
            observation: The data, whose units the noise has.
        """
        noise = {
            name: self._read_noise(name, value, observation) for name, value in self.noise.items()
        }
        operators = [_read_operator(table) for table in self.operators]
        return dataclasses.replace(self, operators=operators, noise=noise)

    def fit(
        self, observation: Observation, shape: tuple[int, ...], how: str | None
    ) -> tuple["Specification", Observation]:
        """Brings data to the shape that operators make of images, where that is allowed.

        Masks of the size of the picture hide its pixels before it is resized, and are dropped.

        Args:
            observation: The data.
            shape: The shape of the prior's images.
            how: "crop" or "pad", see `Observation.resized`; None refuses data of another shape.
        """
        if how is not None and how not in RESIZING:
            raise UserError(f"Resizing is {' or '.join(RESIZING)}, not {how!r}.")
        raw = observation.raw.copy()
        kept = [table for table in self.operators if not _hides(table, raw.shape)]
        wanted = _compose(kept or _IDENTITY).bind(shape).output_shape
        if raw.shape == wanted:
            return self, observation
        resizable = len(wanted) == raw.ndim == 2
        if how is None or not resizable:
            offer = "; --resize crop cuts it, --resize pad adds missing pixels" * resizable
            raise UserError(
                f"{observation.name} has shape {raw.shape}, but the data of this problem have"
                f" shape {wanted}{offer}."
            )
        for table in self.operators:
            if _hides(table, raw.shape):
                raw[table["mask"] == 0] = np.nan
        resized = dataclasses.replace(observation, raw=raw).resized(wanted, how)
        return dataclasses.replace(self, operators=kept or _IDENTITY), resized

    def _read_noise(self, name: str, value: Any, observation: Observation) -> Any:
        """Standard deviations, variances or a covariance on the scale of [0, 1]."""
        if isinstance(value, Path):
            value = read_array(value)
        if isinstance(value, str):
            return value if value == AUTO else _read_percentage(value)
        values, power = read_real(value, f"The noise {name}"), 1 if name == "std" else 2
        if self.noise_scale is not None:
            return values / abs(self.noise_scale) ** power
        if name != "covariance":
            _check_noise(float(np.max(values, initial=0)) ** (1 / power), observation)
        return values / observation.scaling.step**power

    def build(self, shape: tuple[int, ...]) -> tuple[Operator, GaussianNoise | None]:
        """Makes the operator for images of one shape, and the noise; None if it is unknown."""
        operator = _compose(self.operators).bind(shape)
        return operator, None if self.noise_is_unknown else GaussianNoise(**self.noise)


def _table_of_flag(flag: str, given: Mapping[str, Any]) -> Table:
    """The operator that a flag describes; a blur is `SIGMA`, `SIGMA,SIZE` or a kernel's file."""
    kind, name = _OPERATOR_FLAGS[flag]
    value = _numbers(given[flag])
    if flag == "angles" and isinstance(value, float):
        value = [value]
    if flag != "blur":
        return {"kind": kind, name: value}
    table = {"kind": kind, "boundary": given.get("boundary", "zero")}
    if isinstance(value, str):
        return table | {name: value}
    sigma, *sides = value if isinstance(value, list) else [value]
    if len(sides) > 1 or not all(side.is_integer() for side in sides):
        raise UserError(f"--blur {given[flag]} is neither SIGMA nor SIGMA,SIZE nor a file.")
    return table | {"sigma": sigma, "size": int(sides[0]) if sides else None}


def _check_units(table: Table) -> Units:
    """What a table says about black and white."""
    for name in ("scale", "offset"):
        if not isinstance(table.get(name, 0.0), int | float) or table.get(name) is True:
            raise UserError(f"The problem has {name} = {table[name]!r}, which is not a number.")
    if not isinstance(table.get("invert", False), bool):
        raise UserError(f"The problem has invert = {table['invert']!r}, not true or false.")
    return Units(**table)


def _numbers(given: Any) -> Any:
    """The numbers of `1.5` or `0,45,90`; any other text and numbers stay as they are."""
    if isinstance(given, int):
        return given
    try:
        numbers = [float(part) for part in str(given).split(",")]
    except ValueError:
        return str(given)
    return numbers[0] if len(numbers) == 1 else numbers


def _count(operators: Sequence[Any]) -> int:
    """The number of operators, those within stacks included."""
    waiting, count = [*operators], 0
    while waiting:
        count += 1
        table = waiting.pop()
        parts = table.get("parts") if isinstance(table, Mapping) else None
        for part in parts if isinstance(parts, list) else ():
            waiting += part if isinstance(part, list) else [part]
    return count


def _check_operator(table: Any, find: Find | None) -> Table:
    """An operator's table whose names of files have been replaced by what they stand for."""
    if not isinstance(table, Mapping) or not isinstance(table.get("kind"), str):
        raise UserError(f'The operator {table!r} needs a kind, such as kind = "mask".')
    kind = table["kind"]
    parameters = {name: value for name, value in table.items() if name != "kind"}
    if kind == "stack":
        parts = parameters.pop("parts", None)
        lists = isinstance(parts, list) and all(isinstance(part, list) and part for part in parts)
        if parameters or not lists or not parts:
            raise UserError("A stack has parts, a list of lists of operators, and nothing else.")
        return {
            "kind": kind,
            "parts": [[_check_operator(each, find) for each in part] for part in parts],
        }
    if kind != "quality":
        check_parameters(kind, parameters)
    elif set(parameters) != {"flags"}:
        raise UserError("Data quality has flags, an image that is 0 where a pixel is good.")
    return {"kind": kind} | {name: _value(name, value, find) for name, value in parameters.items()}


def _value(name: str, value: Any, find: Find | None) -> Any:
    """A parameter; the name of a file is replaced by what it stands for."""
    if not isinstance(value, str) or name == "boundary":
        return value
    if name == "std" and (value == AUTO or value.endswith("%")):
        return value
    # What has no ending is no file either: as a rule, it gives a sentence on which rules there are.
    if name == "mask" and (is_mask_text(value) or not Path(value).suffix):
        return value
    if find is None:
        raise UserError(f"The problem has {name} = {value!r} where numbers are expected.")
    return find(value)


def _read_operator(table: Table) -> Table:
    """An operator's table with arrays in the place of files; flags of quality become a mask."""
    if table["kind"] == "stack":
        parts = [[_read_operator(each) for each in part] for part in table["parts"]]
        return {"kind": "stack", "parts": parts}
    readers: dict[str, Callable[[Path], np.ndarray]] = {"mask": _read_mask, "psf": _read_psf}
    found = {
        name: readers.get(name, read_array)(value) if isinstance(value, Path) else value
        for name, value in table.items()
    }
    if table["kind"] == "quality":
        return {"kind": "mask", "mask": np.asarray(found["flags"]) == 0}
    return found


def _hides(table: Table, shape: tuple[int, ...]) -> bool:
    """Whether an operator's table is a mask of this shape."""
    mask = table.get("mask")
    return isinstance(mask, np.ndarray) and mask.shape == shape


def _read_mask(path: Path) -> np.ndarray:
    """Reads the image of a mask, which is 0 where data are hidden; soft edges are made hard."""
    header = read_fits_header(path)
    if header is not None and str(header.get("EXTNAME", "")).strip().upper() == "DQ":
        raise UserError(f"{path} holds data-quality flags, where 0 is good: give it as --quality.")
    return harden_mask(read_array(path), path)


def harden_mask(image: np.ndarray, path: Path | str) -> np.ndarray:
    """Which data the image of a mask lets through: those of at least half of white."""
    highest = image.max(initial=0)
    if not np.isfinite(highest) or image.min(initial=0) < 0:
        raise UserError(f"{path} is not a mask: it holds negative or missing values.")
    # Image files hold 0 and 255 where arrays hold 0 and 1.
    share = image / highest if highest > 1 else image
    if soft := int(np.count_nonzero((share > 0) & (share < 1))):
        warnings.warn(
            f"{soft} of {share.size} pixels of the mask {Path(path).name} are neither black nor"
            " white; those darker than half of white are taken as missing.",
            stacklevel=2,
        )
    return share >= 0.5


def _read_psf(path: Path) -> np.ndarray:
    """Reads a kernel; whole numbers carry no scale of their own and are made to sum to 1."""
    psf = read_array(path)
    return psf / psf.sum() if psf.dtype.kind in "ui" and psf.any() else psf


def _check_noise(highest: float, observation: Observation) -> None:
    """Asks where a noise looks like a share of white although the data are in other units."""
    step = observation.scaling.step
    # Whole numbers differ by one at least.
    least = 1.0 if "int" in observation.kind else _LEAST_NOISE * step
    if step > 1 and 0 < highest < least:
        raise UserError(
            f"The noise of {highest:g} is far too small for {observation.name}, where"
            f" {observation.scaling}: give it in these units, or write {100 * highest:g}% for a"
            " share of white."
        )


def _read_percentage(text: str) -> float:
    try:
        return float(text.removesuffix("%")) / 100
    except ValueError:
        raise UserError(f"The noise {text!r} is not a percentage of white, such as 10%.") from None


def _compose(tables: Sequence[Table]) -> Operator:
    # The first table acts first, so it is the innermost.
    return reduce(lambda inner, outer: outer @ inner, map(_build, tables))


def _build(table: Table) -> Operator:
    parameters = {name: value for name, value in table.items() if name != "kind"}
    if table["kind"] == "stack":
        return stack(*map(_compose, parameters["parts"]))
    if table["kind"] == "mask" and isinstance(parameters.get("mask"), str):
        return parse_mask(parameters["mask"])
    return build_operator(table["kind"], parameters)
