"""Problem files: an inverse problem as TOML, with its arrays in files beside it.

Operators are applied in the order of the file. A file name stands for the array in it, relative
to the TOML file. Prior and data may be left out.

Example:
    A blurred image with a strip missing::

        format = 1
        prior = "mnist"
        y = "night.npy"

        [[operator]]
        kind = "blur"
        sigma = 2.0

        [[operator]]
        kind = "mask"
        mask = "columns:10-23"

        [noise]
        std = 0.05
"""

import tomllib
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from latentuq.core.errors import UserError
from latentuq.core.files import atomic_path
from latentuq.core.toml_text import format_table
from latentuq.data.images import existing_file, read_array, read_fits_header
from latentuq.forward import OPERATORS, Composed, Operator, Stack, build_operator, kind_of, stack
from latentuq.forward.mask import Mask, is_mask_text, parse_mask
from latentuq.forward.registry import check_parameters
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior import GenerativePrior
from latentuq.prior.model_file import embedded_name, load_prior
from latentuq.problem import InverseProblem

_FORMAT = 1
# Lists up to this length are written into the TOML text itself.
_LONGEST_LIST = 64
_TEXT_PARAMETERS = ("boundary",)


class ProblemFile(NamedTuple):
    """What a problem file says; prior and data may be left to whoever uses it."""

    operator: Operator
    noise: GaussianNoise
    prior: str | None = None
    model_error: str | None = None
    y: Float[np.ndarray, "*data"] | None = None


def save_problem(
    problem: InverseProblem, path: str | Path, prior: str | None = None, overwrite: bool = True
) -> None:
    """Writes a problem as TOML; its arrays go to `.npy` files whose names start alike.

    Args:
        problem: What to save.
        path: The `.toml` file.
        prior: Name or model file of the prior; an embedded one is known, any other is left out
            of the file unless it is named here.
        overwrite: Whether to replace files that exist.
    """
    path = Path(path)
    arrays: dict[str, np.ndarray] = {f"{path.stem}-y.npy": np.asarray(problem.y)}
    head: dict[str, Any] = {"format": _FORMAT}
    if (prior := prior or embedded_name(problem.prior)) is not None:
        head |= {"prior": prior, "model_error": _model_error_name(problem.prior)}
    head["y"] = f"{path.stem}-y.npy"
    operators = _operator_tables(problem.operator, f"{path.stem}-operator", arrays)
    noise = _file_arrays(_noise_parameters(problem.noise), f"{path.stem}-noise", arrays)
    if not overwrite:
        for file in (path, *map(path.with_name, arrays)):
            if file.exists():
                raise UserError(f"{file} exists and would be overwritten; --force allows it.")
    for filename, values in arrays.items():
        with atomic_path(path.with_name(filename)) as beside:
            np.save(beside, values, allow_pickle=False)
    tables = [format_table(head), *(format_table(table, "[[operator]]") for table in operators)]
    with atomic_path(path) as beside:
        text = "\n\n".join([*tables, format_table(noise, "[noise]")])
        beside.write_text(text + "\n", encoding="utf-8")


def load_problem(path: str | Path, prior: GenerativePrior | None = None) -> InverseProblem:
    """Reads a problem that `save_problem` or a person wrote.

    Args:
        path: The `.toml` file.
        prior: The prior, in place of the one that the file names.
    """
    content = read_problem_file(path)
    prior = read_prior(content, path) if prior is None else prior
    if content.y is None:
        raise UserError(f'{path} names no data; add a line such as y = "observation.npy".')
    return InverseProblem(prior, content.operator, content.noise, in_prior_units(content.y, prior))


def read_prior(content: ProblemFile, path: str | Path) -> GenerativePrior:
    """The prior that a problem file names, with the model error that it names."""
    if content.prior is None:
        raise UserError(f'{path} names no prior; add a line such as prior = "mnist".')
    beside = Path(path).parent / content.prior
    prior = load_prior(beside if beside.is_file() else content.prior)
    return prior if content.model_error is None else prior.with_model_error(content.model_error)


def read_problem_file(path: str | Path) -> ProblemFile:
    """Reads operator and noise, and prior and data where the file gives them."""
    path = existing_file(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}.") from None
    known = {"format", "prior", "model_error", "y", "operator", "noise"}
    if unknown := set(table) - known:
        raise UserError(
            f"{path} has {min(unknown)!r}, which is none of {', '.join(sorted(known))}."
        )
    if table.get("format", _FORMAT) != _FORMAT:
        raise UserError(f"{path} has format {table['format']}; this version reads {_FORMAT}.")
    for name in ("prior", "model_error", "y"):
        if not isinstance(table.get(name, ""), str):
            raise UserError(f"{path} has {name} = {table[name]!r} where text is expected.")
    operators = table.get("operator")
    if not isinstance(operators, list) or not operators or not isinstance(table.get("noise"), dict):
        raise UserError(f"{path} needs at least one [[operator]] and a [noise] table.")
    noise = _read_arrays(table["noise"], path.parent)
    try:
        noise = GaussianNoise(**noise)
    except TypeError:
        raise UserError(f"{path}: the noise is one of std, variance and covariance.") from None
    y = read_array(path.parent / table["y"]) if "y" in table else None
    return ProblemFile(
        _compose(operators, path.parent), noise, table.get("prior"), table.get("model_error"), y
    )


def in_prior_units(y: np.ndarray, prior: GenerativePrior) -> np.ndarray:
    """Data from a file on the prior's scale: whole numbers are in units of its training files."""
    return prior.scaling.to_unit(y) if y.dtype.kind in "uib" else y


def read_mask(text: str, folder: Path = Path()) -> Operator:
    """A mask from a rule such as `columns:10-23`, or from an image file (0 = hidden)."""
    if is_mask_text(text):
        return parse_mask(text)
    path = folder / text
    if not path.suffix and not path.exists():
        return parse_mask(text)  # No rule either: it says which there are.
    header = read_fits_header(path)
    if header is not None and str(header.get("EXTNAME", "")).strip().upper() == "DQ":
        raise UserError(f"{text} holds data-quality flags, where 0 is good: give it as --quality.")
    image = read_array(path)
    # Image files hold 0 and 255 where arrays hold 0 and 1.
    highest = image.max(initial=0)
    return Mask(image / highest if image.dtype.kind in "ui" and highest > 1 else image)


def read_quality(text: str) -> Operator:
    """A mask from data-quality flags, which mark every good pixel by 0."""
    flags = read_array(Path(text))
    return Mask((flags == 0).astype(np.float64))


def read_psf(path: Path) -> np.ndarray:
    """A kernel from a file; whole numbers carry no scale of their own and are made to sum to 1."""
    psf = read_array(path)
    return psf / psf.sum() if psf.dtype.kind in "ui" and psf.any() else psf


def _compose(tables: list[Any], folder: Path) -> Operator:
    # The first operator in the file acts first, so it is the innermost.
    built = [_build(table, folder) for table in tables]
    return reduce(lambda inner, outer: outer @ inner, built)


def _build(table: Any, folder: Path) -> Operator:
    if not isinstance(table, Mapping) or not isinstance(table.get("kind"), str):
        raise UserError(f'The operator {table!r} needs a kind, such as kind = "mask".')
    parameters = {name: value for name, value in table.items() if name != "kind"}
    if table["kind"] == "stack":
        return stack(*(_compose(part, folder) for part in _stack_parts(parameters)))
    check_parameters(table["kind"], parameters)
    if table["kind"] == "mask" and isinstance(parameters.get("mask"), str):
        return read_mask(parameters["mask"], folder)
    if table["kind"] == "blur" and isinstance(parameters.get("psf"), str):
        parameters["psf"] = read_psf(folder / parameters["psf"])
    return build_operator(table["kind"], _read_arrays(parameters, folder))


def _stack_parts(parameters: Mapping[str, Any]) -> list[list[Any]]:
    parts = parameters.get("parts")
    if (
        set(parameters) != {"parts"}
        or not isinstance(parts, list)
        or not all(isinstance(part, list) and part for part in parts)
    ):
        raise UserError("A stack has parts, a list of lists of operators, and nothing else.")
    return parts


def _read_arrays(parameters: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Replaces every file name by the array in the file."""
    return {
        name: read_array(folder / value)
        if isinstance(value, str) and name not in _TEXT_PARAMETERS
        else value
        for name, value in parameters.items()
    }


def _operator_tables(
    operator: Operator, stem: str, arrays: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    """One table per operator, in order of application; arrays are moved to `arrays`."""
    if isinstance(operator, Composed):
        inner = _operator_tables(operator.inner, stem, arrays)
        return inner + _operator_tables(operator.outer, f"{stem}-{len(inner)}", arrays)
    if isinstance(operator, Stack):
        parts = [
            _operator_tables(part, f"{stem}-part{number}", arrays)
            for number, part in enumerate(operator.parts)
        ]
        return [{"kind": "stack", "parts": parts}]
    kind = kind_of(operator)
    parameters = OPERATORS[kind].parameters
    if parameters is None:
        raise UserError(
            f"{operator!r} is Python code, which a problem file cannot hold; save"
            " Matrix(to_matrix(operator)) instead."
        )
    return [{"kind": kind, **_file_arrays(parameters(operator), stem, arrays)}]


def _file_arrays(
    parameters: Mapping[str, Any], stem: str, arrays: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Replaces every array by a number, a short list, or the name of its file."""
    table = {}
    for name, value in parameters.items():
        if isinstance(value, np.ndarray | Array):
            values = np.asarray(value)
            if values.ndim == 0:
                value = values[()]
            elif values.ndim == 1 and values.size <= _LONGEST_LIST:
                value = list(values)
            else:
                value = f"{stem}-{name}.npy"
                arrays[value] = values
        table[name] = value
    return table


def _noise_parameters(noise: GaussianNoise) -> dict[str, Any]:
    if noise.factor is None:
        return {"std": noise.std}
    factor = np.asarray(noise.factor, np.float64)
    return {"covariance": factor @ factor.T}


def _model_error_name(prior: GenerativePrior) -> str:
    """The name under which the prior lists the model error in use."""
    used = prior.model_error
    for name, error in prior.model_errors.items():
        if eqx.tree_equal(*jax.device_get((error, used))):
            return name
    raise UserError(
        f"The model error in use is none that {prior!r} came with, and a problem file only names"
        " those."
    )
