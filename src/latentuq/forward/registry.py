"""The operators that problem files can hold, by their names in such files."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import scipy.sparse

from latentuq.core.errors import UserError
from latentuq.core.reading import explaining
from latentuq.forward.blur import Blur
from latentuq.forward.downsample import Downsample
from latentuq.forward.gain import Gain
from latentuq.forward.mask import Mask, RandomMask, RegionMask
from latentuq.forward.matrix import Matrix
from latentuq.forward.operator import Operator
from latentuq.forward.projection import Projection

Parameters = Mapping[str, Any]

OPERATORS: dict[str, type[Operator]] = {
    "mask": Mask,
    "random-mask": RandomMask,
    "region-mask": RegionMask,
    "gain": Gain,
    "blur": Blur,
    "downsample": Downsample,
    "projection": Projection,
    "matrix": Matrix,
}


def kind_of(operator: Operator) -> str:
    """The registered name of an operator's kind."""
    for name, kind in OPERATORS.items():
        if type(operator) is kind:
            return name
    raise UserError(f"{operator!r} is of no registered kind.")


def check_parameters(kind: str, parameters: Parameters) -> None:
    """Refuses a kind that a problem file cannot hold, or parameters that it does not have."""
    if kind not in OPERATORS:
        known = ", ".join(OPERATORS)
        raise UserError(f"There is no operator {kind!r} for a problem file; it may use: {known}.")
    try:
        inspect.signature(_BUILDERS.get(kind, OPERATORS[kind])).bind(**parameters)
    except TypeError as error:
        raise UserError(f"The operator {kind!r} cannot be built: {error}.") from None


def build_operator(kind: str, parameters: Parameters) -> Operator:
    """Makes an operator from its kind and parameters, as a problem file gives them."""
    check_parameters(kind, parameters)
    # Constructors expect the types in their signatures; a file may hold anything.
    with explaining(f"The operator {kind!r} cannot be built"):
        return _BUILDERS.get(kind, OPERATORS[kind])(**parameters)


def _build_matrix(a=None, values=None, rows=None, columns=None, shape=None) -> Matrix:
    if a is not None:
        return Matrix(a)
    if values is None or rows is None or columns is None or shape is None:
        raise UserError("A matrix is a, or values, rows, columns and shape.")
    return Matrix(scipy.sparse.coo_array((values, (rows, columns)), shape=shape))


# A type is made from its parameters, unless it is named here.
_BUILDERS: dict[str, Callable[..., Operator]] = {"matrix": _build_matrix}
