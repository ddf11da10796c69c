"""LinearOperator: any JAX function that is linear."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from latentuq.core.errors import UserError
from latentuq.forward.operator import Operator, Shape, size

# Relative; float32 sums over a few thousand pixels stay well below, real curvature well above.
_LINEARITY_TOLERANCE = 1e-4


class LinearOperator(Operator):
    """y = fn(x), with the adjoint from `jax.linear_transpose`."""

    fn: Callable[[Float[Array, "*shape"]], Float[Array, "*data"]]
    input_shape: Shape | None = eqx.field(static=True)

    def __init__(self, fn: Callable, shape: Sequence[int]):
        """Wraps a function once it has been found linear.

        Args:
            fn: Maps one image to one array of data; JAX must be able to trace it.
            shape: Shape of the image.

        Raises:
            UserError: The function fails, is not linear, or cannot be transposed.
        """
        shape = tuple(int(length) for length in shape)
        self.fn, self.input_shape = fn, shape
        image = jax.ShapeDtypeStruct(shape, jnp.float32)
        try:
            out = jax.eval_shape(fn, image)
        except Exception as error:
            raise UserError(f"{self!r} fails on an image of {size(shape)}: {error}") from error
        if not isinstance(out, jax.ShapeDtypeStruct) or not jnp.issubdtype(out.dtype, jnp.floating):
            raise UserError(
                f"{self!r} must return one array of real numbers, not {out}; stack the real and"
                " imaginary parts of complex data."
            )
        violation = linearity_violation(fn, shape)
        # Written so that a NaN is refused too.
        if not violation <= _LINEARITY_TOLERANCE:
            raise UserError(
                f"{self!r} is not linear: fn(a x + b z) differs from a fn(x) + b fn(z) by"
                f" {violation:.2g} of its size."
            )
        try:
            jax.eval_shape(jax.linear_transpose(fn, image), out)
        except Exception as error:
            raise UserError(f"JAX cannot transpose {self!r}: {error}") from error

    def apply(self, x: Float[Array, "*shape"]) -> Float[Array, "*data"]:
        return self.fn(x)

    def __repr__(self) -> str:
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        return f"LinearOperator({name}, {size(self.input_shape or ())})"


def linearity_violation(fn: Callable, shape: Shape) -> float:
    """Measures max |fn(a x + b z) - a fn(x) - b fn(z)| / max |terms| for normal x and z."""
    x_key, z_key = jax.random.split(jax.random.key(0))
    x, z = jax.random.normal(x_key, shape), jax.random.normal(z_key, shape)
    # a + b != 1, or a constant term would go unseen.
    a, b = 2.5, -0.75
    together, first, second = fn(a * x + b * z), a * fn(x), b * fn(z)
    terms = jnp.stack([jnp.max(jnp.abs(term)) for term in (together, first, second)])
    gap = jnp.max(jnp.abs(together - first - second))
    return float(jnp.where(gap == 0, 0.0, gap / jnp.max(terms)))
