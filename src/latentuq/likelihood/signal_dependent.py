"""The likelihood of an error that grows and shrinks with what the generator shows."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from latentuq.core.arrays import to_device
from latentuq.forward import Operator
from latentuq.likelihood.noise import GaussianNoise
from latentuq.likelihood.sight import Sight, see_all
from latentuq.prior import GenerativePrior, ModelError

# Standard deviation of a black pixel: a stray inked one must not decide on its own. Chosen with
# `most_data`; 0.03 to 0.08 score alike.
_FLOOR = 0.05
# The gain squared is a polynomial of the intensity, so that the density has derivatives, and kept
# above zero by so much.
_DEGREE = 7
_ROUNDING = 0.03
# The least variance, relative to that of a black pixel, which ln v is counted from: away from its
# root's infinite slope.
_BELOW = 0.9
_LOG_TWO_PI = float(np.log(2 * np.pi))


class SignalLikelihood(eqx.Module):
    """ln p(y | u) = sum_i w_i ln N(y_i; a_i g_i(u), v_i(u)) of data that show one pixel each.

    v = noise^2 + a^2 (gain(g)^2 std^2 + floor^2). Errors of neighbours are alike; they are taken
    for independent ones here, and n data that the model error dominates count as
    n / (1 + n / most_data) instead, by the powers w = (noise^2 + s^2) / (noise^2 + (1 + n /
    most_data) s^2) with s^2 = a^2 std^2. A larger v in the place of the power would weigh the
    squares less, but not ln v, and the generator would rather show nothing at all.

    Attributes:
        sight: Predicts the data.
        y: The data.
        noise: Variance of their noise.
        signal: a^2 std^2.
        floor: a^2 floor^2.
        powers: w; zero for padding and for data that do not exist.
        gain: Chebyshev coefficients of the gain squared.
        log_normalisation: The constant: ln p(y | u) = log_normalisation - r.r / 2.
    """

    sight: Sight
    y: Float[Array, " seen"]
    noise: Float[Array, " seen"]
    signal: Float[Array, " seen"]
    floor: Float[Array, " seen"]
    powers: Float[Array, " seen"]
    gain: Float[Array, " coefficients"]
    log_normalisation: Float[Array, ""]

    def residual(self, u: Float[Array, " dim"]) -> Float[Array, " twice_seen"]:
        """Whitened gaps, then roots of ln v."""
        shown = self.sight.shown(u)
        variance = self.noise + self.floor + self.signal * self._squared_gain(shown)
        excess = jnp.log(variance / (_BELOW * (self.noise + self.floor)))
        gap = self.sight.factors * shown - self.y
        roots = jnp.sqrt(self.powers)
        return jnp.concatenate([roots * gap / jnp.sqrt(variance), roots * jnp.sqrt(excess)])

    def _squared_gain(self, shown: Float[Array, " seen"]) -> Float[Array, " seen"]:
        x = 2 * jnp.clip(shown, 0, 1) - 1
        after = later = jnp.zeros_like(x)
        for coefficient in self.gain[:0:-1]:  # Clenshaw's recurrence.
            after, later = 2 * x * after - later + coefficient, after
        value = x * after - later + self.gain[0]
        return 0.5 * (value + jnp.sqrt(value**2 + _ROUNDING**2))


def make_signal_likelihood(
    prior: GenerativePrior,
    operator: Operator,
    noise: GaussianNoise,
    y: Float[np.ndarray, " data"],
    observed: Bool[np.ndarray, " data"],
    dominated: float,
    sight: Sight | None,
) -> SignalLikelihood | None:
    """None where the model error has no gain, data mix pixels, or noise is correlated.

    Args:
        prior: Where g and the model error come from.
        operator: A, bound.
        noise: S_noise.
        y: The flattened data, with zeros where nothing is observed.
        observed: Which of them exist.
        dominated: How many of them the model error dominates.
        sight: Of the observed data, if it saves anything.
    """
    error = prior.model_error
    if error.gain is None or noise.factor is not None or not observed.any():
        return None
    sight = see_all(prior, operator, observed.size) if sight is None else sight
    if sight is None:
        return None
    data, seen = np.asarray(sight.data), int(observed.sum())
    # A narrowed sight lists the observed data first, and then padding.
    counts = observed[data] & (np.arange(len(data)) < (seen if sight.pixels is None else len(data)))
    shown = operator.pixels_of(data)
    assert shown is not None
    pixels, factors = shown
    signal = (factors * np.asarray(error.std, np.float64).ravel()[pixels]) ** 2
    floor = (factors * _FLOOR) ** 2
    # What does not count may have neither noise nor a factor, but a variance.
    noise_variance = np.where(counts, noise.variance(operator.output_shape)[data], 1.0)
    inflation = 1.0 if error.most_data is None else 1 + dominated / error.most_data
    powers = counts * (noise_variance + signal) / (noise_variance + inflation * signal)
    least = np.log(_BELOW * (noise_variance + floor))
    constant = -0.5 * np.sum(powers * (_LOG_TWO_PI + least))
    numbers = (y[data], noise_variance, signal, floor, powers, fit_squared_gain(error), constant)
    return SignalLikelihood(sight, *(to_device(each, np.dtype(np.float32)) for each in numbers))


def fit_squared_gain(error: ModelError) -> Float[np.ndarray, " coefficients"]:
    """Chebyshev coefficients on [0, 1] of a polynomial through the squared gain."""
    squares = np.asarray(error.gain, np.float64) ** 2
    degree = min(_DEGREE, len(squares) - 1)
    knots = np.linspace(0, 1, len(squares))
    return np.polynomial.chebyshev.Chebyshev.fit(knots, squares, degree, domain=[0, 1]).coef
