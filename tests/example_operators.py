"""Small operators of every kind, which the laws of operators and of problems are tested with."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from latentuq.forward.blur import Blur
from latentuq.forward.downsample import Downsample
from latentuq.forward.gain import Gain
from latentuq.forward.linear import LinearOperator
from latentuq.forward.mask import Mask, RandomMask, RegionMask
from latentuq.forward.matrix import Matrix
from latentuq.forward.operator import Operator, Shape
from latentuq.forward.projection import Projection
from latentuq.forward.registry import OPERATORS


def unbound_operators(shape: Shape) -> dict[str, Operator]:
    """Operators for 2-D images of a shape, with even sides of 6 or more, by the names of kinds."""
    pixels = int(np.prod(shape))
    kernel = np.random.RandomState(4).rand(3, 5)
    dense = np.random.RandomState(2).randn(pixels // 2 + 1, pixels) / np.sqrt(pixels)
    sparse = scipy.sparse.random_array(
        (pixels + 3, pixels), density=0.1, rng=np.random.default_rng(3)
    )
    operators = {
        "mask": Mask(np.random.RandomState(1).rand(*shape) < 0.6),
        "random-mask": RandomMask(0.7, seed=5),
        "region-mask": RegionMask(columns=(1, 2)),
        "gain": Gain(0.5 + np.random.RandomState(6).rand(*shape)),
        "blur": Blur(1.0, size=5),
        "blur-1": Blur(0.8, size=5, boundary="periodic"),
        "blur-2": Blur(psf=kernel / kernel.sum(), boundary="reflect"),
        "downsample": Downsample(2),
        "projection": Projection([0.0, 30.0, 77.5, 140.0]),
        "matrix": Matrix(dense),
        "matrix-1": Matrix(sparse),
        "linear": LinearOperator(_differences, shape),
    }
    # An operator that is registered without an example would not be tested.
    assert set(OPERATORS) <= set(operators)
    return operators


def example_operators(shape: Shape) -> dict[str, Operator]:
    """The same operators, bound to the shape."""
    return {name: each.bind(shape) for name, each in unbound_operators(shape).items()}


def _differences(x: jax.Array) -> jax.Array:
    return x - 0.5 * jnp.roll(x, 1, axis=0)
