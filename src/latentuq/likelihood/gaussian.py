"""The Gaussian likelihood N(y; A g, C) with C = S_noise + A S_model A^T."""

from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float, Key

from latentuq.core.arrays import to_float32
from latentuq.core.modules import with_fields
from latentuq.likelihood.data import ObservedData
from latentuq.likelihood.likelihood import Likelihood
from latentuq.likelihood.whitening import DenseWhitening, Whitening, factor
from latentuq.prior.model_error import ModelError

LOG_TWO_PI = float(np.log(2 * np.pi))

# Relative to the whitened gap in the data; what is left in an image is a hundredth of its spread.
_CG_ERROR = 1e-3
_CG_STEPS = 200


class GaussianLikelihood(Likelihood):
    """ln p(y | g) = ln N(y; A g, C), with C factored once, in float64, when the problem is made.

    Attributes:
        data: The data.
        error: S_model as C contains it, see `ModelError.inflated`.
        image_error: S_model as clean images are drawn with.
        whitening: W with W^T W = C^-1.
        whitened_data: W y.
        log_normalisation: The constant: ln p(y | g) = log_normalisation - r.r / 2.
        model_variance: The diagonal of A S_model A^T, before any inflation.
        log_units: The sum of ln unit over the data that count.
        dominated: How many data the model error dominates: tr C^-1 A S_model A^T.
    """

    data: ObservedData
    error: ModelError
    image_error: ModelError
    whitening: Whitening
    whitened_data: Float[Array, " rows"]
    log_normalisation: Float[Array, ""]
    model_variance: Float[Array, " rows"]
    log_units: Float[Array, ""]
    dominated: Float[Array, ""]

    def __init__(self, data: ObservedData, model_error: ModelError):
        """Factors C.

        Raises:
            UserError: C is singular to working precision.
        """
        used = factor(data, model_error)
        dominated, model_variance = used.dominated, used.model_variance
        error = model_error.inflated(dominated)
        if error is not model_error:
            del used  # Its matrices may be large.
            used = factor(data, error)
        counted = np.asarray(data.counted)
        constant = -0.5 * (used.log_det + np.count_nonzero(counted) * LOG_TWO_PI)
        log_units = np.sum(np.log(np.asarray(data.units, np.float64)[counted]))
        self.data, self.error, self.image_error = data, error, model_error
        self.whitening, self.whitened_data = used.whitening, used.whitened_data
        self.log_normalisation = to_float32(constant)
        self.model_variance = to_float32(model_variance)
        self.log_units = to_float32(log_units)
        self.dominated = to_float32(dominated)

    def residual(self, image: Float[Array, "*shape"]) -> Float[Array, " rows"]:
        return self._whitened_gap(image)

    def log_prob(self, image: Float[Array, "*shape"]) -> Float[Array, ""]:
        return self.log_normalisation - 0.5 * jnp.sum(self.residual(image) ** 2)

    def misfit(self, image: Float[Array, "*shape"]) -> Float[Array, ""]:
        """Computes (A g - y)^T C^-1 (A g - y).

        If C is that of the data, neither inflated nor with a gain, this follows chi-squared with
        as many degrees as there are data.
        """
        return jnp.sum(self._whitened_gap(image) ** 2)

    def variance(self, image: Float[Array, "*shape"]) -> Float[Array, " rows"]:
        """The diagonal of C before any inflation, the same for every image."""
        return self.data.noise.std**2 + self.model_variance

    @property
    def downweighted(self) -> bool:
        return False

    def simulate(
        self, error_key: Key[Array, ""], noise_key: Key[Array, ""], image: Float[Array, "*shape"]
    ) -> tuple[Float[Array, "*shape"], Float[Array, " rows"]]:
        error = self.image_error
        x = image + error.gain_at(image) * error.sample(error_key)
        rows = self.data.predict(x) + self.data.noise.sample(noise_key, self.data.y.shape)
        return x, rows * self.data.units

    def sample_image(
        self, key: Key[Array, ""], image: Float[Array, "*shape"]
    ) -> Float[Array, "*shape"]:
        """Draws x from p(x | g, y), exactly for any linear A.

        With n_m ~ N(0, S_model) and n ~ N(0, S_noise),
        x = g + n_m + S_model A^T C^-1 [y - A (g + n_m) - n]. A gain of the model error multiplies
        n_m, and both sides of S_model, in C as well.
        """
        error_key, noise_key = jax.random.split(key)
        gain = self.image_error.gain_at(image)
        x = image + gain * self.image_error.sample(error_key)
        return x + self.correction(x, self.data.noise.sample(noise_key, self.data.y.shape), gain)

    def correction(
        self, x: Float[Array, "*shape"], noise: Float[Array, " rows"], gain: Float[Array, "*shape"]
    ) -> Float[Array, "*shape"]:
        """Computes S A^T C^-1 [y - A x - noise], the gain on both sides of S, and of S in C."""
        if isinstance(self.whitening, DenseWhitening):
            return self._dense_correction(x, noise, gain)
        gap = jnp.where(self.data.counted, self.data.y - self.data.predict(x) - noise, 0)
        return _pull_back(self.data, self.image_error.scaled(gain), gap)

    def _dense_correction(
        self, x: Float[Array, "*shape"], noise: Float[Array, " rows"], gain: Float[Array, "*shape"]
    ) -> Float[Array, "*shape"]:
        error = self.image_error
        transpose = jax.linear_transpose(self._whitened, jax.ShapeDtypeStruct(x.shape, x.dtype))

        def scaled(x):
            return gain * error.apply(gain * x)

        def covariance(v):
            """Computes I + F (T S T - S_u) F^T, T = diag(gain), F = W A, in whitened data.

            W whitens with S_u, the error that u is inferred with. The eigenvalues are of about the
            gain squared over the inflation of S_u, and 1: a dozen steps of conjugate gradients
            solve it.
            """
            (back,) = transpose(v)
            return v + self._whitened(scaled(back) - self.error.apply(back))

        gap = -self._whitened_gap(x) - self.whitening.whiten(noise)
        if error.gain is not None or error.most_data is not None:
            gap, _ = jax.scipy.sparse.linalg.cg(covariance, gap, tol=_CG_ERROR, maxiter=_CG_STEPS)
        (back,) = transpose(gap)
        return scaled(back)

    def with_data(self, y: Float[Array, " rows"]) -> Self:
        data = self.data.with_values(y)
        return with_fields(self, data=data, whitened_data=self.whitening.whiten(data.y))

    def _whitened(self, x: Float[Array, "*shape"]) -> Float[Array, " rows"]:
        return self.whitening.forward(self.data, x)

    def _whitened_gap(self, image: Float[Array, "*shape"]) -> Float[Array, " rows"]:
        return self._whitened(image) - self.whitened_data


def _pull_back(
    data: ObservedData, error: ModelError, gap: Float[Array, " rows"]
) -> Float[Array, "*shape"]:
    """Computes S_model A^T C^-1 gap for a disjoint A and independent noise, by Woodbury's identity.

    Nothing is factored beforehand, so S_model may differ from call to call, under jit and vmap.

    Args:
        data: Where A and S_noise come from.
        error: S_model = D + F^T F, with its factors as rows.
        gap: Differences in the data, zero where nothing is observed.
    """
    noise_variance = jnp.where(data.counted, data.noise.std**2, jnp.inf)
    # Each column of A has one entry at most: A D A^T is diagonal, and A^T 1 reads the entries off.
    entries = data.pull_back(jnp.ones_like(gap))
    precision = 1 / (noise_variance + data.predict(entries * error.variance))
    rows = jax.vmap(data.predict)(error.factors)
    common = jnp.zeros(0, gap.dtype)
    if error.rank:
        inner = jnp.eye(error.rank, dtype=gap.dtype) + (rows * precision) @ rows.T
        common = cho_solve(cho_factor(inner), rows @ (precision * gap))
    own = data.pull_back(precision * (gap - common @ rows))
    return error.variance * own + jnp.tensordot(common, error.factors, 1)
