"""The likelihood of an error that grows and shrinks with what the generator shows."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from latentuq.core.arrays import to_float32
from latentuq.forward.gain import Gain
from latentuq.likelihood.data import ObservedData
from latentuq.likelihood.gaussian import LOG_TWO_PI, GaussianLikelihood
from latentuq.prior.model_error import ModelError

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


class SignalDependentLikelihood(GaussianLikelihood):
    """ln p(y | g) = sum_i w_i ln N(y_i; a_i g_i, v_i(g)), where each datum shows one pixel.

    v = noise^2 + a^2 (gain(g)^2 std^2 + floor^2). Errors of neighbours are alike; they are taken
    for independent ones here, and n data that the model error dominates count as
    n / (1 + n / most_data) instead, by the powers w = (noise^2 + s^2) / (noise^2 + (1 + n /
    most_data) s^2) with s^2 = a^2 std^2. A larger v in the place of the power would weigh the
    squares less, but not ln v, and the generator would rather show nothing at all.

    Data are simulated, clean images are drawn, and the misfit is measured as a Gaussian likelihood
    does it: there the correlation of the errors counts.

    Attributes:
        noise: The variance of the noise of every row.
        signal: a^2 std^2.
        floor: a^2 floor^2.
        powers: w; zero for data that do not exist.
        gain: Chebyshev coefficients of the gain squared.
    """

    noise: Float[Array, " rows"]
    signal: Float[Array, " rows"]
    floor: Float[Array, " rows"]
    powers: Float[Array, " rows"]
    gain: Float[Array, " coefficients"]

    def __init__(self, data: ObservedData, error: ModelError):
        """Takes data that show one pixel each, of which some exist, and an error with a gain."""
        super().__init__(data, error)
        assert isinstance(data.forward, Gain)
        factors = np.ravel(data.forward.pixel_factors())
        counted = np.asarray(data.counted)
        signal = (factors * np.asarray(error.std, np.float64).ravel()) ** 2
        floor = (factors * _FLOOR) ** 2
        # What does not count may have neither noise nor a factor, but it needs a variance.
        noise = np.where(counted, data.noise.variance(counted.shape), 1.0)
        inflation = 1.0 if error.most_data is None else 1 + float(self.dominated) / error.most_data
        powers = counted * (noise + signal) / (noise + inflation * signal)
        least = np.log(_BELOW * (noise + floor))
        constant = -0.5 * np.sum(powers * (LOG_TWO_PI + least))
        numbers = (noise, signal, floor, powers, fit_squared_gain(error), constant)
        self.noise, self.signal, self.floor, self.powers, self.gain, self.log_normalisation = (
            to_float32(each) for each in numbers
        )
        log_units = np.sum(powers * np.log(np.asarray(data.units, np.float64)))
        self.log_units = to_float32(log_units)

    def residual(self, image: Float[Array, "*shape"]) -> Float[Array, " twice_rows"]:
        """Whitened gaps, then roots of ln v."""
        variance = self.variance(image)
        excess = jnp.log(variance / (_BELOW * (self.noise + self.floor)))
        gap = self.data.predict(image) - self.data.y
        roots = jnp.sqrt(self.powers)
        return jnp.concatenate([roots * gap / jnp.sqrt(variance), roots * jnp.sqrt(excess)])

    def variance(self, image: Float[Array, "*shape"]) -> Float[Array, " rows"]:
        return self.noise + self.floor + self.signal * self._squared_gain(jnp.ravel(image))

    @property
    def downweighted(self) -> bool:
        powers = np.asarray(self.powers)
        return bool(np.any((powers > 0) & (powers < 1)))

    def _squared_gain(self, shown: Float[Array, " rows"]) -> Float[Array, " rows"]:
        x = 2 * jnp.clip(shown, 0, 1) - 1
        after = later = jnp.zeros_like(x)
        for coefficient in self.gain[:0:-1]:  # Clenshaw's recurrence.
            after, later = 2 * x * after - later + coefficient, after
        value = x * after - later + self.gain[0]
        return 0.5 * (value + jnp.sqrt(value**2 + _ROUNDING**2))


def fit_squared_gain(error: ModelError) -> Float[np.ndarray, " coefficients"]:
    """Chebyshev coefficients on [0, 1] of a polynomial through the squared gain."""
    squares = np.asarray(error.gain, np.float64) ** 2
    degree = min(_DEGREE, len(squares) - 1)
    knots = np.linspace(0, 1, len(squares))
    return np.polynomial.chebyshev.Chebyshev.fit(knots, squares, degree, domain=[0, 1]).coef
