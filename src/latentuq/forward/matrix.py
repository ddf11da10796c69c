"""Matrix: a dense or sparse matrix on the image's pixels in row-major order."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int

from latentuq.core.errors import UserError
from latentuq.forward.operator import Operator, Shape, finite_float32, size


class Matrix(Operator):
    """y = a x with x flattened row by row; the data are a vector.

    A scipy sparse matrix keeps its non-zero entries only: `values` at (`rows`, `columns`).
    """

    values: Float[Array, "data pixels"] | Float[Array, " entries"]
    rows: Int[Array, " entries"] | None
    columns: Int[Array, " entries"] | None
    matrix_shape: tuple[int, int] = eqx.field(static=True)
    input_shape: Shape | None = eqx.field(static=True)

    def __init__(self, a: object):
        if scipy.sparse.issparse(a):
            entries = scipy.sparse.coo_array(a)
            self.values = finite_float32(entries.data, "The matrix")
            self.rows = jnp.asarray(entries.row, jnp.int32)
            self.columns = jnp.asarray(entries.col, jnp.int32)
            shape: Shape = tuple(entries.shape or ())
        else:
            self.values = finite_float32(a, "The matrix")
            self.rows = self.columns = None
            shape = self.values.shape
        if len(shape) != 2 or 0 in shape:
            raise UserError(f"A matrix has rows and columns; this array has shape {shape}.")
        self.matrix_shape = (int(shape[0]), int(shape[1]))
        self.input_shape = None

    def check(self, shape: Shape) -> None:
        pixels = int(np.prod(shape))
        if pixels != self.matrix_shape[1]:
            raise UserError(
                f"A matrix with {self.matrix_shape[1]} columns does not fit an image of"
                f" {size(shape)} = {pixels} pixels."
            )

    def apply(self, x: Float[Array, "*shape"]) -> Float[Array, " data"]:
        x = jnp.ravel(x)
        if self.rows is None:
            return self.values @ x
        terms = self.values * x[self.columns]
        return jnp.zeros(self.matrix_shape[0], terms.dtype).at[self.rows].add(terms)

    def parameters(self) -> Mapping[str, Any]:
        if self.rows is None:
            return {"a": np.asarray(self.values)}
        return {
            "values": np.asarray(self.values),
            "rows": np.asarray(self.rows),
            "columns": np.asarray(self.columns),
            "shape": list(self.matrix_shape),
        }

    def __repr__(self) -> str:
        kind = "" if self.rows is None else f", {self.values.size} non-zero"
        return f"Matrix({size(self.matrix_shape)}{kind})"
