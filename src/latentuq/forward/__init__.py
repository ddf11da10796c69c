"""Linear operators: what the instrument does to the image before noise is added."""

from latentuq.forward.blur import Blur
from latentuq.forward.downsample import Downsample
from latentuq.forward.gain import Gain
from latentuq.forward.linear import LinearOperator
from latentuq.forward.mask import Mask, RandomMask, RegionMask, parse_mask
from latentuq.forward.matrix import Matrix
from latentuq.forward.operator import Composed, Operator, to_matrix, transpose
from latentuq.forward.projection import Projection
from latentuq.forward.registry import OPERATORS, build_operator, kind_of
from latentuq.forward.stacked import Stack, stack

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
    "kind_of",
    "parse_mask",
    "stack",
    "to_matrix",
    "transpose",
]
