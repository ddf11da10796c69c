"""Many images from Python: in memory, or into a store by workers."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Key

from latentuq.app.solving import Stating
from latentuq.core.arrays import read_real
from latentuq.core.errors import UserError
from latentuq.core.randomness import read_key
from latentuq.forward.operator import Operator
from latentuq.inference.settings import check_budget
from latentuq.likelihood.noise import GaussianNoise
from latentuq.posterior.solve import solve
from latentuq.prior.generative import GenerativePrior
from latentuq.problem.specification import Specification
from latentuq.survey.layout import LEVELS, Layout
from latentuq.survey.prepare import BatchRequest, check_whole
from latentuq.survey.rows import Row, error_row, fill_row, posterior_row
from latentuq.survey.run import Listener, run_batch
from latentuq.survey.work import Plan

if TYPE_CHECKING:
    import xarray


class Options(TypedDict, total=False):
    """What else `batch` may be told; see `Plan` and `BatchRequest`, whose defaults hold."""

    model: str | None
    corrupt: bool
    resize: str | None
    budget: str
    seed: int
    chunk: int
    draws: int
    workers: int | None
    scheduler: str | None
    resume: bool
    force: bool


def solve_many(
    key: Key[Array, ""],
    prior: GenerativePrior,
    operator: Operator,
    noise: GaussianNoise,
    ys: ArrayLike,
    *,
    budget: str = "default",
    draws: int = 128,
    progress: Callable[[int, int], None] | None = None,
) -> "xarray.Dataset":
    """Solves many problems that differ only in their data, one after the other, in this process.

    The answer to an image depends on the key, its number and its data, not on the others.

    Args:
        key: The randomness; that of image i is `jax.random.fold_in(key, i)`.
        prior: The prior of all images.
        operator: What the instrument does.
        noise: The noise of the instrument.
        ys: The data of all images along the first axis, NaN where they are missing.
        budget: The budget of each image, "preview", "default" or "thorough".
        draws: The number of equally weighted draws of u that are kept of each image.
        progress: Called with the number of images that are done, and of all, after each.

    Returns:
        What `latentuq batch` keeps of each image, as a dataset in memory. An image whose problem
        cannot be stated or solved has the status "failed" and says why in `error`.
    """
    check_budget(budget)
    check_whole("draws", draws, 0)
    key, operator = read_key(key), operator.bind(prior.shape)
    data = np.asarray(read_real(ys, "ys"), np.float64)
    if data.shape[1:] != operator.output_shape:
        raise UserError(
            f"ys has shape {data.shape}; data of this operator are (n,"
            f" {', '.join(map(str, operator.output_shape))})."
        )
    if not len(data):
        raise UserError("ys holds no data at all.")
    layout, stating = Layout(prior.shape, operator.output_shape, prior.dim, draws), Stating(prior)
    rows = []
    for image, y in enumerate(data):
        name, started = str(image), time.perf_counter()
        try:
            problem = stating.state("alike", operator, noise, y)
            post = solve(jax.random.fold_in(key, image), problem, budget=budget)
            found = posterior_row(layout, post)
            found |= {"name": name, "seconds": time.perf_counter() - started}
            rows.append(fill_row(layout, found))
        except UserError as error:
            rows.append(error_row(layout, name, str(error)))
        if progress is not None:
            progress(image + 1, len(data))
    return _dataset(layout, rows)


def _dataset(layout: Layout, rows: list[Row]) -> "xarray.Dataset":
    import xarray

    variables: dict[str, Any] = {
        name: (("image", *variable.axes), np.array([row[name] for row in rows]))
        for name, variable in layout.variables.items()
    }
    return xarray.Dataset(variables, {"quantile": list(LEVELS)})


def batch(
    images: str | Path,
    output: str | Path,
    problem: Mapping[str, Any] | str | Path,
    *,
    progress: Listener | None = None,
    **options: Unpack[Options],
) -> "xarray.Dataset":
    """Solves a whole survey with workers, on this machine or on a Dask cluster, into a Zarr store.

    This is `latentuq batch`; where workers are processes that this one starts, a script must call
    it under `if __name__ == "__main__":`, as everything else that starts processes.

    Args:
        images: A file or folder of images, see `latentuq batch --help`.
        output: The store.
        problem: What happened to the clean images: the flags of the command line by their names,
            such as `{"mask": "columns:14-27", "noise": "10%"}`, or a problem file.
        progress: Called with a `Tally` about twice a second.
        **options: The other options of the command.

    Returns:
        The store as a dataset, of which values are read when they are needed.
    """
    import xarray

    if not isinstance(images, str | Path):
        raise UserError("batch reads images from a file or folder; solve_many takes arrays.")
    flags = problem if isinstance(problem, Mapping) else {"problem": Path(problem)}
    if unknown := set(options) - set(Options.__annotations__):
        raise UserError(f"batch has no option {min(unknown)!r}.")
    given: dict[str, Any] = dict(options)
    shared = {
        each.name: given.pop(each.name) for each in dataclasses.fields(Plan) if each.name in given
    }
    plan = Plan(str(images), Specification.from_flags(flags), **shared)
    store = run_batch(BatchRequest(plan, Path(output), **given), progress or (lambda _: None))
    return xarray.open_zarr(str(store.path))
