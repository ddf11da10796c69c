"""S_model from the residuals of held-out images: scalar, per-pixel, low rank, with a gain."""

from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentuq.prior.model_error import LOW_RANK, SIGNAL_DEPENDENT, ModelError

_SWEEPS = 30
_KNOTS = 33
# Pixels that a gain of 1 counts for at every knot.
_PSEUDO_PIXELS = 100
_NORMAL_90 = 1.645
_LEAST_WIDTH = 0.05
_WIDTH_SHARE = 0.9


class ModelErrors(NamedTuple):
    """Every estimate by name, its mean log-likelihood on further images, and the best name."""

    estimates: dict[str, ModelError]
    log_likelihoods: dict[str, float]
    default: str


def estimate_model_errors(
    residuals: np.ndarray, further: np.ndarray, floor: float, rank: int
) -> ModelErrors:
    """Estimates S_model from residuals x - decode(z), z sampled, and compares on further ones.

    The floor keeps pixels that are always black from claiming certainty; it is given, because
    likelihood would drive it to zero.
    """
    shape = residuals.shape[1:]
    rows = residuals.reshape(len(residuals), -1).astype(np.float64)
    tests = further.reshape(len(further), -1).astype(np.float64)
    pixels = rows.shape[1]
    per_pixel = np.maximum(np.mean(rows**2, axis=0), floor**2)
    scalar = np.full(pixels, max(np.mean(rows**2), floor**2))
    no_factors = np.zeros((0, pixels))
    rank = min(rank, pixels - 1, len(rows) - 1)
    solutions = {
        "scalar": (scalar, no_factors),
        "per-pixel": (per_pixel, no_factors),
        LOW_RANK: _factor_analysis(rows, per_pixel, floor, rank),
    }
    scores = {name: mean_log_prob(tests, *parts) for name, parts in solutions.items()}
    estimates = {
        name: ModelError(
            jnp.asarray(variance.reshape(shape), jnp.float32),
            jnp.asarray(factors.reshape(-1, *shape), jnp.float32),
        )
        for name, (variance, factors) in solutions.items()
    }
    return ModelErrors(estimates, scores, max(scores, key=lambda name: scores[name]))


def with_signal_dependence(
    errors: ModelErrors, residuals: np.ndarray, decoded: np.ndarray, most_data: float
) -> ModelErrors:
    """Adds the signal-dependent estimate, and makes it the default where low rank was.

    Likelihood has no part in the choice: the calibration study has.
    """
    low_rank = errors.estimates[LOW_RANK]
    gain = jnp.asarray(estimate_gain(low_rank, residuals, decoded), jnp.float32)
    error = ModelError(low_rank.variance, low_rank.factors, gain, most_data)
    default = SIGNAL_DEPENDENT if errors.default == LOW_RANK else errors.default
    return errors._replace(estimates=errors.estimates | {SIGNAL_DEPENDENT: error}, default=default)


def estimate_gain(
    error: ModelError, residuals: np.ndarray, decoded: np.ndarray
) -> Float[np.ndarray, " knots"]:
    """Size of the residuals relative to S_model's, by what the generator shows.

    Residuals are not normal: near black most vanish and a few are strokes that the generator lacks.
    A normal error cannot have both their root mean square and their 90 % interval; the gain is a
    geometric mean of what the two ask for, mostly of the interval: that scores better (CRPS)
    on few or blurred pixels, and hardly worse on half an image.

    Args:
        error: The estimate that the gain is relative to.
        residuals: The residuals x - decode(z).
        decoded: The generated images decode(z).
    """
    place = np.rint(np.clip(decoded, 0, 1) * (_KNOTS - 1)).astype(int).ravel()
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(_KNOTS + 1))
    std = np.asarray(error.std, np.float64)
    expected = np.broadcast_to(std**2, residuals.shape).ravel()[order]
    found = residuals.ravel().astype(np.float64)[order] ** 2
    log_gain = np.zeros(_KNOTS)
    for knot, (first, last) in enumerate(pairwise(bounds)):
        if first == last:
            continue
        rms = np.sqrt(np.sum(found[first:last]) / np.sum(expected[first:last]))
        width = np.sqrt(np.quantile(found[first:last] / expected[first:last], 0.9)) / _NORMAL_90
        logs = np.log(np.maximum([width, rms], _LEAST_WIDTH))
        certainty = (last - first) / (last - first + _PSEUDO_PIXELS)
        log_gain[knot] = certainty * np.dot([_WIDTH_SHARE, 1 - _WIDTH_SHARE], logs)
    return np.exp(log_gain)


def mean_log_prob(rows: np.ndarray, variance: np.ndarray, factors: np.ndarray) -> float:
    """Mean of ln N(row; 0, diag(variance) + factors^T factors), by Woodbury."""
    scaled = factors / np.sqrt(variance)
    inner = np.eye(len(factors)) + scaled @ scaled.T
    whitened = rows / np.sqrt(variance)
    projected = np.linalg.solve(np.linalg.cholesky(inner), scaled @ whitened.T)
    squares = np.sum(whitened**2, axis=1) - np.sum(projected**2, axis=0)
    log_det = np.sum(np.log(variance)) + np.linalg.slogdet(inner)[1]
    return float(np.mean(-0.5 * (squares + log_det + rows.shape[1] * np.log(2 * np.pi))))


def _factor_analysis(
    rows: np.ndarray, per_pixel: np.ndarray, floor: float, rank: int
) -> tuple[np.ndarray, np.ndarray]:
    """Maximum-likelihood diagonal plus rank r, by alternating the two parts.

    Given the diagonal D, the best factors are D^(1/2) V (L - 1)^(1/2) with V, L the leading
    eigenpairs of D^(-1/2) S D^(-1/2); given those, D takes what they leave of each pixel's
    variance, never less than the floor.
    """
    n = len(rows)
    diagonal, factors = per_pixel, np.zeros((rank, rows.shape[1]))
    for _ in range(_SWEEPS):
        root = np.sqrt(diagonal)
        values, vectors = _leading_eigenpairs(rows / root / np.sqrt(n), rank)
        factors = np.sqrt(np.maximum(values - 1.0, 0.0))[:, None] * vectors * root
        diagonal = np.maximum(np.mean(rows**2, axis=0) - np.sum(factors**2, axis=0), floor**2)
    return diagonal, factors


def _leading_eigenpairs(scaled: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Largest eigenvalues and (row) eigenvectors of scaled^T scaled."""
    from scipy.linalg import eigh
    from scipy.sparse.linalg import svds

    pixels = scaled.shape[1]
    if pixels <= 1500:
        values, vectors = eigh(scaled.T @ scaled, subset_by_index=(pixels - rank, pixels - 1))
        return values, vectors.T
    start = np.ones(min(scaled.shape))
    _, singular, vectors = svds(scaled, k=rank, v0=start)
    return np.asarray(singular) ** 2, np.asarray(vectors)
