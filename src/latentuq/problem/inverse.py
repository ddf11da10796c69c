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

from latentuq.core.arrays import read_real, to_device
from latentuq.core.compilation import bounded_jit
from latentuq.core.errors import UserError
from latentuq.forward import Gain, Operator
from latentuq.likelihood.covariance import DenseWhitening, Whitening, factor, pull_back
from latentuq.likelihood.noise import GaussianNoise
from latentuq.likelihood.sight import Sight, narrow
from latentuq.likelihood.signal_dependent import SignalLikelihood, make_signal_likelihood
from latentuq.prior import GenerativePrior, ModelError

_LOG_TWO_PI = float(np.log(2 * np.pi))
# Relative to the whitened gap in the data; what is left in an image is a hundredth of its spread.
_CG_ERROR = 1e-3
_CG_STEPS = 200


class Simulation(NamedTuple):
    """A draw from the whole model: base variable, clean image, data (NaN where unobserved)."""

    u: Float[Array, " dim"]
    x: Float[Array, "*shape"]
    y: Float[Array, "*data"]


class InverseProblem(eqx.Module):
    """y = A (g(u) + n_model) + n with u ~ N(0, I): the posterior of u given y.

    C = S_noise + A S_model A^T is factored when the problem is made, in float64 and outside any
    compiled function. Everything below works on one u, and under jit, vmap, grad and hessian.

    Where the model error has a gain, each datum shows one pixel and noise is independent, u is
    inferred with a `SignalLikelihood` in the place of N(y; A g(u), C).

    Attributes:
        prior: Where g and S_model come from.
        operator: A, bound to the prior's image shape.
        noise: S_noise.
        y: The data, NaN wherever nothing is observed.
        model_error: S_model as u is inferred with, see `ModelError.inflated`.
        image_error: S_model as images are drawn with.
        model_variance: The diagonal of A S_model A^T before that.
        sight: What predicts the data that exist, where that takes less than the whole image.
        likelihood: Of a signal-dependent model error; None: N(y; A g(u), C).
    """

    prior: GenerativePrior
    model_error: ModelError
    image_error: ModelError
    operator: Operator
    noise: GaussianNoise
    y: Float[Array, "*data"]
    model_variance: Float[Array, "*data"]
    sight: Sight | None
    whitening: Whitening
    whitened_data: Float[Array, " seen"]
    likelihood: SignalLikelihood | None
    log_normalisation: Float[Array, ""]

    def __init__(
        self, prior: GenerativePrior, operator: Operator, noise: GaussianNoise, y: ArrayLike
    ):
        """States the problem.

        Args:
            prior: A trained prior or `prior_from`.
            operator: What the instrument does; masked pixels are not data.
            noise: Noise of the instrument; 0 is allowed where C stays invertible.
            y: The data; NaN marks missing ones.

        Raises:
            UserError: Shapes do not match, data are infinite, or C is singular.
        """
        _check_kinds(prior, operator, noise)
        operator = operator.bind(prior.shape)
        shape = operator.output_shape
        noise.check(shape)
        shown = np.asarray(operator.observed(to_device(np.ones(prior.shape, bool))))
        data = _read_data(y, shape, shown)
        observed = ~np.isnan(data)
        if not observed.any():
            # Level 4: equinox calls this from two frames of its own.
            warnings.warn("Nothing is observed: the posterior is the prior.", stacklevel=4)
        seen, values, error = observed.ravel(), np.nan_to_num(data).ravel(), prior.model_error
        factored = factor(operator, noise, error, seen, values)
        model_variance = factored.model_variance.reshape(shape)
        dominated = factored.dominated
        if error.most_data is not None:
            error = error.inflated(dominated)
            factored = factor(operator, noise, error, seen, values, factored.matrix)
        self.prior = prior
        self.model_error = error
        self.image_error = prior.model_error
        self.operator = operator
        self.noise = noise
        self.y = to_device(data, np.dtype(np.float32))
        self.model_variance = to_device(model_variance, np.dtype(np.float32))
        self.sight, factored = narrow(prior, operator, seen, factored)
        self.whitening = factored.whitening
        self.whitened_data = factored.whitened_data
        self.likelihood = make_signal_likelihood(
            prior, operator, noise, values, seen, dominated, self.sight
        )
        # -ln of the normalisations of N(y; ., C) and N(u; 0, I).
        data_part = -0.5 * (factored.log_det + int(observed.sum()) * _LOG_TWO_PI)
        if self.likelihood is not None:
            data_part = float(np.asarray(self.likelihood.log_normalisation))
        self.log_normalisation = to_device(
            data_part - 0.5 * prior.dim * _LOG_TWO_PI, np.dtype(np.float32)
        )

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
        if self.likelihood is None:
            return False
        powers = np.asarray(self.likelihood.powers)
        return bool(np.any((powers > 0) & (powers < 1)))

    def residual(self, u: Float[Array, " dim"]) -> Float[Array, " rows"]:
        """r(u) with log_density = constant - r.r / 2 - u.u / 2.

        C^(-1/2) (A g(u) - y), zero where nothing is observed, unless there is a `likelihood`. With
        a `sight` most data that do not exist are left out: its length is not that of y.
        """
        return self._gap(u) if self.likelihood is None else self.likelihood.residual(u)

    def chi_squared(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """(A g(u) - y)^T C^-1 (A g(u) - y).

        If C is that of the data, neither inflated nor with a gain, it follows chi-squared with as
        many degrees as observed data at the true u.
        """
        return jnp.sum(self._gap(u) ** 2)

    def log_density(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Ln p(y | u) + ln N(u; 0, I) over the observed data, all constants included.

        The likelihood is N(y; A g(u), C) unless there is another `likelihood`.
        """
        distance = jnp.sum(self.residual(u) ** 2)
        return self.log_normalisation - 0.5 * distance - 0.5 * jnp.sum(u**2)

    def simulate(self, key: Key[Array, ""]) -> Simulation:
        """Draws u from the prior, then x and y given u; y is missing where it is missing here.

        With a gain of the model error, x has the error of what the generator shows, which
        `log_density` knows only where each datum shows one pixel, and then without its correlation.
        """
        u_key, error_key, noise_key = jax.random.split(key, 3)
        u = jax.random.normal(u_key, (self.dim,))
        decoded, error = self.prior.generate(u), self.prior.model_error
        x = decoded + error.gain_at(decoded) * error.sample(error_key)
        y = self.operator.apply(x) + self.noise.sample(noise_key, self.y.shape)
        return Simulation(u, x, jnp.where(self.observed, y, jnp.nan))

    def conditional_images(
        self, key: Key[Array, ""], u: Float[Array, " dim"]
    ) -> Float[Array, "*shape"]:
        """Draws a clean image x from p(x | u, y), model error included.

        With n_m ~ N(0, S_model) and n ~ N(0, S_noise),
        x = g(u) + n_m + S_model A^T C^-1 [y - A (g(u) + n_m) - n], exact for any linear A. A gain
        of the model error multiplies n_m, and both sides of S_model, in C as well.
        """
        error_key, noise_key = jax.random.split(key)
        decoded, error = self.prior.generate(u), self.image_error
        gain = error.gain_at(decoded)
        x = decoded + gain * error.sample(error_key)
        return x + self._correction(x, self.noise.sample(noise_key, self.y.shape), gain)

    def _correction(
        self, x: Float[Array, "*shape"], noise: Float[Array, "*data"], gain: Float[Array, "*shape"]
    ) -> Float[Array, "*shape"]:
        """S A^T C^-1 [y - A x - noise] with the gain on both sides of S, and of S in C."""
        error = self.image_error
        if not isinstance(self.whitening, DenseWhitening):
            gap = jnp.where(self.observed, self.y - self.operator.apply(x) - noise, 0)
            noise_variance = jnp.where(self.observed, self.noise.std**2, jnp.inf)
            return pull_back(self.operator, noise_variance, error.scaled(gain), gap)
        image = jax.ShapeDtypeStruct(gain.shape, gain.dtype)
        transpose = jax.linear_transpose(self._forward, image)

        def scaled(x):
            return gain * error.apply(gain * x)

        def covariance(v):
            """In whitened data: I + F (T S T - S_u) F^T, T = diag(gain), F = W A.

            W whitens with S_u, the error that u is inferred with. The eigenvalues are of about the
            gain squared over the inflation of S_u, and 1: a dozen steps of conjugate gradients
            solve it.
            """
            (back,) = transpose(v)
            return v + self._forward(scaled(back) - self.model_error.apply(back))

        gap = -self._whitened_residual(x) - self.whitening.whiten(noise)
        if error.gain is not None or error.most_data is not None:
            gap, _ = jax.scipy.sparse.linalg.cg(covariance, gap, tol=_CG_ERROR, maxiter=_CG_STEPS)
        (back,) = transpose(gap)
        return scaled(back)

    def with_data(self, y: ArrayLike) -> "InverseProblem":
        """The same problem for other data, missing where they are missing here.

        C and its factors do not depend on y, so this is cheap, and can be traced and vmapped.
        """
        y = jnp.asarray(y, self.y.dtype)
        if y.shape != self.y.shape:
            raise UserError(f"y has shape {y.shape}, but this problem's data are {self.y.shape}.")
        if not isinstance(y, Tracer) and not jnp.all(jnp.isfinite(y) | ~self.observed):
            raise UserError(
                "y is NaN or infinite where this problem has data; make a new InverseProblem."
            )
        known = jnp.where(self.observed, y, 0.0)
        changed = eqx.tree_at(
            lambda problem: (problem.y, problem.whitened_data),
            self,
            (jnp.where(self.observed, y, jnp.nan), self.whitening.whiten(self._picked(known))),
        )
        if self.likelihood is None:
            return changed
        seen = jnp.ravel(known)[self.likelihood.sight.data]
        return eqx.tree_at(lambda problem: problem.likelihood.y, changed, seen)

    def explain(self) -> str:
        """Says what is observed, at what noise, and how much of the variance is model error."""
        observed = np.asarray(self.observed)
        count, total = int(observed.sum()), observed.size
        if not count:
            return f"None of the {total} data is observed, so the posterior is the prior."
        noise_variance = self.noise.variance(self.y.shape)[observed.ravel()]
        model_variance = np.asarray(self.model_variance, np.float64)[observed]
        share = model_variance.sum() / (model_variance.sum() + noise_variance.sum())
        values = np.asarray(self.y)[observed]
        return (
            f"An image of {_size(self.prior.shape)} pixels is {self._seen(count == total)}:"
            f" {count} of {total} data are observed, with values from {values.min():.3g} to"
            f" {values.max():.3g} and {_noise_in_words(self.noise, noise_variance)}. Given u, the"
            f" generator's error adds a standard deviation of"
            f" {np.sqrt(model_variance.mean()):.3g}, {share:.0%} of the variance. The unknown u"
            f" has {self.dim} dimensions."
        )

    # Compared by identity: `jax.jit(problem.log_density)` needs a hash, which arrays lack.
    def __hash__(self) -> int:
        return id(self)

    def _seen(self, whole: bool) -> str:
        operator = self.operator
        if isinstance(operator, Gain) and np.all(np.asarray(operator.gain) == 1):
            return "observed as a whole" if whole else "observed directly"
        return f"seen through {operator!r}"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return (
            f"InverseProblem({self.prior!r}, {self.operator!r}, {self.noise!r},"
            f" y of {_size(self.y.shape)})"
        )

    def _picked(self, y: Float[Array, "*data"]) -> Float[Array, " seen"]:
        """The data that the whitening takes."""
        return jnp.ravel(y) if self.sight is None else jnp.ravel(y)[self.sight.data]

    def _gap(self, u: Float[Array, " dim"]) -> Float[Array, " seen"]:
        """C^(-1/2) (A g(u) - y)."""
        if self.sight is None:
            return self._whitened_residual(self.prior.generate(u))
        return self.whitening.whiten(self.sight(u)) - self.whitened_data

    def _forward(self, x: Float[Array, "*shape"]) -> Float[Array, " data"]:
        return self.whitening.forward(self.operator, x)

    def _whitened_residual(self, x: Float[Array, "*shape"]) -> Float[Array, " data"]:
        return self._forward(x) - self.whitened_data


@bounded_jit
def observe(
    key: Key[Array, ""], operator: Operator, noise: GaussianNoise, x: Float[ArrayLike, "*shape"]
) -> Float[Array, "*data"]:
    """What an instrument makes of a clean image: A x + n."""
    return operator.apply(jnp.asarray(x)) + noise.sample(key, operator.output_shape)


def _check_kinds(prior: object, operator: object, noise: object) -> None:
    for name, value, kind in (
        ("prior", prior, GenerativePrior),
        ("operator", operator, Operator),
        ("noise", noise, GaussianNoise),
    ):
        if not isinstance(value, kind):
            raise UserError(f"The {name} must be of type {kind.__name__}, not {value!r}.")


def _read_data(
    y: ArrayLike, shape: tuple[int, ...], shown: Bool[np.ndarray, "*data"]
) -> Float[np.ndarray, "*data"]:
    """The data in float64, NaN where the operator or the user says that nothing was seen."""
    data = read_real(y, "y")
    if data.shape != shape:
        raise UserError(f"y has shape {data.shape}, but the operator makes data of shape {shape}.")
    data[~shown] = np.nan
    if np.isinf(data).any():
        where = tuple(int(index) for index in np.argwhere(np.isinf(data))[0])
        raise UserError(f"y is infinite at {where}; mark missing data by NaN.")
    return data


def _noise_in_words(noise: GaussianNoise, variance: Float[np.ndarray, " observed"]) -> str:
    low, high = np.sqrt([variance.min(), variance.max()])
    if high == 0:
        return "no noise"
    kind = "independent" if noise.factor is None else "correlated"
    level = f"{low:.3g} to {high:.3g}" if high > 1.0001 * low else f"{low:.3g}"
    return f"{kind} noise of standard deviation {level}"


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
