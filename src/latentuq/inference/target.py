"""Target: a log density made safe to search, and the normal that it is tempered towards."""

import dataclasses
import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.core.batches import in_chunks
from latentuq.core.compilation import bounded_jit
from latentuq.core.cores import waits
from latentuq.core.errors import UserError
from latentuq.inference.mixture import Arrays, normal_draws

LogDensity = Callable[[Float[Array, " dim"]], Float[Array, ""]]
Residual = Callable[[Float[Array, " dim"]], Float[Array, " data"]]

BATCH = 1024
"""The number of points at which a density is evaluated at once.

They keep the matrix products busy, and a thousand images stay in the processor's cache.
"""

CHUNK = 2048
"""The number of points of one program; more are divided among programs, which run on all cores."""

# Whether densities may wait, by what tells their programs apart, and how many are remembered.
_known: dict[Any, bool] = {}
_MOST_KNOWN = 100


@dataclasses.dataclass(frozen=True)
class Counts:
    """How often the density and its derivatives were evaluated."""

    forwards: int = 0
    gradients: int = 0
    jacobians: int = 0
    hessians: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        mine, others = dataclasses.astuple(self), dataclasses.astuple(other)
        return Counts(*map(operator.add, mine, others))

    def forward_equivalents(self, dim: int) -> int:
        """Adds them up in units of one evaluation.

        A gradient costs 3, a Jacobian dim + 1 and a Hessian as much as dim + 1 gradients.
        """
        return (
            self.forwards
            + 3 * self.gradients
            + (dim + 1) * self.jacobians
            + 3 * (dim + 1) * self.hessians
        )


class Target(eqx.Module):
    """The unnormalised ln p(u), and the reference N(0, scale^2 I) that starts come from.

    Attributes:
        log_density_fn: The function ln p of one point; NaN and infinities count as zero density.
        residual_fn: The function r with ln p = constant - r.r / 2 - u.u / (2 scale^2), or None.
        dim: The length of u.
        scale: The standard deviation of the reference.

    The functions are traced when the target is made, so that what does not fit is said before
    anything compiles; `trusted` functions are not.
    """

    log_density_fn: LogDensity
    residual_fn: Residual | None
    dim: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)

    def __init__(
        self,
        log_density_fn: LogDensity,
        dim: int,
        residual_fn: Residual | None = None,
        scale: float = 1.0,
        *,
        trusted: bool = False,
    ):
        if not callable(log_density_fn):
            raise UserError(f"The log density must be a function of u, not {log_density_fn!r}.")
        if residual_fn is not None and not callable(residual_fn):
            raise UserError(f"The residual must be a function of u, not {residual_fn!r}.")
        if not _is_number(dim) or int(dim) != dim or dim < 1:
            raise UserError(f"dim must be a positive whole number, not {dim!r}.")
        if not _is_number(scale) or not scale > 0:
            raise UserError(f"scale must be a positive number, not {scale!r}.")
        self.log_density_fn = log_density_fn
        self.residual_fn = residual_fn
        self.dim = int(dim)
        self.scale = float(scale)
        if not trusted:
            _check_shapes(self)

    @property
    def dtype(self) -> jnp.dtype:
        """The precision of the search, which is JAX's default."""
        return jnp.result_type(float)

    def log_density(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Computes ln p(u), -inf wherever it is not finite."""
        value = jnp.asarray(self.log_density_fn(u), u.dtype)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    def log_reference(self, u: Arrays) -> Arrays:
        """Computes ln N(u; 0, scale^2 I) for any batch of u, of NumPy or of JAX."""
        log_constant = self.dim * (math.log(self.scale) + 0.5 * math.log(2 * math.pi))
        numpy = u.__array_namespace__()
        return -0.5 * numpy.sum((u / self.scale) ** 2, axis=-1) - log_constant

    def sample_reference(self, key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
        """Makes independent draws of the reference."""
        return self.scale * normal_draws(key, (n, self.dim), self.dtype)


@bounded_jit
def log_densities(log_density_fn: LogDensity, points: Float[Array, "n dim"]) -> Float[Array, " n"]:
    """Evaluates a log density at many points, in batches."""
    return jax.lax.map(log_density_fn, points, batch_size=min(BATCH, points.shape[0]))


def log_densities_at(
    log_density_fn: LogDensity, points: Float[np.ndarray, "n dim"]
) -> Float[np.ndarray, " n"]:
    """Evaluates a log density at any number of points of the host, on all cores."""
    return in_chunks(partial(log_densities, log_density_fn), CHUNK, points, cores=True)


def may_wait(target: Target) -> bool:
    """Says whether programs with this density may wait for each other, see `core.cores`."""
    leaves, structure = jax.tree.flatten((target.log_density_fn, target.residual_fn))
    kinds = [leaf.aval if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
    signature = (target.dim, structure, *kinds)
    try:
        if signature not in _known:
            if len(_known) == _MOST_KNOWN:
                _known.clear()
            _known[signature] = _may_wait(target)
        return _known[signature]
    except TypeError:  # Something without a hash.
        return _may_wait(target)


def _may_wait(target: Target) -> bool:
    def both(u: Float[Array, " dim"]) -> Any:
        residual_fn = target.residual_fn
        return target.log_density_fn(u), None if residual_fn is None else residual_fn(u)

    return waits(jax.make_jaxpr(both)(jax.ShapeDtypeStruct((target.dim,), target.dtype)))


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float | np.number)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def _check_shapes(target: Target) -> None:
    """Traces the functions once and refuses what is not of the right shape."""
    shape = _trace(target, target.log_density_fn, "log density")
    if shape != ():
        raise UserError(f"The log density of one point must be a number, not of shape {shape}.")
    if target.residual_fn is not None:
        shape = _trace(target, target.residual_fn, "residual")
        if len(shape) != 1:
            raise UserError(f"The residual of one point must be a vector, not of shape {shape}.")


def _trace(target: Target, fn: Callable, what: str) -> tuple[int, ...]:
    """Returns the shape of a function's value at one point, if it is real and differentiable."""
    u = jax.ShapeDtypeStruct((target.dim,), target.dtype)
    try:
        result = jax.eval_shape(lambda u: jnp.asarray(fn(u)), u)
        if not jnp.issubdtype(result.dtype, jnp.floating):
            raise UserError(f"The {what} must be made of real numbers, not of {result.dtype}.")
        jax.eval_shape(jax.grad(lambda u: jnp.sum(fn(u))), u)
    except UserError:
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"The {what} fails on one point of shape ({target.dim},): {reason}"
        ) from error
    return result.shape
