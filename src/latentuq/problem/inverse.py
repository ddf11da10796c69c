"""InverseProblem: prior, operator, noise and data as one exact log density."""

import warnings
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Key

from latentuq.core.arrays import read_real, to_float32
from latentuq.core.compilation import bounded_jit
from latentuq.core.errors import UserError
from latentuq.core.modules import with_fields
from latentuq.core.text import show_size
from latentuq.forward.operator import Operator
from latentuq.likelihood.choice import make_likelihood
from latentuq.likelihood.likelihood import Likelihood
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior.generative import GenerativePrior
from latentuq.problem.explain import explain
from latentuq.problem.parts import Parts, join_data, join_noise

_LOG_TWO_PI = float(np.log(2 * np.pi))


class Simulation(NamedTuple):
    """A draw from the whole model: base variable, clean image, data (NaN where unobserved)."""

    u: Float[Array, " dim"]
    x: Float[Array, "*shape"]
    y: Float[Array, "*data"]


class LatentDensity(eqx.Module):
    """p(y | u) N(u; 0, I) as a function of u, made of nothing but what evaluating it takes.

    Neither the user's operator nor the shape of the data is part of it, so that compiled programs
    fit many problems. Nor are the units of the data: they are those of `ObservedData`.

    Attributes:
        prior: Makes the image.
        likelihood: The likelihood of the image.
    """

    prior: GenerativePrior
    likelihood: Likelihood

    def log_density(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Computes ln p(y | u) + ln N(u; 0, I), all constants but that of the units included."""
        log_prior = -0.5 * (jnp.sum(u**2) + self.prior.dim * _LOG_TWO_PI)
        return self.likelihood.log_prob(self.prior.generate(u)) + log_prior

    def residual(self, u: Float[Array, " dim"]) -> Float[Array, " rows"]:
        """Computes r(u) with log_density = constant - r.r / 2 - u.u / 2."""
        return self.likelihood.residual(self.prior.generate(u))

    def chi_squared(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Computes how far the data are from what u predicts, see `Likelihood.misfit`."""
        return self.likelihood.misfit(self.prior.generate(u))


class InverseProblem(eqx.Module):
    """y = A (g(u) + n_model) + n with u ~ N(0, I): the posterior of u given y.

    All factorisations are done when the problem is made, in float64 and outside any compiled
    function. Everything below works on one u, and under jit, vmap, grad and hessian.

    Attributes:
        prior: Where g and the model error come from.
        operator: A, bound to the prior's image shape.
        noise: The noise of the instrument.
        y: The data, NaN wherever nothing is observed.
        likelihood: The density of the data given the generator's image.
    """

    prior: GenerativePrior
    operator: Operator
    noise: GaussianNoise
    y: Float[Array, "*data"]
    likelihood: Likelihood

    def __init__(
        self,
        prior: GenerativePrior,
        operator: Operator,
        noise: GaussianNoise | Parts,
        y: ArrayLike | Parts,
    ):
        """States the problem.

        Args:
            prior: A trained prior or `prior_from`.
            operator: What the instrument does; masked pixels are not data.
            noise: The noise of the instrument; 0 is allowed where the data have another error.
                For a stack also a list with the noise or the standard deviation of each part.
            y: The data; NaN marks missing ones. For a stack also a list with the data of each part.

        Raises:
            UserError: Shapes do not match, data are infinite, or the noise is too small.
        """
        _check_kinds(prior, operator)
        operator = operator.bind(prior.shape)
        noise = join_noise(operator, noise)
        noise.check(operator.output_shape)
        data = _read_data(join_data(operator, y), operator)
        if np.isnan(data).all():
            # Level 4: equinox calls this from two frames of its own.
            warnings.warn("Nothing is observed: the posterior is the prior.", stacklevel=4)
        self.prior = prior
        self.operator = operator
        self.noise = noise
        self.y = to_float32(data)
        self.likelihood = make_likelihood(operator, noise, prior.model_error, data)

    @property
    def density(self) -> LatentDensity:
        """The density of u, made for evaluation; see `LatentDensity` for its units."""
        return LatentDensity(self.prior, self.likelihood)

    @property
    def dim(self) -> int:
        return self.prior.dim

    @property
    def observed(self) -> Bool[Array, "*data"]:
        """Which data exist."""
        return ~jnp.isnan(self.y)

    @property
    def downweighted(self) -> bool:
        """Whether data count less than once.

        Then the evidence is no density of them: it compares modes, not priors or levels of noise.
        """
        return self.likelihood.downweighted

    def log_density(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Computes ln p(y | u) + ln N(u; 0, I) over the observed data, all constants included."""
        return self.density.log_density(u) - self.likelihood.log_units

    def residual(self, u: Float[Array, " dim"]) -> Float[Array, " rows"]:
        """Computes r(u) with log_density = constant - r.r / 2 - u.u / 2.

        Where data do not exist it is zero; a signal-dependent model error adds terms of its own.
        """
        return self.density.residual(u)

    def chi_squared(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Computes how far the data are from what u predicts, see `Likelihood.misfit`."""
        return self.density.chi_squared(u)

    def simulate(self, key: Key[Array, ""]) -> Simulation:
        """Draws u from the prior, then x and y given u; y is missing where it is missing here.

        With a gain of the model error, x has the error of what the generator shows, which
        `log_density` knows only where each datum shows one pixel, and then without its correlation.
        """
        u_key, error_key, noise_key = jax.random.split(key, 3)
        u = jax.random.normal(u_key, (self.dim,))
        x, rows = self.likelihood.simulate(error_key, noise_key, self.prior.generate(u))
        y = jnp.where(self.observed, rows.reshape(self.y.shape), jnp.nan)
        return Simulation(u, x, y)

    def conditional_images(
        self, key: Key[Array, ""], u: Float[Array, " dim"]
    ) -> Float[Array, "*shape"]:
        """Draws a clean image x from p(x | u, y), model error included."""
        return self.likelihood.sample_image(key, self.prior.generate(u))

    def with_data(self, y: ArrayLike) -> "InverseProblem":
        """The same problem for other data, missing where they are missing here.

        Nothing is factored again, so this is cheap, and can be traced and vmapped.
        """
        y = jnp.asarray(y, self.y.dtype)
        if y.shape != self.y.shape:
            raise UserError(f"y has shape {y.shape}, but this problem's data are {self.y.shape}.")
        if not isinstance(y, Tracer) and not jnp.all(jnp.isfinite(y) | ~self.observed):
            raise UserError(
                "y is NaN or infinite where this problem has data; make a new InverseProblem."
            )
        return with_fields(
            self,
            y=jnp.where(self.observed, y, jnp.nan),
            likelihood=self.likelihood.with_data(jnp.ravel(y)),
        )

    def explain(self) -> str:
        """Says what is observed, at what noise, and how much of the variance is model error."""
        return explain(self)

    # Compared by identity: `jax.jit(problem.log_density)` needs a hash, which arrays lack.
    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return (
            f"InverseProblem({self.prior!r}, {self.operator!r}, {self.noise!r},"
            f" y of {show_size(self.y.shape)})"
        )


@bounded_jit
def observe(
    key: Key[Array, ""], operator: Operator, noise: GaussianNoise, x: Float[ArrayLike, "*shape"]
) -> Float[Array, "*data"]:
    """Makes of a clean image what an instrument makes of it: A x + n."""
    return operator.apply(jnp.asarray(x)) + noise.sample(key, operator.output_shape)


def _check_kinds(prior: object, operator: object) -> None:
    for name, value, kind in (("prior", prior, GenerativePrior), ("operator", operator, Operator)):
        if not isinstance(value, kind):
            raise UserError(f"The {name} must be of type {kind.__name__}, not {value!r}.")


def _read_data(y: ArrayLike, operator: Operator) -> Float[np.ndarray, "*data"]:
    """The data in float64, NaN where the operator or the user says that nothing was seen."""
    data, shape = read_real(y, "y"), operator.output_shape
    if data.shape != shape:
        raise UserError(f"y has shape {data.shape}, but the operator makes data of shape {shape}.")
    data[~np.asarray(operator.observed(jnp.ones(operator.input_shape or (), bool)))] = np.nan
    with np.errstate(over="ignore"):
        infinite = np.isinf(data.astype(np.float32))
    if infinite.any():
        where = tuple(int(index) for index in np.argwhere(infinite)[0])
        what = "infinite" if np.isinf(data[where]) else f"too large, {data[where]:g},"
        raise UserError(f"y is {what} at {where}; mark missing data by NaN.")
    return data
