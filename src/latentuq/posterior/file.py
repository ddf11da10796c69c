"""Posterior files: netCDF, numbers and text, never code.

The root of a file is the dataset of `Posterior.to_xarray`, so that `xarray.open_dataset` reads it
without this package. The group `posterior` holds equally weighted draws, where ArviZ looks for
them; `inference` what else the inference returned; `problem` the problem, as the TOML text and the
arrays of a problem file.
"""

import dataclasses
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from latentuq.core.errors import UserError
from latentuq.core.files import write_file
from latentuq.core.reading import (
    check_size,
    existing_file,
    explaining,
    most_bytes,
    read_path,
    show_bytes,
)
from latentuq.posterior.dataset import FORMAT, KIND, make_dataset, make_rest, read_datasets
from latentuq.posterior.posterior import Posterior
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_file import load_prior
from latentuq.problem.files import format_problem, make_problem
from latentuq.problem.inverse import InverseProblem
from latentuq.problem.specification import Specification

if TYPE_CHECKING:
    import xarray


def check_samples(samples: int, prior: GenerativePrior) -> None:
    """Refuses to draw more u and x than a file, or memory, should hold."""
    one = 4 * (prior.dim + math.prod(prior.shape))
    if samples * one > most_bytes():
        raise UserError(
            f"{samples} draws would take {show_bytes(samples * one)} in the posterior's file: give"
            f" {most_bytes() // one} samples or fewer."
        )


def write_posterior(
    path: str | Path, post: Posterior, samples: "xarray.Dataset | None", force: bool
) -> None:
    """Writes one netCDF file, aside first and then renamed into place."""
    path = read_path(path)
    if path.exists() and not force:
        raise UserError(f"{path} exists and would be overwritten; force=True allows it.")
    root = make_dataset(post)
    stored = None
    if post.problem is not None:
        try:
            stored = pack_problem(post.problem)
        except UserError as error:
            root.attrs["no_problem"] = f"The file does not hold the problem: {error}"
    # In memory first: on a full disk HDF5 raises anything, and may crash when it closes the file.
    buffer = io.BytesIO()
    root.to_netcdf(buffer, engine="h5netcdf")
    groups = {"inference": make_rest(post.inference), "posterior": samples, "problem": stored}
    for name, group in groups.items():
        if group is not None:
            group.to_netcdf(buffer, mode="a", group=name, engine="h5netcdf")
    write_file(path, buffer.getvalue())


def load_posterior(
    path: str | Path, prior: GenerativePrior | str | Path | None = None
) -> Posterior:
    """Reads what `Posterior.save` wrote.

    Where the problem cannot be restored, what needs it raises a `UserError` that says why; modes,
    weights, draws and the maps that were saved are there all the same.

    Args:
        path: The file that `Posterior.save` wrote.
        prior: The prior of the problem, or its model file, if it is not an embedded one.

    Raises:
        UserError: The file is missing, damaged or something else, or `prior` is not the prior of
            this posterior.
    """
    path = existing_file(path)
    damaged = f"{path} is damaged or not a posterior file"
    with explaining(damaged):
        _check_sizes(path)
        root = _open(path)
    if root.attrs.get("kind") != KIND:
        raise UserError(f"{path} is a netCDF file, but not a posterior of latentuq.")
    if root.attrs.get("format") != FORMAT:
        raise UserError(
            f"{path} has format {root.attrs.get('format')}; this latentuq reads {FORMAT}."
        )
    with explaining(damaged):
        post = read_datasets(root, _open(path, "inference"))
        stored = None if post.no_problem else _open(path, "problem")
    if stored is None:
        if prior is not None:
            raise UserError(f"A prior is of no use to {path}: {post.no_problem}")
        return post
    try:
        with explaining(damaged):
            problem = _restore_problem(stored, post, prior)
    except UserError as error:
        if prior is not None:
            raise
        return dataclasses.replace(
            post,
            no_problem=f"The problem could not be restored ({str(error).rstrip('.')}); give"
            f" load_posterior the prior {post.provenance.get('model', '')!r}.",
        )
    return dataclasses.replace(post, problem=problem, log_density_fn=problem.log_density)


def pack_problem(problem: InverseProblem) -> "xarray.Dataset":
    """The arrays of a problem, and the text of the problem file that names them as `toml`."""
    import xarray

    # A prior that is not embedded is named too: then the name of its model error is kept.
    text, arrays = format_problem(problem, "problem", problem.prior.card.name)
    return xarray.Dataset(
        {
            name: ([f"{name}-axis-{axis}" for axis in range(values.ndim)], values)
            for name, values in arrays.items()
        },
        attrs={"toml": text},
    )


def _restore_problem(
    stored: "xarray.Dataset", post: Posterior, prior: GenerativePrior | str | Path | None
) -> InverseProblem:
    def find(name: str) -> np.ndarray:
        if name not in stored.variables:
            raise UserError(f"The file lacks {name}.")
        return stored.variables[name].values

    specification = Specification.from_toml(str(stored.attrs.get("toml", "")), find)
    if prior is not None:
        prior = prior if isinstance(prior, GenerativePrior) else load_prior(prior)
        if specification.model_error in prior.model_errors:
            prior = prior.with_model_error(specification.model_error)
    problem = make_problem(specification, prior)
    # A checksum would not know priors made from functions: the density at the deepest mode does.
    expected = post.inference.log_densities[post.map_index]
    found = problem.log_density(post.modes[post.map_index])
    if not np.isclose(found, expected, rtol=1e-3, atol=0.1, equal_nan=True):
        raise UserError(
            f"{problem.prior!r} is not the prior of this posterior: at the deepest mode the log"
            f" density is {found:.6g} instead of {expected:.6g}."
        )
    return problem


def _open(path: Path, group: str | None = None) -> "xarray.Dataset":
    import xarray

    with xarray.open_dataset(path, engine="h5netcdf", group=group) as dataset:
        return dataset.load()


def _check_sizes(path: Path) -> None:
    """Refuses arrays that memory does not hold: an HDF5 file may announce any size."""
    import h5py

    sizes: list[int] = []
    with h5py.File(path) as file:
        file.visititems(lambda _, node: sizes.append(getattr(node, "nbytes", 0)))
    check_size(sum(sizes), str(path), many=True)
