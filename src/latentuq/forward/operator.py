"""What every linear operator is: shapes, application, adjoint, composition."""

import abc
import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from latentuq.core.arrays import read_finite
from latentuq.core.compilation import bounded_jit
from latentuq.core.errors import UserError

Shape = tuple[int, ...]
Module = TypeVar("Module", bound=eqx.Module)

_COLUMNS_AT_A_TIME = 64


class Operator(eqx.Module):
    """A linear map A from images to data.

    An operator such as `Blur(2.0)` fits images of many shapes: its `input_shape` is None until
    `bind(shape)` fixes it. Calling it binds it to the image at hand. The numbers that define an
    operator (mask, kernel, gains, angles) are pytree leaves; shapes are static.
    """

    input_shape: eqx.AbstractVar[Shape | None]

    @abc.abstractmethod
    def bind(self, shape: Shape) -> "Operator":
        """Returns this operator for images of one shape, or refuses a shape that does not fit."""

    @abc.abstractmethod
    def apply(self, x: Float[Array, "*shape"]) -> Float[Array, "*data"]:
        """A x for an image of the bound shape."""

    @abc.abstractmethod
    def observed(self, shown: Bool[Array, "*shape"]) -> Bool[Array, "*data"]:
        """Which data exist, when the pixels not `shown` were hidden before this operator.

        Pixelwise operators pass on what is hidden; those that mix pixels observe everything.
        """

    @property
    @abc.abstractmethod
    def disjoint(self) -> bool:
        """Whether every pixel enters one datum at most, so that A diag(v) A^T is diagonal."""

    @abc.abstractmethod
    def input_shape_for(self, output_shape: Shape) -> Shape | None:
        """The image shape that gives this data shape, if only one does."""

    def pixels_of(
        self, data: Int[np.ndarray, " n"]
    ) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]] | None:
        """The one pixel that each of some data shows, and its factor; None where pixels mix."""
        return None

    @property
    def output_shape(self) -> Shape:
        """Shape of the data; known once the operator is bound."""
        if self.input_shape is None:
            raise UserError(f"{self!r} fits images of many shapes; fix one with .bind(shape).")
        image = jax.ShapeDtypeStruct(self.input_shape, jnp.float32)
        return jax.eval_shape(self.apply, image).shape

    def __call__(self, x: ArrayLike) -> Float[Array, "*data"]:
        """A x."""
        x = _as_float(x)
        return self.bind(x.shape).apply(x)

    def adjoint(self, y: ArrayLike) -> Float[Array, "*shape"]:
        """A^T y, by transposing the computation of A x."""
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
        return transpose(bound, y)

    def __matmul__(self, inner: "Operator") -> "Composed":
        if not isinstance(inner, Operator):
            return NotImplemented
        return Composed(self, inner)


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

    def pixels_of(
        self, data: Int[np.ndarray, " n"]
    ) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]] | None:
        outer = self.outer.pixels_of(data)
        inner = None if outer is None else self.inner.pixels_of(outer[0])
        return None if outer is None or inner is None else (inner[0], outer[1] * inner[1])

    def input_shape_for(self, output_shape: Shape) -> Shape | None:
        middle = self.outer.input_shape or self.outer.input_shape_for(output_shape)
        return None if middle is None else self.inner.input_shape_for(middle)

    def __repr__(self) -> str:
        return f"{self.outer!r} @ {self.inner!r}"


def transpose(operator: Operator, y: Float[Array, "*data"]) -> Float[Array, "*shape"]:
    """A^T y for a bound operator."""
    assert operator.input_shape is not None
    image = jax.ShapeDtypeStruct(operator.input_shape, y.dtype)
    (x,) = jax.linear_transpose(operator.apply, image)(y)
    return x


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


def with_fields(module: Module, **changes: Any) -> Module:
    """`dataclasses.replace` that skips `__init__`, whose checks cannot read traced values."""
    copy = object.__new__(type(module))
    for field in dataclasses.fields(module):  # pyright: ignore[reportArgumentType]
        value = changes[field.name] if field.name in changes else getattr(module, field.name)
        object.__setattr__(copy, field.name, value)
    return copy


def check_shape(operator: Operator, shape: Shape) -> None:
    """Refuses an image whose shape is not the operator's own."""
    if shape != operator.input_shape:
        raise UserError(f"{operator!r} takes images of shape {operator.input_shape}, not {shape}.")


def size(shape: Shape) -> str:
    """28x28, for messages."""
    return "x".join(map(str, shape))


def finite_float32(values: object, name: str) -> Float[Array, "..."]:
    """Reads numbers given by a user as float32, refusing what is not a finite number."""
    return jnp.asarray(read_finite(values, name), jnp.float32)


def _as_float(values: ArrayLike) -> Float[Array, "..."]:
    array = jnp.asarray(values)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(jnp.float32)
