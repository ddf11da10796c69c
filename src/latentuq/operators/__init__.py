"""Linear operators: what the instrument does to the image before noise is added."""

from latentuq.operators.blur import Blur
from latentuq.operators.downsample import Downsample
from latentuq.operators.gain import Gain
from latentuq.operators.linear import LinearOperator
from latentuq.operators.mask import Mask, RandomMask, RegionMask, parse_mask
from latentuq.operators.matrix import Matrix
from latentuq.operators.operator import Composed, Operator, to_matrix, transpose
from latentuq.operators.projection import Projection
from latentuq.operators.registry import OPERATORS, build_operator, example_operators, kind_of
from latentuq.operators.stacked import Stack, stack

__all__ = [
    "OPERATORS",
    "Blur",
    "Composed",
    "Downsample",
    "Gain",
    "LinearOperator",
    "Mask",
    "Matrix",
    "Operator",
    "Projection",
    "RandomMask",
    "RegionMask",
    "Stack",
    "build_operator",
    "example_operators",
    "kind_of",
    "parse_mask",
    "stack",
    "to_matrix",
    "transpose",
]
