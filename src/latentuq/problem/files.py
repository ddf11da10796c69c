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

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array

from latentuq.core.errors import UserError
from latentuq.core.files import atomic_path, write_file
from latentuq.core.toml_text import format_table
from latentuq.data.observation import Observation, read_observation
from latentuq.forward.operator import Composed, Operator
from latentuq.forward.registry import kind_of
from latentuq.forward.stacked import Stack
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_file import embedded_name, load_prior, save_prior
from latentuq.problem.inverse import InverseProblem
from latentuq.problem.specification import FORMAT, Specification
from latentuq.problem.units import to_prior_scale

# Lists up to this length are written into the TOML text itself.
_LONGEST_LIST = 64

Arrays = dict[str, np.ndarray]


def save_problem(
    problem: InverseProblem, path: str | Path, prior: str | None = None, overwrite: bool = True
) -> None:
    """Writes a problem as TOML; its arrays go to `.npy` files whose names start alike.

    Args:
        problem: The problem to save.
        path: The `.toml` file.
        prior: The name or the model file of the prior. By default it is that which the prior was
            loaded from; a prior that was trained and not saved is written beside the problem. One
            that is Python code is left out, and `load_problem` must be given it.
        overwrite: Whether files that exist are replaced.
    """
    path = Path(path)
    trained = problem.prior if prior is None and _is_unsaved(problem.prior) else None
    beside_it = path.with_name(f"{path.stem}-prior.safetensors")
    name = beside_it.name if trained else prior or _name_of(problem.prior, path.parent)
    text, arrays = format_problem(problem, path.stem, name)
    if not overwrite:
        for file in (path, *[beside_it] * bool(trained), *map(path.with_name, arrays)):
            if file.exists():
                raise UserError(f"{file} exists and would be overwritten; --force allows it.")
    if trained:
        save_prior(beside_it, trained)
    for filename, values in arrays.items():
        with atomic_path(path.with_name(filename)) as beside:
            np.save(beside, values, allow_pickle=False)
    write_file(path, text)


def _is_unsaved(prior: GenerativePrior) -> bool:
    """Whether a prior has been trained, but is neither embedded nor in a file that is known."""
    return prior.encoder is not None and prior.card.path is None


def _name_of(prior: GenerativePrior, folder: Path) -> str | None:
    """What a problem file in a folder calls a prior; None for one that no file holds."""
    if (name := embedded_name(prior)) is not None or prior.card.path is None:
        return name
    # Relative, so that model and problem can move together.
    return os.path.relpath(prior.card.path, folder)


def load_problem(path: str | Path, prior: GenerativePrior | None = None) -> InverseProblem:
    """Reads a problem that `save_problem` or a person wrote.

    Args:
        path: The `.toml` file.
        prior: The prior, in place of the one that the file names.
    """
    return make_problem(Specification.read(path), prior)


def make_problem(
    specification: Specification,
    prior: GenerativePrior | None = None,
    observation: Observation | None = None,
) -> InverseProblem:
    """States the problem that a specification describes.

    Args:
        specification: Operators and noise.
        prior: The prior, in place of the one that the specification names.
        observation: The data, in place of those that the specification names.
    """
    prior = read_prior(specification) if prior is None else prior
    if observation is None:
        if specification.y is None:
            raise UserError('The problem names no data; add a line such as y = "observation.npy".')
        observation = read_data(specification, specification.y, prior)
    operator, noise = specification.with_files(observation).build(prior.shape)
    if noise is None:
        raise UserError("The noise has the level auto, which only latentuq reconstruct estimates.")
    return InverseProblem(prior, operator, noise, to_prior_scale(observation, operator, noise))


def read_data(
    specification: Specification, source: str | Path | np.ndarray, prior: GenerativePrior
) -> Observation:
    """Reads data in the units that specification, prior or file tell."""
    return read_observation(source, prior.scaling, len(prior.shape), specification.units)


def read_prior(specification: Specification) -> GenerativePrior:
    """Loads the prior that a specification names, with the model error that it names."""
    if specification.prior is None:
        raise UserError('The problem names no prior; add a line such as prior = "mnist".')
    prior, name = load_prior(specification.prior), specification.model_error
    return prior if name is None else prior.with_model_error(name)


def format_problem(
    problem: InverseProblem, stem: str, prior: str | None = None
) -> tuple[str, Arrays]:
    """The TOML text of a problem, and the arrays that it names.

    Args:
        problem: The problem to describe.
        stem: What the names of the arrays begin with.
        prior: The name or the model file of the prior; None leaves it out.
    """
    arrays: Arrays = {f"{stem}-y.npy": np.asarray(problem.y)}
    head: dict[str, Any] = {"format": FORMAT}
    if prior is not None:
        head |= {"prior": prior, "model_error": problem.prior.model_error_name}
    # A problem is stated on the scale of the prior's images, whatever the units of the files were.
    head |= {"y": f"{stem}-y.npy", "scale": 1.0}
    operators = _operator_tables(problem.operator, f"{stem}-operator", arrays)
    noise = _file_arrays(problem.noise.parameters(), f"{stem}-noise", arrays)
    tables = [format_table(head), *(format_table(table, "[[operator]]") for table in operators)]
    return "\n\n".join([*tables, format_table(noise, "[noise]")]) + "\n", arrays


def _operator_tables(operator: Operator, stem: str, arrays: Arrays) -> list[dict[str, Any]]:
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
    table = _file_arrays(operator.parameters(), stem, arrays)
    return [{"kind": kind_of(operator), **table}]


def _file_arrays(parameters: Mapping[str, Any], stem: str, arrays: Arrays) -> dict[str, Any]:
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
