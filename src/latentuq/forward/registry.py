"""The one table of operators, which tests, problem files and the command line share."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from latentuq.core.errors import UserError
from latentuq.forward.blur import Blur
from latentuq.forward.downsample import Downsample
from latentuq.forward.gain import Gain
from latentuq.forward.linear import LinearOperator
from latentuq.forward.mask import Mask, RandomMask, RegionMask
from latentuq.forward.matrix import Matrix
from latentuq.forward.operator import Operator, Shape
from latentuq.forward.projection import Projection

Parameters = Mapping[str, Any]


class Kind(NamedTuple):
    """One kind of operator.

    Attributes:
        type: Its class.
        parameters: Reads from an operator the arguments that rebuild it (numbers, text, arrays);
            None when no file can hold them.
        build: Makes an operator from such arguments.
        examples: Small instances for 2-D images of a given shape, even sides of 6 or more.
    """

    type: type[Operator]
    parameters: Callable[[Any], Parameters] | None
    build: Callable[..., Operator]
    examples: tuple[Callable[[Shape], Operator], ...]


def kind_of(operator: Operator) -> str:
    """The registered name of an operator's kind."""
    for name, kind in OPERATORS.items():
        if type(operator) is kind.type:
            return name
    raise UserError(f"{operator!r} is of no registered kind.")


def example_operators(shape: Shape) -> dict[str, Operator]:
    """Every registered example, bound to one image shape, by name."""
    return {
        f"{name}-{number}" if number else name: example(shape).bind(shape)
        for name, kind in OPERATORS.items()
        for number, example in enumerate(kind.examples)
    }


def check_parameters(kind: str, parameters: Parameters) -> None:
    """Refuses a kind that a problem file cannot hold, or parameters that it does not have."""
    if kind not in OPERATORS or OPERATORS[kind].parameters is None:
        known = ", ".join(name for name, entry in OPERATORS.items() if entry.parameters)
        raise UserError(f"There is no operator {kind!r} for a problem file; it may use: {known}.")
    try:
        inspect.signature(OPERATORS[kind].build).bind(**parameters)
    except TypeError as error:
        raise UserError(f"The operator {kind!r} cannot be built: {error}.") from None


def build_operator(kind: str, parameters: Parameters) -> Operator:
    """Makes an operator from its kind and parameters, as a problem file gives them."""
    check_parameters(kind, parameters)
    try:
        return OPERATORS[kind].build(**parameters)
    except UserError:
        raise
    # Constructors expect the types in their signatures; a file may hold anything.
    except (TypeError, ValueError, IndexError) as error:
        raise UserError(f"The operator {kind!r} cannot be built: {error}.") from None


def _blur_parameters(blur: Blur) -> Parameters:
    if blur.sigma is None:
        return {"psf": np.asarray(blur.psf), "boundary": blur.boundary}
    return {"sigma": blur.sigma, "size": blur.psf.shape[0], "boundary": blur.boundary}


def _region_parameters(region: RegionMask) -> Parameters:
    given = {"rows": region.rows, "columns": region.columns}
    return {name: list(interval) for name, interval in given.items() if interval is not None}


def _build_region(rows: list[int] | None = None, columns: list[int] | None = None) -> RegionMask:
    return RegionMask(_interval(rows), _interval(columns))


def _interval(ends: list[int] | None) -> tuple[int, int] | None:
    if ends is None:
        return None
    first, last = ends
    return first, last


def _matrix_parameters(matrix: Matrix) -> Parameters:
    if matrix.rows is None:
        return {"a": np.asarray(matrix.values)}
    return {
        "values": np.asarray(matrix.values),
        "rows": np.asarray(matrix.rows),
        "columns": np.asarray(matrix.columns),
        "shape": list(matrix.matrix_shape),
    }


def _build_matrix(a=None, values=None, rows=None, columns=None, shape=None) -> Matrix:
    if a is not None:
        return Matrix(a)
    if values is None or rows is None or columns is None or shape is None:
        raise UserError("A matrix is a, or values, rows, columns and shape.")
    return Matrix(scipy.sparse.coo_array((values, (rows, columns)), shape=shape))


def _example_matrix(shape: Shape) -> Matrix:
    pixels = int(np.prod(shape))
    return Matrix(np.random.RandomState(2).randn(pixels // 2 + 1, pixels) / np.sqrt(pixels))


def _example_sparse_matrix(shape: Shape) -> Matrix:
    pixels = int(np.prod(shape))
    rng = np.random.default_rng(3)
    return Matrix(scipy.sparse.random_array((pixels + 3, pixels), density=0.1, rng=rng))


def _example_psf(shape: Shape) -> Blur:
    kernel = np.random.RandomState(4).rand(3, 5)
    return Blur(psf=kernel / kernel.sum(), boundary="reflect")


def _differences(x: jax.Array) -> jax.Array:
    return x - 0.5 * jnp.roll(x, 1, axis=0)


OPERATORS: dict[str, Kind] = {
    "mask": Kind(
        Mask,
        lambda mask: {"mask": np.asarray(mask.mask)},
        Mask,
        (lambda shape: Mask(np.random.RandomState(1).rand(*shape) < 0.6),),
    ),
    "random-mask": Kind(
        RandomMask,
        lambda mask: {"fraction": mask.fraction, "seed": mask.seed},
        RandomMask,
        (lambda shape: RandomMask(0.7, seed=5),),
    ),
    "region-mask": Kind(
        RegionMask, _region_parameters, _build_region, (lambda shape: RegionMask(columns=(1, 2)),)
    ),
    "gain": Kind(
        Gain,
        lambda gain: {"gain": np.asarray(gain.gain)},
        Gain,
        (lambda shape: Gain(0.5 + np.random.RandomState(6).rand(*shape)),),
    ),
    "blur": Kind(
        Blur,
        _blur_parameters,
        Blur,
        (
            lambda shape: Blur(1.0, size=5),
            lambda shape: Blur(0.8, size=5, boundary="periodic"),
            _example_psf,
        ),
    ),
    "downsample": Kind(
        Downsample, lambda operator: {"n": operator.n}, Downsample, (lambda shape: Downsample(2),)
    ),
    "projection": Kind(
        Projection,
        lambda projection: {"angles": np.asarray(projection.angles)},
        Projection,
        (lambda shape: Projection([0.0, 30.0, 77.5, 140.0]),),
    ),
    "matrix": Kind(
        Matrix, _matrix_parameters, _build_matrix, (_example_matrix, _example_sparse_matrix)
    ),
    "linear": Kind(
        LinearOperator,
        None,
        LinearOperator,
        (lambda shape: LinearOperator(_differences, shape),),
    ),
}
