"""Do the data look like anything that the model makes? What is measured, without any limit."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy.ndimage import maximum_filter
from scipy.special import gammaincc

from latentuq.core.batches import in_chunks
from latentuq.core.compilation import bounded_jit
from latentuq.inference.importance import systematic_index
from latentuq.inference.result import Inference
from latentuq.inference.target import BATCH
from latentuq.posterior.likeness import Bank, Likeness, Usual
from latentuq.problem.inverse import InverseProblem, LatentDensity

# The number of draws that a p-value rests on, that of draws whose data are predicted, that of
# images of the prior for comparison, that of those among them which stand for data, and the smaller
# size of a batch.
_COUNTED = 2048
_PREDICTED = 256
_BANK = 1024
_TRIED = 64
_FEW = 64
# The standard errors of the noise by which something must stand out to be seen.
_ERRORS = 2.0
# The median of |z| for a standard normal z.
_MEDIAN = 0.6745


class Prominences(NamedTuple):
    """How far single data stand out above, or below, all their neighbours.

    Attributes:
        data: How far each datum does.
        noise: The standard deviation of each datum's noise.
        images: How far any datum does in images of the prior, without noise.
    """

    data: Float[np.ndarray, " data"]
    noise: Float[np.ndarray, " data"]
    images: float


class Fit(NamedTuple):
    """How the data compare with what the model predicts of them.

    Attributes:
        p_value: The chance that the model makes data and u that fit it worse, see
            `predictive_p_value`.
        unexplained: The share of the picture's variance, beyond that of the noise, that draws of
            the posterior leave over; two standard errors of the noise are taken off.
        usual_unexplained: The same share for images of the prior: that of the generator's error.
        brightest: The largest variance that the picture may have, over the smallest one of images
            of the prior; infinite if some of these show nothing.
        scatter: The variance of the data over that of the noise.
        noise_ratio: The spread of most gaps between data and prediction over what it should be.
        noise_level: The standard deviation of noise that would make the gaps as wide as they are.
        neighbours: The correlation of the gaps of neighbouring data; zero for white noise.
        surprises: How many standard deviations each datum is from its prediction.
        prominences: How far each datum stands out from its neighbours.
        places: The place of each of these data in the flattened data.
        likeness: The picture beside those of the prior; None if it does not stand out of the noise.
        usual: The same for images of the prior.
    """

    p_value: float
    unexplained: float
    usual_unexplained: float
    brightest: float
    scatter: float
    noise_ratio: float
    noise_level: float
    neighbours: float
    surprises: Float[np.ndarray, " data"]
    prominences: Prominences
    places: Int[np.ndarray, " data"]
    likeness: Likeness | None
    usual: Usual


def measure_fit(inference: Inference, problem: InverseProblem) -> Fit | None:
    """Compares the data with predictions by draws of the posterior and of the prior.

    Under the model a draw u of the posterior and the data are a draw of p(u) p(y | u): the gaps
    y - A g(u) have the variance of noise and model error. There is nothing to compare without data,
    or if no draw has any weight.
    """
    log_weights = np.asarray(inference.draws.log_weights, np.float64)
    if not np.any(log_weights > -np.inf) or not np.any(problem.observed):
        return None
    # Draws as often as their weights say; the same answer to the same posterior.
    generator = np.random.default_rng(0)
    chosen = systematic_index(generator, log_weights, _PREDICTED)
    bank = generator.standard_normal((_BANK, problem.dim))
    predicted, variance = _predict(problem, np.asarray(inference.draws.draws)[chosen])
    data = problem.likelihood.data
    counted, units = np.asarray(data.counted), _units(problem)
    y = np.asarray(data.y, np.float64)[counted] * units
    noise = data.noise.variance(counted.shape)[counted] * units**2
    model = np.asarray(problem.likelihood.model_variance, np.float64)[counted] * units**2
    # Noisier data count less; where the noise is the same everywhere, all count alike.
    weights = 1 / (noise + np.mean(model))
    flat = np.asarray(data.predict(jnp.ones(problem.prior.shape)), np.float64)[counted] * units
    places = np.flatnonzero(counted)
    shown, _ = _predict(problem, bank)
    images = Bank(shown, flat, np.sqrt(weights))
    expected, error = np.sum(weights * noise), np.sqrt(2 * np.sum((weights * noise) ** 2))
    total = np.sum(images.centre(y) ** 2)
    signal = total - expected
    gaps = y - predicted
    left = np.mean(np.sum(weights * gaps**2, axis=1)) - expected
    left_error = np.hypot(error, 2 * np.sqrt(np.max(weights * noise) * max(left, 0)))
    model_part = np.sum(weights * model)
    variances = np.mean(variance, axis=0)
    ratio = np.median(np.abs(gaps) / np.sqrt(variance)) / _MEDIAN
    surprises = np.abs(np.mean(gaps, axis=0)) / np.sqrt(variances + np.var(gaps, axis=0))
    return Fit(
        p_value=_p_value(inference, problem),
        unexplained=float((left - _ERRORS * left_error) / max(signal, error, images.faintest)),
        usual_unexplained=float(model_part / (images.signal + model_part)),
        brightest=float(max(signal + _ERRORS * error, 0) / images.least)
        if images.least
        else np.inf,
        scatter=float(total / expected) if expected > 0 else np.inf,
        noise_ratio=float(ratio),
        noise_level=_common_unit(problem)
        * float(np.sqrt(np.median(noise + max(ratio**2 - 1, 0) * variances))),
        neighbours=_correlate(np.mean(gaps, axis=0), places, problem.y.shape),
        surprises=surprises,
        prominences=Prominences(
            _prominence(y[None], places, problem.y.shape)[0],
            np.sqrt(noise),
            float(np.max(_prominence(shown[:_PREDICTED], places, problem.y.shape))),
        ),
        places=places,
        likeness=images.compare(y, signal) if signal > _ERRORS * error else None,
        usual=images.usual(noise, _errors(problem, bank[:_TRIED])),
    )


def _correlate(
    gaps: Float[np.ndarray, " data"], places: Int[np.ndarray, " data"], shape: tuple[int, ...]
) -> float:
    """The correlation of gaps at places that lie side by side along any axis."""
    whole = np.full(np.prod(shape, dtype=int), np.nan)
    whole[places] = gaps
    whole = whole.reshape(shape)
    products = [
        np.ravel(np.take(whole, range(1, length), axis) * np.take(whole, range(length - 1), axis))
        for axis, length in enumerate(shape)
    ]
    joint = np.concatenate([*products, np.zeros(0)])
    joint = joint[np.isfinite(joint)]
    return float(np.mean(joint) / np.mean(gaps**2)) if len(joint) else 0.0


def _prominence(
    values: Float[np.ndarray, "n data"], places: Int[np.ndarray, " data"], shape: tuple[int, ...]
) -> Float[np.ndarray, "n data"]:
    """How far each datum stands out above, or below, all its neighbours, diagonals included.

    It is zero if it does not, or if a neighbour is missing.
    """
    beside = np.ones((1, *(3 for _ in shape)), bool)
    beside[(0, *(1 for _ in shape))] = False
    found = np.zeros(values.shape)
    for signed in (values, -values):
        whole = np.full((len(values), np.prod(shape, dtype=int)), np.inf)
        whole[:, places] = signed
        # At the edges neighbours count twice, a datum never as its own.
        largest = maximum_filter(whole.reshape(-1, *shape), footprint=beside, mode="mirror")
        found = np.maximum(found, signed - largest.reshape(whole.shape)[:, places])
    return found


def _p_value(inference: Inference, problem: InverseProblem) -> float:
    """Averages the chance that replicates have a larger chi^2 + u.u than data and draw.

    If N(y; A g(u), C) made the data, (u, y) is a draw of it, and the sum follows chi-squared with
    as many degrees as there are data and dimensions. A bad fit shows in the chi-squared of the
    data; data that can be fitted, but only by something that the prior calls impossible, in u.u. An
    inflated model error makes the sum smaller than that, and alarms rarer.
    """
    degrees = np.count_nonzero(problem.observed) + problem.dim
    log_weights = np.asarray(inference.draws.log_weights, np.float64)
    chosen = systematic_index(np.random.default_rng(0), log_weights, _COUNTED)
    chosen, times = np.unique(chosen, return_counts=True)
    points = np.asarray(inference.draws.draws)[chosen]
    chi_squared = measure_chi_squared(problem, points)
    distances = chi_squared + np.sum(points.astype(np.float64) ** 2, axis=1)
    chances = gammaincc(degrees / 2, np.maximum(distances, 0) / 2)
    return float(np.average(chances, weights=times))


def measure_chi_squared(
    problem: InverseProblem, points: Float[np.ndarray, "n dim"]
) -> Float[np.ndarray, " n"]:
    """Measures (A g(u) - y)^T C^-1 (A g(u) - y) at many points."""
    # One of two sizes, so that little compiles.
    size = _FEW if len(points) <= _FEW else BATCH
    return in_chunks(partial(_chi_squared, problem.density), size, points).astype(np.float64)


@bounded_jit
def _chi_squared(density: LatentDensity, points: Float[Array, "n dim"]) -> Float[Array, " n"]:
    return jax.vmap(density.chi_squared)(points)


def _predict(
    problem: InverseProblem, points: Float[np.ndarray, "n dim"]
) -> tuple[Float[np.ndarray, "n data"], Float[np.ndarray, "n data"]]:
    """Predicts the data that exist at many points, and the variance of each given its point."""
    counted, units = np.asarray(problem.likelihood.data.counted), _units(problem)
    points = np.asarray(points, problem.y.dtype)
    found = in_chunks(partial(_predictions, problem.density), _FEW, points)
    predicted, variance = (each[:, counted].astype(np.float64) for each in found)
    return predicted * units, variance * units**2


def _errors(
    problem: InverseProblem, points: Float[np.ndarray, "n dim"]
) -> Float[np.ndarray, "n data"]:
    """Draws what the generator's error adds to the data at many points."""
    counted, units = np.asarray(problem.likelihood.data.counted), _units(problem)
    keys = jax.random.split(jax.random.key(1), len(points))
    points = np.asarray(points, problem.y.dtype)
    drawn = in_chunks(partial(_draw_errors, problem.density), _FEW, points, keys)
    return drawn[:, counted].astype(np.float64) * units


def _units(problem: InverseProblem) -> Float[np.ndarray, " data"]:
    """The unit of each datum that exists over the common one: neighbours must be comparable."""
    data = problem.likelihood.data
    units = np.asarray(data.units, np.float64)[np.asarray(data.counted)]
    return units / _common_unit(problem)


def _common_unit(problem: InverseProblem) -> float:
    data = problem.likelihood.data
    return float(np.median(np.asarray(data.units, np.float64)[np.asarray(data.counted)]))


@bounded_jit
def _predictions(
    density: LatentDensity, points: Float[Array, "n dim"]
) -> tuple[Float[Array, "n rows"], Float[Array, "n rows"]]:
    def predict(u):
        image = density.prior.generate(u)
        return density.likelihood.data.predict(image), density.likelihood.variance(image)

    return jax.vmap(predict)(points)


@bounded_jit
def _draw_errors(
    density: LatentDensity, points: Float[Array, "n dim"], keys: Key[Array, " n"]
) -> Float[Array, "n rows"]:
    def draw(u, key):
        error = density.prior.model_error
        gain = error.gain_at(density.prior.generate(u))
        return density.likelihood.data.predict(gain * error.sample(key))

    return jax.vmap(draw)(points, keys)
