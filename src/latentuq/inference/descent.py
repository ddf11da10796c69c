"""Damped Newton descent of many starts at once, in a few lanes that never wait for each other."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from latentuq.core.arrays import to_device
from latentuq.core.batches import padded
from latentuq.core.compilation import bounded_jit
from latentuq.core.cores import on_cores
from latentuq.inference.target import Target

# The number of groups of starts that descend at the same time.
_GROUPS = 2


class LocalModel(NamedTuple):
    """The parabola psi(u + d) = value + gradient.d + d.curvature.d / 2, with psi = -ln p."""

    value: Float[Array, ""]
    gradient: Float[Array, " dim"]
    curvature: Float[Array, "dim dim"]


def gauss_newton(target: Target, u: Float[Array, " dim"]) -> LocalModel:
    """Models a least-squares problem psi = r.r / 2 + u.u / (2 scale^2), with J^T J for r's part.

    It costs a Jacobian. The curvature is never negative, and so it is blind to saddles.
    """
    assert target.residual_fn is not None
    residual_fn, precision = target.residual_fn, target.scale**-2

    def push(tangent):
        return jax.jvp(residual_fn, (u,), (tangent,))

    eye = jnp.eye(target.dim, dtype=u.dtype)
    r, rows = jax.vmap(push, out_axes=(None, 0))(eye)
    return LocalModel(
        0.5 * jnp.sum(r**2) + 0.5 * precision * jnp.sum(u**2),
        rows @ r + precision * u,
        rows @ rows.T + precision * eye,
    )


def newton(target: Target, u: Float[Array, " dim"]) -> LocalModel:
    """Models any log density, with its true Hessian."""

    def psi(u):
        return -target.log_density_fn(u).astype(u.dtype)

    def gradient_and_value(u):
        value, gradient = jax.value_and_grad(psi)(u)
        return gradient, (value, gradient)

    hessian, (value, gradient) = jax.jacfwd(gradient_and_value, has_aux=True)(u)
    return LocalModel(value, gradient, 0.5 * (hessian + hessian.T))


class Ends(NamedTuple):
    """The ends of all starts.

    Attributes:
        points: The last accepted points; the start itself if psi is not finite there.
        values: The values of psi there, inf if it never was finite.
        curvatures: The curvatures of the local models there.
        decrements: The decrease of psi, in nats, that the local model promises there.
        evaluations: The number of local models that were computed, idle lanes included.
    """

    points: Float[Array | np.ndarray, "starts dim"]
    values: Float[Array | np.ndarray, " starts"]
    curvatures: Float[Array | np.ndarray, "starts dim dim"]
    decrements: Float[Array | np.ndarray, " starts"]
    evaluations: Int[Array | np.ndarray, ""]


class Limits(NamedTuple):
    """How many starts descend at once, and how far each goes.

    Attributes:
        lanes: The number of starts that are worked on at once.
        steps: The largest number of steps of one start.
        tolerance: The Newton decrement, in nats, below which a start has converged.
        hopeless: The number of nats above the best end at which a start is given up after a third
            of its steps.
    """

    lanes: int
    steps: int
    tolerance: float
    hopeless: float


class _Lanes(NamedTuple):
    """The start that each lane is working on, and how far it has come."""

    start: Int[Array, " lanes"]
    point: Float[Array, "lanes dim"]
    model: LocalModel
    trial: Float[Array, "lanes dim"]
    gain: Float[Array, " lanes"]
    damping: Float[Array, " lanes"]
    beta: Float[Array, " lanes"]
    age: Int[Array, " lanes"]


# The growth of the inverse temperature per step, the first damping relative to the scaled
# curvature, and the damping at which a start is stuck.
_HEATING = 1.6
_DAMPING = 0.1
_MOST_DAMPING = 1e9


@bounded_jit
def descend(
    model_fn: Callable[[Target, Float[Array, " dim"]], LocalModel],
    target: Target,
    starts: Float[Array, "starts dim"],
    betas: Float[Array, " starts"],
    limits: Limits,
    number: Int[Array, ""] | None = None,
) -> Ends:
    """Minimises psi from every start by Levenberg-Marquardt steps.

    A lane that finishes takes the next start at once, so that slow starts hold nobody up. The step
    solves (|B| + damping D) d = -gradient, where D is B's diagonal and |B| its matrix absolute
    value (B = curvature): downhill also where the curvature is negative. The gain ratio steers the
    damping.

    Args:
        model_fn: The local model, `gauss_newton` or `newton`.
        target: The density.
        starts: The points where the descents start.
        betas: The inverse temperature of each start's first step: psi is beta psi + (1 - beta)
            times that of the reference, and beta grows to 1.
        limits: How many descend at once, and how far.
        number: The number of starts that count, the first ones; by default all do. The others only
            pad the shape.
    """
    count = len(starts)
    lanes = min(limits.lanes, count)

    def iterate(state):
        before, ends, queued = state
        trial = jax.vmap(lambda u: model_fn(target, u))(before.trial)
        lane, accepted, finite = _judge(target, before, trial)
        # One lane after the other: see `cores` on batches of decompositions.
        proposed = (lane.model, lane.point, lane.beta, lane.damping)
        step, gain, decrement = jax.lax.map(lambda lane: _propose(target, *lane), proposed)
        values = jnp.where(accepted | (before.age > 0), lane.model.value, jnp.inf)
        settled = (decrement < limits.tolerance) & (before.beta >= 1)
        stuck = (lane.damping >= _MOST_DAMPING) | (~finite & (before.age == 0))
        late = (lane.age > limits.steps // 3) & (
            lane.model.value > jnp.min(ends.values) + limits.hopeless
        )
        done = settled | stuck | late | (lane.age >= limits.steps)

        slot = jnp.where(done, lane.start, count)
        ends = Ends(
            ends.points.at[slot].set(lane.point, mode="drop"),
            ends.values.at[slot].set(values, mode="drop"),
            ends.curvatures.at[slot].set(lane.model.curvature, mode="drop"),
            ends.decrements.at[slot].set(decrement, mode="drop"),
            ends.evaluations + lanes,
        )
        start = jnp.where(done, queued + jnp.cumsum(done) - 1, lane.start)
        fresh = jnp.minimum(start, count - 1)
        lane = _Lanes(
            start=start,
            point=jnp.where(done[:, None], starts[fresh], lane.point),
            model=lane.model,
            trial=jnp.where(done[:, None], starts[fresh], lane.point + step),
            gain=gain,
            damping=jnp.where(done, _DAMPING, lane.damping),
            beta=jnp.where(done, betas[fresh], lane.beta),
            age=jnp.where(done, 0, lane.age),
        )
        return lane, ends, queued + jnp.sum(done)

    def unfinished(state):
        lane, _, _ = state
        return jnp.any(lane.start < (count if number is None else number))

    state = (*_begin(starts, betas, lanes), jnp.asarray(lanes))
    _, ends, _ = jax.lax.while_loop(unfinished, iterate, state)
    return ends


def _begin(
    starts: Float[Array, "starts dim"], betas: Float[Array, " starts"], lanes: int
) -> tuple[_Lanes, Ends]:
    """Puts the first starts into the lanes; no start has ended."""
    count, dim = starts.shape
    zeros, matrices = jnp.zeros(count, starts.dtype), jnp.zeros((count, dim, dim), starts.dtype)
    lane = _Lanes(
        start=jnp.arange(lanes),
        point=starts[:lanes],
        model=LocalModel(zeros[:lanes], jnp.zeros_like(starts[:lanes]), matrices[:lanes]),
        trial=starts[:lanes],
        gain=zeros[:lanes],
        damping=jnp.full_like(zeros[:lanes], _DAMPING),
        beta=betas[:lanes],
        age=jnp.zeros(lanes, int),
    )
    unknown = jnp.full_like(zeros, jnp.inf)
    return lane, Ends(starts, unknown, matrices, unknown, jnp.zeros((), int))


def _judge(
    target: Target, lane: _Lanes, trial: LocalModel
) -> tuple[_Lanes, Bool[Array, " lanes"], Bool[Array, " lanes"]]:
    """Accepts the trials that lower psi, and steers damping and temperature.

    Returns:
        The lanes, whether each trial was accepted, and whether it was finite.
    """
    finite = jnp.isfinite(trial.value) & jnp.all(jnp.isfinite(trial.gradient), axis=1)
    finite &= jnp.all(jnp.isfinite(trial.curvature), axis=(1, 2))
    temper = jax.vmap(lambda *args: _tempered(target, *args).value)
    old = temper(lane.model, lane.point, lane.beta)
    new = temper(trial, lane.trial, lane.beta)
    noise = 8 * jnp.finfo(new.dtype).eps * (jnp.abs(new) + 1)
    accepted = finite & ((new <= old + noise) | (lane.age == 0))
    ratio = jnp.where(lane.age == 0, 0.5, (old - new) / jnp.maximum(lane.gain, noise))
    factor = jnp.where(ratio > 0.75, 0.25, jnp.where(ratio < 0.25, 3.0, 1.0))
    damping = jnp.clip(lane.damping * jnp.where(accepted, factor, 6.0), 1e-7, _MOST_DAMPING)
    point, model = jax.tree.map(
        lambda a, b: jnp.where(accepted.reshape(-1, *[1] * (a.ndim - 1)), a, b),
        (lane.trial, trial),
        (lane.point, lane.model),
    )
    beta = jnp.minimum(1, lane.beta * _HEATING)
    lane = lane._replace(point=point, model=model, damping=damping, beta=beta, age=lane.age + 1)
    return lane, accepted, finite


def _tempered(
    target: Target, model: LocalModel, u: Float[Array, " dim"], beta: Float[Array, ""]
) -> LocalModel:
    """Mixes the model with that of the reference."""
    reference = target.scale**-2
    return LocalModel(
        beta * model.value + (1 - beta) * 0.5 * reference * jnp.sum(u**2),
        beta * model.gradient + (1 - beta) * reference * u,
        beta * model.curvature + (1 - beta) * reference * jnp.eye(len(u), dtype=u.dtype),
    )


def _propose(
    target: Target,
    model: LocalModel,
    u: Float[Array, " dim"],
    beta: Float[Array, ""],
    damping: Float[Array, ""],
) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, ""]]:
    """Computes the damped step, the decrease of psi it promises, and the Newton decrement."""
    _, gradient, curvature = _tempered(target, model, u, beta)
    diagonal = jnp.abs(jnp.diagonal(curvature))
    units = jnp.sqrt(jnp.maximum(diagonal, 1e-6 * jnp.max(diagonal) + 1e-30))
    values, vectors = jnp.linalg.eigh(curvature / units[:, None] / units)
    values = jnp.maximum(jnp.abs(values), 1e-6)
    force = vectors.T @ (gradient / units)
    step = -force / (values + damping)
    promise = -jnp.sum(force * step) - 0.5 * jnp.sum(values * step**2)
    return vectors @ step / units, promise, 0.5 * jnp.sum(force**2 / values)


def descend_groups(
    model_fn: Callable[[Target, Float[Array, " dim"]], LocalModel],
    target: Target,
    starts: Float[np.ndarray, "starts dim"],
    betas: Float[np.ndarray, " starts"],
    limits: Limits,
    usual: int,
) -> Ends:
    """Descends from all starts in groups, at the same time if there are cores.

    Groups are padded to the size that those of `usual` starts have, so that little is compiled
    twice; the other arguments are those of `descend`.
    """
    size = usual // _GROUPS
    groups = np.array_split(np.arange(len(starts)), min(_GROUPS, len(starts)))

    def descend_group(group: Int[np.ndarray, " members"]) -> Ends:
        points = to_device(padded(starts[group], size), target.dtype)
        first_betas = to_device(padded(betas[group], size), target.dtype)
        return descend(model_fn, target, points, first_betas, limits, to_device(len(group)))

    parts = on_cores(descend_group, groups)

    def join(place: int) -> np.ndarray:
        pairs = zip(groups, parts, strict=True)
        return np.concatenate([np.asarray(part[place])[: len(group)] for group, part in pairs])

    return Ends(join(0), join(1), join(2), join(3), np.sum([part.evaluations for part in parts]))
