"""From one image to its posterior: read, stated as a problem and solved, with or without files."""

import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from latentuq.app.progress import Stages
from latentuq.core.errors import UserError
from latentuq.data.observation import Observation
from latentuq.forward.operator import Operator
from latentuq.likelihood.noise import GaussianNoise
from latentuq.posterior.noise_level import NoiseLevel, estimate_noise
from latentuq.posterior.posterior import Posterior
from latentuq.posterior.solve import solve
from latentuq.prior.generative import GenerativePrior
from latentuq.problem.files import read_data
from latentuq.problem.inverse import InverseProblem, observe
from latentuq.problem.specification import Specification
from latentuq.problem.units import to_prior_scale

Image = str | Path | np.ndarray
"""An observation: a file, or an array as a file would hold it."""


class Given(NamedTuple):
    """One image, with what is known of this image alone.

    Attributes:
        image: The observation.
        name: What messages and reports call it; by default the name of its file.
        missing: Data that are hidden besides what the specification hides.
        noise: The noise in the place of the specification's, as its table would hold it.
    """

    image: Image
    name: str | None = None
    missing: Bool[np.ndarray, "*data"] | None = None
    noise: dict[str, Any] | None = None


class Solved(NamedTuple):
    """An image with its posterior.

    Attributes:
        posterior: The answer.
        observation: The data as they were read.
        truth: The clean image, if that was given and corrupted.
        level: The level of the noise in the units of the data, if it was estimated.
        assumed: What was taken for granted about units, in a line.
        notes: What was warned of.
    """

    posterior: Posterior
    observation: Observation
    truth: Float[np.ndarray, "height width"] | None
    level: NoiseLevel | None
    assumed: str
    notes: list[str]


class Stating:
    """States problems under one prior, and factors the covariance of like data only once."""

    def __init__(self, prior: GenerativePrior):
        self.prior = prior
        self._last: tuple[Any, Bool[np.ndarray, "*data"], InverseProblem] | None = None

    def state(
        self,
        kind: Any,
        operator: Operator,
        noise: GaussianNoise,
        values: Float[np.ndarray, "*data"],
    ) -> InverseProblem:
        """The problem of these data.

        Args:
            kind: A name for this operator with this noise; data of one name share them. None if
                no other data have the same.
            operator: What the instrument does.
            noise: The noise of the instrument.
            values: The data, NaN where they are missing.
        """
        missing = np.isnan(values)
        if kind is not None and self._last is not None:
            known, pattern, problem = self._last
            # What is infinite is refused below, in the same words whatever came before.
            with np.errstate(over="ignore"):
                finite = not np.isinf(values.astype(np.float32)).any()
            if known == kind and finite and np.array_equal(pattern, missing):
                return problem.with_data(values)
        problem = InverseProblem(self.prior, operator, noise, values)
        self._last = None if kind is None else (kind, missing, problem)
        # Rounded like those that come after it: it must not matter which image was first.
        return problem.with_data(values)


class Solver:
    """Solves images under one prior and one specification; what they share is made once.

    Images of the same units whose data are missing in the same places share operator, noise and the
    factors of the covariance of their data.
    """

    def __init__(
        self,
        prior: GenerativePrior,
        specification: Specification,
        *,
        corrupt: bool = False,
        resize: str | None = None,
        budget: str = "default",
    ):
        """Takes what all images have in common; see `latentuq.app.reconstruct.Request`."""
        if corrupt and specification.noise_is_unknown:
            raise UserError(
                "--corrupt adds noise of a known level: give it instead of --noise auto."
            )
        self.prior = prior
        self.specification = specification
        self.corrupt = corrupt
        self.resize = resize
        self.budget = budget
        self._read_files: dict[Any, Specification] = {}
        self._stating = Stating(prior)

    def solve(
        self, key: Key[Array, ""], given: Given, stages: Stages | None = None, quiet: bool = False
    ) -> Solved:
        """Reads an image, states its problem and solves it.

        Args:
            key: The randomness of this image.
            given: The image.
            stages: Told what is done, and timed.
            quiet: Whether warnings are only noted, and not given.
        """
        stages = stages or Stages()
        data_key, noise_key, solve_key, _ = jax.random.split(key, 4)
        with noting(quiet) as notes:
            observation = self._read(given)
            stages.end("start-up")
            problem, truth = self._state(data_key, given, observation)
        assumed = _what_is_assumed(self.specification, observation, problem)
        stages.say(assumed)
        stages.end("problem")
        level = None
        if self.specification.noise_is_unknown:
            stages.say("Estimating the noise.")
            problem, level = _estimate(noise_key, problem)
            level = level.scaled(observation.scaling.step)
            stages.end("noise")
        stages.say("Searching for modes.")
        post = solve(solve_key, problem, budget=self.budget, progress=stages.follow)
        stages.end("certify")
        return Solved(post, observation, truth, level, assumed, notes)

    def state(self, key: Key[Array, ""], given: Given) -> InverseProblem:
        """States the problem of an image without solving it; an unknown noise is taken to be 1."""
        with noting(quiet=True):
            return self._state(jax.random.split(key, 4)[0], given, self._read(given))[0]

    def _read(self, given: Given) -> Observation:
        observation = read_data(self.specification, given.image, self.prior)
        if given.name is not None:
            observation = dataclasses.replace(observation, name=given.name)
        if given.missing is None:
            return observation
        if given.missing.shape != observation.raw.shape:
            raise UserError(
                f"The mask of {observation.name} has shape {given.missing.shape}, but the image has"
                f" shape {observation.raw.shape}."
            )
        raw = np.where(given.missing, np.nan, observation.raw)
        if np.isnan(raw).all():
            raise UserError(f"The mask of {observation.name} hides all that there is of it.")
        return dataclasses.replace(observation, raw=raw)

    def _state(
        self, key: Key[Array, ""], given: Given, observation: Observation
    ) -> tuple[InverseProblem, Float[np.ndarray, "height width"] | None]:
        """The problem, and the clean image if that was given."""
        shape, units = self.prior.shape, (observation.scaling, observation.kind)
        clean = Specification()
        stated, fitted = (clean if self.corrupt else self._specified(given, observation)).fit(
            observation, shape, self.resize
        )
        resized = fitted.raw.shape != observation.raw.shape
        operator, noise = stated.build(shape)
        values = to_prior_scale(fitted, operator, noise)
        truth = None
        if self.corrupt:
            if np.isnan(values).any():
                raise UserError(
                    "A clean image has no missing pixels: fill them or leave out --corrupt."
                )
            operator, noise = self._specified(given, observation).build(shape)
            assert noise is not None  # An unknown level was refused at the beginning.
            noise.check(operator.output_shape)
            truth = values
            values = np.asarray(observe(key, operator, noise, values.astype(np.float32)))
        # Where the level is to be estimated, any will do for the time being.
        noise = noise or GaussianNoise(1.0)
        kind = None if given.noise is not None else (units, resized)
        return self._stating.state(kind, operator, noise, values), truth

    def _specified(self, given: Given, observation: Observation) -> Specification:
        """The specification with its files read, once for each kind of units."""
        if given.noise is not None:
            own = dataclasses.replace(self.specification, noise=given.noise)
            return own.with_files(observation)
        units = (observation.scaling, observation.kind)
        if units not in self._read_files:
            self._read_files = {units: self.specification.with_files(observation)}
        return self._read_files[units]


def report_key(key: Key[Array, ""]) -> Key[Array, ""]:
    """The randomness left for a report on an image that `Solver.solve` was given this key for."""
    return jax.random.split(key, 4)[3]


def _what_is_assumed(
    specification: Specification, observation: Observation, problem: InverseProblem
) -> str:
    """What is taken for granted about the units of data and noise, in a line."""
    levels = np.unique(np.asarray(problem.noise.std) * observation.scaling.step)
    if specification.noise_is_unknown:
        noise = "The noise is estimated from the data."
    elif not levels.any():
        noise = "No noise is assumed: for noisy data give --noise, or --noise auto to estimate it."
    else:
        noise = f"The noise is {observation.show(*levels[[0, -1]][: len(levels)])}."
    return f"{observation.assumed} {noise}"


def _estimate(key: Key[Array, ""], problem: InverseProblem) -> tuple[InverseProblem, NoiseLevel]:
    """The problem with the level of the noise that its data tell."""
    y = np.where(problem.observed, problem.y, np.nan)
    level = estimate_noise(key, problem.prior, problem.operator, y)
    return InverseProblem(problem.prior, problem.operator, GaussianNoise(level.std), y), level


@contextmanager
def noting(quiet: bool) -> Iterator[list[str]]:
    """Yields a list that holds, after the block, what was warned of in it; given too if loud."""
    notes: list[str] = []
    caught: list[warnings.WarningMessage] | None = None
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield notes
    finally:
        for each in caught or ():
            if not quiet:
                warnings.warn(each.message, stacklevel=5)
            notes.append(str(each.message))
