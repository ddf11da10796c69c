"""Random mixtures of 2 to 50 Gaussians, whose modes a search may miss.

The centres are, but for those that are pushed out, draws of the reference normal that a search
starts from.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from studies.mixtures import SCALE, GaussianMixture

DIMENSIONS = (2, 3, 5, 8, 10, 16, 32)

Generator = np.random.Generator


def kind_of(number: int) -> tuple[str, int]:
    """The kind and the dimension of a target: 49 numbers in a row have each pair of them once."""
    rounds, place = divmod(number, len(DIMENSIONS))
    return [*KINDS][(place + rounds) % len(KINDS)], DIMENSIONS[place]


def many_modes(number: int) -> GaussianMixture:
    """Makes a target at random, the same for the same number."""
    kind, dim = kind_of(number)
    return KINDS[kind](np.random.default_rng([26, number]), dim)


def _round(widths: Float[np.ndarray, " components"], dim: int) -> Float[np.ndarray, "n dim dim"]:
    return widths[:, None, None] ** 2 * np.eye(dim)


def _width(rng: Generator) -> float:
    """Makes a width at which most of the components are modes of their own."""
    return float(np.exp(rng.uniform(np.log(0.05), np.log(0.3))))


def _spread(rng: Generator, most: float, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """Makes factors around 1, which differ between targets in how far they are spread."""
    reach = rng.uniform(0, np.log(most))
    return np.exp(rng.uniform(-reach, reach, shape))


def _equal(rng: Generator, dim: int) -> GaussianMixture:
    """5 to 50 round components of one width and one weight."""
    number = int(rng.integers(5, 51))
    centres = SCALE * rng.standard_normal((number, dim))
    covariances = _round(np.full(number, _width(rng)), dim)
    return GaussianMixture(np.full(number, 1 / number), centres, covariances)


def _weighted(rng: Generator, dim: int) -> GaussianMixture:
    """Unequal weights."""
    found = _equal(rng, dim)
    return found._replace(weights=rng.dirichlet(np.ones(len(found.weights))))


def _wide_and_narrow(rng: Generator, dim: int) -> GaussianMixture:
    """Unequal weights and widths."""
    found = _weighted(rng, dim)
    widths = _width(rng) * _spread(rng, 2, (len(found.weights),))
    return found._replace(covariances=_round(widths, dim))


def _long(rng: Generator, dim: int) -> GaussianMixture:
    """Unequal weights, and each component longer in some directions than in others."""
    found = _weighted(rng, dim)
    axes, _ = np.linalg.qr(rng.standard_normal((len(found.weights), dim, dim)))
    axes = axes * (_width(rng) * _spread(rng, 3, (len(found.weights), 1, dim)))
    return found._replace(covariances=axes @ axes.swapaxes(1, 2))


def _far(rng: Generator, dim: int) -> GaussianMixture:
    """A third of the centres lie farther out than the reference reaches but rarely."""
    found = _weighted(rng, dim)
    pushed = rng.permutation(len(found.weights)) < np.ceil(len(found.weights) / 3)
    lengths = np.linalg.norm(found.centres, axis=1)
    # |u| of a standard normal is about sqrt(dim), with a standard deviation of 0.7 for any dim.
    beyond = SCALE * (np.sqrt(dim) + rng.uniform(1.5, 3, len(lengths)))
    factors = np.where(pushed, beyond / lengths, 1)
    return found._replace(centres=found.centres * factors[:, None])


def _needle(rng: Generator, dim: int) -> GaussianMixture:
    """A broad component, and a narrow one with half or nine tenths of the mass."""
    needle = rng.choice([0.5, 0.9])
    centres = SCALE * rng.standard_normal((2, dim)) * [[0.3], [1.0]]
    widths = np.array([rng.uniform(0.8, 1.2), _width(rng)])
    return GaussianMixture(np.array([1 - needle, needle]), centres, _round(widths, dim))


def _measured(rng: Generator, dim: int) -> GaussianMixture:
    """A prior of a few dozen narrow Gaussians, seen through 1 to 3 noisy linear measurements."""
    number = int(rng.integers(24, 49))
    centres = SCALE * rng.standard_normal((number, dim))
    width, noise = _width(rng), float(rng.uniform(0.1, 0.4))
    prior = GaussianMixture(
        np.full(number, 1 / number), centres, _round(np.full(number, width), dim)
    )
    A = rng.standard_normal((int(rng.integers(1, 4)), dim))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    truth = centres[0] + width * rng.standard_normal(dim)
    return seen_through(prior, A, A @ truth + noise * rng.standard_normal(len(A)), noise)


def seen_through(
    prior: GaussianMixture,
    A: Float[np.ndarray, "data dim"],
    y: Float[np.ndarray, " data"],
    noise: float,
) -> GaussianMixture:
    """A prior times the likelihood N(y; A u, noise^2 I): again a mixture of as many Gaussians."""
    C = A @ prior.covariances @ A.T + noise**2 * np.eye(len(y))
    gains = np.linalg.solve(C, A @ prior.covariances).swapaxes(1, 2)
    gaps = y - prior.centres @ A.T
    squares = np.sum(gaps * np.linalg.solve(C, gaps[:, :, None])[:, :, 0], axis=1)
    _, log_dets = np.linalg.slogdet(2 * np.pi * C)
    log_terms = np.log(prior.weights) - 0.5 * (squares + log_dets)
    log_evidence = float(np.logaddexp.reduce(log_terms))
    return GaussianMixture(
        np.exp(log_terms - log_evidence),
        prior.centres + np.einsum("kij,kj->ki", gains, gaps),
        prior.covariances - gains @ A @ prior.covariances,
        prior.log_evidence + log_evidence,
    )


KINDS: dict[str, Callable[[Generator, int], GaussianMixture]] = {
    "equal": _equal,
    "unequal weights": _weighted,
    "unequal widths": _wide_and_narrow,
    "elongated": _long,
    "far out": _far,
    "needle": _needle,
    "measured": _measured,
}
