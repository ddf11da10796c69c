"""Numbers as users give them: a list, an array, a single value, or a mistake."""

import reprlib

import jax
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Shaped

from latentuq.core.errors import UserError


def read_real(values: object, name: str) -> Float[np.ndarray, "..."]:
    """Copies real numbers to float64, NaN and infinities included; `name` starts the complaint."""
    try:
        given = np.asarray(values)
    except (TypeError, ValueError):
        given = None
    if given is None or given.dtype.kind not in "buif":
        raise UserError(f"{name} must be made of real numbers, not {reprlib.repr(values)}.")
    return np.array(given, np.float64)


def read_finite(values: object, name: str, squared: bool = False) -> Float[np.ndarray, "..."]:
    """Copies real numbers to float64 and refuses those that float32 cannot hold.

    Of numbers that are `squared`, variances for instance, float32 holds the roots.
    """
    given = read_real(values, name)
    with np.errstate(over="ignore"):
        kept = np.sqrt(np.abs(given)) if squared else given
        finite = np.isfinite(kept.astype(np.float32))
    if not np.all(finite):
        raise UserError(f"{name} contains {given[~finite].flat[0]:g}; give finite values.")
    return given


def read_count(n: object) -> int:
    """Reads a number of draws, which must be a positive integer."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise UserError(f"The number of draws must be a positive integer, not {n!r}.")
    return int(n)


def to_device(
    values: Shaped[ArrayLike, "..."] | list[float], dtype: np.dtype | None = None
) -> Shaped[Array, "..."]:
    """Numbers of the host for JAX, converted by NumPy: `jnp.asarray` would compile a program.

    Memory may be shared: do not change the values afterwards.
    """
    return jax.device_put(np.asarray(values, dtype))


def to_float32(values: Shaped[ArrayLike, "..."]) -> Float[Array, "..."]:
    """Numbers of the host, computed in float64, for programs in float32."""
    return to_device(values, np.dtype(np.float32))
