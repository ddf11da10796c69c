"""Adaptive tempered sequential Monte Carlo: slow, but exact for many modes and any shape.

Particles move from the prior N(0, scale^2 I) along prior(u) exp(temperature * L(u)), where
L = ln density - ln prior, to the density at temperature 1. At each temperature: reweight,
resample (systematic), and run several HMC moves on every particle. All states that the moves
visit are kept and reweighted next ("waste-free" SMC, Dau and Chopin 2022), which costs one forward
evaluation per state and lowers the evidence's variance.

Temperatures, mass matrices and step sizes are adapted to the particles in a first pass. Its
evidence is biased (by -0.07 nats on a 10-dimensional Gaussian with 1024 particles and -0.27 with
256: where the largest weights are missed by chance, the next temperature is set too far ahead), so
it is thrown away; a second, independent pass with that plan is free of the bias.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int, Key

from latentuq import UserError
from latentuq.core.compilation import bounded_jit
from latentuq.inference.result import Counts
from studies.baselines.result import BaselineResult, LogDensity
from studies.baselines.timing import Timer

_ACCEPTANCE = 0.8
# Mean length of a trajectory, in standard deviations: a quarter of a Gaussian's period.
_LENGTH = np.pi / 2
_MOST_LEAPFROGS = 32
_MOST_TEMPERATURES = 500
# Particles evaluated together: activations of a small network then stay in the processor's cache.
_CHUNK = 256


class Cloud(NamedTuple):
    """Equally weighted draws at one temperature, and L at each."""

    u: Float[Array, "pool dim"]
    log_likelihood: Float[Array, " pool"]


class Stage(NamedTuple):
    """A temperature and the HMC that suits it: inverse mass matrix, logarithm of the step."""

    temperature: Float[Array, ""]
    covariance: Float[Array, "dim dim"]
    log_step: Float[Array, ""]


class Report(NamedTuple):
    """One temperature: its factor of the evidence, mean acceptance, leapfrogs per particle."""

    log_increment: Float[Array, ""]
    acceptance: Float[Array, ""]
    leapfrogs: Int[Array, ""]


class Size(NamedTuple):
    """How much SMC does.

    Attributes:
        particles: The number of particles that are moved.
        moves: The number of HMC moves at each temperature; `particles * moves` draws are returned.
        ess: The effective fraction of the draws that a step to the next temperature leaves.
    """

    particles: int = 1024
    moves: int = 4
    ess: float = 0.5


_DEFAULT = Size()


class Pass(NamedTuple):
    """One pass from the prior to the density; its stages are a plan for others."""

    cloud: Cloud
    stages: list[Stage]
    reports: list[Report]
    counts: Counts


class Tempered(eqx.Module):
    """A density on its way from N(0, scale^2 I); NaN counts as zero density."""

    log_density_fn: LogDensity
    scale: Float[Array, ""]

    def log_prior(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        return jnp.sum(jax.scipy.stats.norm.logpdf(u, scale=self.scale))

    def log_likelihood(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """L(u) = ln density - ln prior."""
        value = self.log_density_fn(u)
        return jnp.where(jnp.isnan(value), -jnp.inf, value) - self.log_prior(u)

    def log_density(
        self, u: Float[Array, " dim"], temperature: Float[Array, ""]
    ) -> Float[Array, ""]:
        return self.log_prior(u) + temperature * self.log_likelihood(u)


def smc(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    dim: int,
    *,
    size: Size = _DEFAULT,
    scale: float = 1.0,
    plan: Pass | None = None,
) -> BaselineResult:
    """Samples a density and estimates its integral, many modes included.

    The evidence is the product over temperatures of the mean incremental weight, an unbiased
    estimate. One run cannot tell its error: repeat it and use `pool_evidence`.

    The particles start from N(0, scale^2 I). A plan that `plan_smc` has found for this density can
    be shared between runs; without one it is made here, and its cost counts.
    """
    plan_key, run_key = jax.random.split(key)
    timer, counts = Timer(), Counts()
    if plan is None:
        plan = _run(timer, plan_key, log_density_fn, dim, size, scale)
        counts = plan.counts
    done = _run(timer, run_key, log_density_fn, dim, size, scale, plan.stages)
    reports = done.reports
    return timer.result(
        done.cloud.u,
        counts + done.counts,
        np.sum([float(report.log_increment) for report in reports]),
        temperatures=[float(stage.temperature) for stage in done.stages],
        acceptances=[float(report.acceptance) for report in reports],
        leapfrogs=[float(report.leapfrogs) for report in reports],
    )


def plan_smc(
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    dim: int,
    *,
    size: Size = _DEFAULT,
    scale: float = 1.0,
) -> Pass:
    """Finds temperatures, mass matrices and step sizes by one adaptive pass; see `smc`."""
    return _run(Timer(), key, log_density_fn, dim, size, scale)


def _run(
    timer: Timer,
    key: Key[Array, ""],
    log_density_fn: LogDensity,
    dim: int,
    size: Size,
    scale: float,
    planned: list[Stage] | None = None,
) -> Pass:
    """One pass: through the planned stages, or through stages adapted on the way."""
    target = Tempered(log_density_fn, jnp.asarray(scale, jnp.float32))
    start_key, loop_key = jax.random.split(key)
    cloud = timer.run(_start, start_key, target, dim, size)
    if not np.any(np.isfinite(cloud.log_likelihood)):
        raise UserError(
            f"The log density is not finite at any of {len(cloud.u)} draws of"
            f" N(0, {scale:g}^2 I); choose a scale where it is."
        )
    # In whitened coordinates leapfrog steps scale as dim^(-1/4).
    stage = Stage(jnp.zeros(()), jnp.eye(dim), jnp.asarray(-0.25 * np.log(dim), jnp.float32))
    adapt = jnp.asarray(planned is None)
    stages, reports = [], []
    for number, step_key in enumerate(jax.random.split(loop_key, _MOST_TEMPERATURES)):
        reached = stage.temperature
        stage = stage if planned is None else planned[number]
        cloud, stage, report = timer.run(
            _advance, step_key, target, cloud, reached, stage, adapt, size
        )
        stages.append(stage)
        reports.append(report)
        if stage.temperature == 1:
            return Pass(cloud, stages, reports, _count(reports, size))
    raise UserError(
        f"SMC reached temperature {float(stage.temperature):.2g} of 1 in {_MOST_TEMPERATURES}"
        " steps; start from a scale nearer to the density's."
    )


def _count(reports: list[Report], size: Size) -> Counts:
    """One gradient starts each particle at each temperature, one more per leapfrog step."""
    leapfrogs = sum(int(report.leapfrogs) for report in reports)
    forwards = size.particles * size.moves * (len(reports) + 1)
    return Counts(forwards, size.particles * (leapfrogs + len(reports)))


@bounded_jit
def _start(key: Key[Array, ""], target: Tempered, dim: int, size: Size) -> Cloud:
    """The prior's draws: the cloud at temperature 0."""
    u = target.scale * jax.random.normal(key, (size.particles * size.moves, dim))
    return Cloud(u, jax.lax.map(target.log_likelihood, u, batch_size=_CHUNK))


@bounded_jit
def _advance(
    key: Key[Array, ""],
    target: Tempered,
    cloud: Cloud,
    reached: Float[Array, ""],
    stage: Stage,
    adapt: Bool[Array, ""],
    size: Size,
) -> tuple[Cloud, Stage, Report]:
    """Reweights the cloud from the temperature reached to the next, resamples it and moves it.

    If `adapt`, only the step of `stage` is used, to start from, and the stage is found.
    """
    from blackjax.smc.resampling import systematic

    resample_key, move_key = jax.random.split(key)
    found = _next_temperature(cloud.log_likelihood, reached, size.ess)
    temperature = jnp.where(adapt, found, stage.temperature)
    log_weights = (temperature - reached) * cloud.log_likelihood
    weights = jax.nn.softmax(log_weights)
    chosen = cloud.u[systematic(resample_key, weights, size.particles)]
    covariance = jnp.where(adapt, _covariance(cloud.u, weights), stage.covariance)
    stage = Stage(temperature, covariance, stage.log_step)
    moved, log_step, report = _move(move_key, target, chosen, stage, adapt, size.moves)
    increment = logsumexp(log_weights) - jnp.log(log_weights.size)
    return moved, stage._replace(log_step=log_step), report._replace(log_increment=increment)


def _next_temperature(
    log_likelihood: Float[Array, " pool"], reached: Float[Array, ""], ess: float
) -> Float[Array, ""]:
    """The temperature at which the effective fraction of the possible draws falls to `ess`."""
    from blackjax.smc.ess import ess_solver
    from blackjax.smc.solver import dichotomy

    possible = jnp.mean(jnp.isfinite(log_likelihood))
    remaining = 1.0 - reached
    increment = ess_solver(
        lambda values: values, log_likelihood, ess * possible, remaining, dichotomy
    )
    return jnp.where(increment >= remaining, 1.0, reached + increment)


def _covariance(
    u: Float[Array, "pool dim"], weights: Float[Array, " pool"]
) -> Float[Array, "dim dim"]:
    gaps = u - weights @ u
    covariance = (weights[:, None] * gaps).T @ gaps
    # A floor keeps a cloud of a few distinct points positive definite.
    return covariance + 1e-5 * jnp.trace(covariance) / u.shape[1] * jnp.eye(u.shape[1])


def _move(
    key: Key[Array, ""],
    target: Tempered,
    u: Float[Array, "particles dim"],
    stage: Stage,
    adapt: Bool[Array, ""],
    moves: int,
) -> tuple[Cloud, Float[Array, ""], Report]:
    """HMC moves of all particles; the step follows their mean acceptance if `adapt`."""
    from blackjax.mcmc import hmc

    kernel: Any = hmc.build_kernel()
    particles, dim = u.shape

    def log_density(u):
        return target.log_density(u, stage.temperature)

    def move(carry, move_key):
        states, log_step = carry
        length_key, kernel_key = jax.random.split(move_key)
        step = jnp.exp(log_step)
        length = _LENGTH * jax.random.uniform(length_key, minval=0.5, maxval=1.5)
        leapfrogs = jnp.clip(jnp.ceil(length / step), 1, _MOST_LEAPFROGS).astype(int)

        def one(argument):
            one_key, state = argument
            state, info = kernel(one_key, state, log_density, step, stage.covariance, leapfrogs)
            return state, info.acceptance_rate, target.log_likelihood(state.position)

        keys = jax.random.split(kernel_key, particles)
        states, acceptances, log_likelihood = jax.lax.map(one, (keys, states), batch_size=_CHUNK)
        acceptance = jnp.mean(acceptances)
        log_step += jnp.where(adapt, acceptance - _ACCEPTANCE, 0.0)
        return (states, log_step), (states.position, log_likelihood, acceptance, leapfrogs)

    states = jax.lax.map(lambda point: hmc.init(point, log_density), u, batch_size=_CHUNK)
    (_, log_step), (visited, log_likelihood, acceptances, leapfrogs) = jax.lax.scan(
        move, (states, stage.log_step), jax.random.split(key, moves)
    )
    # Particle by particle, not move by move: relatives stay neighbours, which systematic
    # resampling turns into strata.
    cloud = Cloud(
        jnp.swapaxes(visited, 0, 1).reshape(particles * moves, dim), log_likelihood.T.ravel()
    )
    return cloud, log_step, Report(jnp.zeros(()), jnp.mean(acceptances), jnp.sum(leapfrogs))
