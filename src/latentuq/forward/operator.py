"""What every linear operator is: shapes, application, adjoint, composition."""

import abc
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from latentuq.core.arrays import read_finite
from latentuq.core.compilation import bounded_jit
from latentuq.core.errors import UserError
from latentuq.core.modules import with_fields

Shape = tuple[int, ...]

_COLUMNS_AT_A_TIME = 64


class Operator(eqx.Module):
    """A linear map A from images to data.

    An operator such as `Blur(2.0)` fits images of many shapes: its `input_shape` is None until
    `bind(shape)` fixes it. Calling it binds it to the image at hand. The numbers that define an
    operator (mask, kernel, gains, angles) are pytree leaves; shapes are static.

    A new operator writes `apply`, `check` if it does not fit every image, and `parameters` if files
    shall hold it. The other methods describe an operator that mixes pixels; one that does not says
    so by writing them as well.
    """

    input_shape: eqx.AbstractVar[Shape | None]

    @abc.abstractmethod
    def apply(self, x: Float[Array, "*shape"]) -> Float[Array, "*data"]:
        """Computes A x for an image of the bound shape."""

    def check(self, shape: Shape) -> None:
        """Raises a `UserError` if images of this shape do not fit the operator."""
        return

    def observed(self, shown: Bool[Array, "*shape"]) -> Bool[Array, "*data"]:
        """Tells which data exist, when the pixels not `shown` were hidden before this operator.

        Pixelwise operators pass on what is hidden; those that mix pixels observe everything.
        """
        return jnp.ones(self.bind(shown.shape).output_shape, bool)

    @property
    def disjoint(self) -> bool:
        """Whether every pixel enters one datum at most, so that A diag(v) A^T is diagonal."""
        return False

    def pixel_factors(self) -> Float[np.ndarray, "*shape"] | None:
        """The diagonal of A, where A only multiplies each pixel; None where it does anything else.

        The operator must be bound.
        """
        return None

    def input_shape_for(self, output_shape: Shape) -> Shape | None:
        """The image shape that gives this data shape, if only one does."""
        return None

    def parameters(self) -> Mapping[str, Any]:
        """The arguments that make this operator anew: numbers, texts and arrays.

        Problem files hold them, under the name that `forward/registry.py` gives the operator.
        """
        raise UserError(
            f"{self!r} is Python code, which a problem file cannot hold; save"
            " Matrix(to_matrix(operator)) instead."
        )

    def bind(self, shape: Shape) -> "Operator":
        """Returns this operator for images of one shape, or refuses a shape that does not fit."""
        if self.input_shape is None:
            self.check(shape)
            return with_fields(self, input_shape=shape)
        if shape != self.input_shape:
            raise UserError(f"{self!r} takes images of shape {self.input_shape}, not {shape}.")
        return self

    @property
    def output_shape(self) -> Shape:
        """Shape of the data; known once the operator is bound."""
        if self.input_shape is None:
            raise UserError(f"{self!r} fits images of many shapes; fix one with .bind(shape).")
        image = jax.ShapeDtypeStruct(self.input_shape, jnp.float32)
        return jax.eval_shape(self.apply, image).shape

    def __call__(self, x: ArrayLike) -> Float[Array, "*data"]:
        """Computes A x."""
        x = _as_float(x)
        return _apply(self.bind(x.shape), x)

    def adjoint(self, y: ArrayLike) -> Float[Array, "*shape"]:
        """Computes A^T y by transposing the computation of A x."""
        y = _as_float(y)
        shape = self.input_shape or self.input_shape_for(y.shape)
        if shape is None:
            raise UserError(
                f"The image shape of {self!r} cannot be told from data of shape {y.shape};"
                " fix it with .bind(shape)."
            )
        bound = self.bind(shape)
        if bound.output_shape != y.shape:
            raise UserError(
                f"y has shape {y.shape}, but {self!r} makes data of shape {bound.output_shape}."
            )
        return _transpose(bound, y)

    def __matmul__(self, inner: "Operator") -> "Composed":
        if not isinstance(inner, Operator):
            return NotImplemented
        return Composed(self, inner)


class PixelwiseOperator(Operator):
    """An operator that keeps the image's shape and changes each pixel on its own."""

    def observed(self, shown: Bool[Array, "*shape"]) -> Bool[Array, "*shape"]:
        return shown

    @property
    def disjoint(self) -> bool:
        return True

    def input_shape_for(self, output_shape: Shape) -> Shape:
        return output_shape


class Composed(Operator):
    """x -> outer(inner(x)); `outer` is bound as soon as the shape of what it takes is known."""

    outer: Operator
    inner: Operator
    input_shape: Shape | None = eqx.field(static=True)

    def __init__(self, outer: Operator, inner: Operator):
        self.outer = outer if inner.input_shape is None else outer.bind(inner.output_shape)
        self.inner = inner
        self.input_shape = inner.input_shape

    def bind(self, shape: Shape) -> "Composed":
        return Composed(self.outer, self.inner.bind(shape))

    def apply(self, x: Float[Array, "*shape"]) -> Float[Array, "*data"]:
        return self.outer.apply(self.inner.apply(x))

    def observed(self, shown: Bool[Array, "*shape"]) -> Bool[Array, "*data"]:
        return self.outer.observed(self.inner.observed(shown))

    @property
    def disjoint(self) -> bool:
        return self.outer.disjoint and self.inner.disjoint

    def pixel_factors(self) -> Float[np.ndarray, "*shape"] | None:
        outer, inner = self.outer.pixel_factors(), self.inner.pixel_factors()
        return None if outer is None or inner is None else outer * inner

    def input_shape_for(self, output_shape: Shape) -> Shape | None:
        middle = self.outer.input_shape or self.outer.input_shape_for(output_shape)
        return None if middle is None else self.inner.input_shape_for(middle)

    def __repr__(self) -> str:
        return f"{self.outer!r} @ {self.inner!r}"


def transpose(operator: Operator, y: Float[Array, "*data"]) -> Float[Array, "*shape"]:
    """Computes A^T y for a bound operator."""
    assert operator.input_shape is not None
    image = jax.ShapeDtypeStruct(operator.input_shape, y.dtype)
    (x,) = jax.linear_transpose(operator.apply, image)(y)
    return x


# What is compiled as a whole goes with the least recently used; JAX would keep its parts for ever.
@bounded_jit
def _apply(operator: Operator, x: Float[Array, "*shape"]) -> Float[Array, "*data"]:
    return operator.apply(x)


_transpose = bounded_jit(transpose)


def to_matrix(operator: Operator) -> Float[np.ndarray, "data pixels"]:
    """The explicit matrix of a bound operator, row by datum and column by pixel, in float64."""
    if operator.input_shape is None:
        raise UserError(f"{operator!r} has no matrix yet; fix its image shape with .bind(shape).")
    return np.asarray(_columns(operator), np.float64).T


@bounded_jit
def _columns(operator: Operator) -> Float[Array, "pixels data"]:
    pixels = int(np.prod(operator.input_shape or ()))
    basis = jnp.eye(pixels).reshape(pixels, *(operator.input_shape or ()))
    # In batches: what an operator computes on the way may be many times its data.
    return jax.lax.map(operator.apply, basis, batch_size=_COLUMNS_AT_A_TIME).reshape(pixels, -1)


def check_image(operator: Operator, shape: Shape) -> None:
    """Raises a `UserError` unless images of this shape have two dimensions."""
    if len(shape) != 2:
        raise UserError(f"{operator!r} needs a 2-D image, not one of shape {shape}.")


def size(shape: Shape) -> str:
    """Writes a shape as 28x28, for messages."""
    return "x".join(map(str, shape))


def finite_float32(values: object, name: str) -> Float[Array, "..."]:
    """Reads numbers given by a user as float32, refusing what is not a finite number."""
    return jnp.asarray(read_finite(values, name), jnp.float32)


def _as_float(values: ArrayLike) -> Float[Array, "..."]:
    array = jnp.asarray(values)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(jnp.float32)
