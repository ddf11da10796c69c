"""Curved, skewed, heavy-tailed, hollow and many-moded densities with a tail of known probability.

All are normalised: the logarithm of their integral is 0. The reference normal of a solve, centred
at the origin, is as wide as the density in its widest coordinate.
"""

import abc
import functools
import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats
from jax.scipy.special import logsumexp
from jax.scipy.stats import cauchy, norm
from jaxtyping import Array, Bool, Float


class HardShape(eqx.Module):
    """A normalised density, and an event far from its centre.

    Attributes:
        dim: The length of u.
        scale: The root mean square of u in its widest coordinate; 1 where it has none.
        probability: The exact probability of the event.
    """

    dim: eqx.AbstractVar[int]
    scale: eqx.AbstractVar[float]
    probability: eqx.AbstractVar[float]

    @abc.abstractmethod
    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Computes ln p(u)."""

    @abc.abstractmethod
    def event(self, u: Float[Array, " dim"]) -> Bool[Array, ""]:
        """Says whether u lies in the tail whose probability is known."""


def _normal_tail(distance: float) -> float:
    """The probability that a standard normal is farther from 0 than this."""
    return float(2 * scipy.stats.norm.sf(distance))


def _banana(x: Float[Array, " two"], bend: float, width: float) -> Float[Array, ""]:
    """Ln p for x_0 ~ N(0, 1) and x_1 ~ N(bend (x_0^2 - 1), width^2)."""
    return norm.logpdf(x[0]) + norm.logpdf(x[1], bend * (x[0] ** 2 - 1), width)


class Banana(HardShape):
    """A banana in the first two coordinates of x = rotation u, normal ones beside it."""

    rotation: Float[Array, "dim dim"]
    bend: float = eqx.field(static=True)
    width: float = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    probability: float = eqx.field(static=True)

    def __init__(self, bend: float, width: float, dim: int = 2):
        rotation = np.eye(2)
        if dim > 2:
            rotation, _ = np.linalg.qr(np.random.default_rng(dim).standard_normal((dim, dim)))
        variances = np.array([1, 2 * bend**2 + width**2, *np.ones(dim - 2)])
        self.rotation = jnp.asarray(rotation, float)
        self.bend, self.width, self.dim = bend, width, dim
        self.scale = float(np.sqrt(np.max(variances @ rotation**2)))
        self.probability = _normal_tail(2)

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        x = self.rotation @ u
        return _banana(x[:2], self.bend, self.width) + jnp.sum(norm.logpdf(x[2:]))

    def event(self, u: Float[Array, " dim"]) -> Bool[Array, ""]:
        return jnp.abs(self.rotation[0] @ u) > 2


class TwoBananas(HardShape):
    """Two bananas of weights 0.7 and 0.3, 6 apart, which bend up and down."""

    dim: int = eqx.field(static=True, default=2)
    # E u_1^2 = 2 bend^2 + width^2 is 8.09; E u_0^2 = 1 + 3^2 is more.
    scale: float = eqx.field(static=True, default=math.sqrt(10))
    probability: float = eqx.field(
        static=True, default=0.5 * _normal_tail(2) + 0.5 * _normal_tail(8)
    )

    def __call__(self, u: Float[Array, " 2"]) -> Float[Array, ""]:
        up = _banana(u + jnp.array([3.0, 0.0]), 2.0, 0.3)
        down = _banana(u * jnp.array([1.0, -1.0]) - jnp.array([3.0, 0.0]), 2.0, 0.3)
        return jnp.logaddexp(math.log(0.7) + up, math.log(0.3) + down)

    def event(self, u: Float[Array, " 2"]) -> Bool[Array, ""]:
        return jnp.abs(u[0]) > 5


class Product(HardShape):
    """Independent coordinates of one kind; the event is that the first is in a tail.

    Attributes:
        log_prob: The log density of one coordinate, normalised.
        least: The least value of |u_0|, or of u_0 times the sign of the tail, in the event.
        sign: 1 for the upper tail, -1 for the lower one, 0 for both.
    """

    log_prob: Callable[[Array], Array] = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    probability: float = eqx.field(static=True)
    least: float = eqx.field(static=True)
    sign: int = eqx.field(static=True, default=0)

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        return jnp.sum(self.log_prob(u))

    def event(self, u: Float[Array, " dim"]) -> Bool[Array, ""]:
        return (jnp.abs(u[0]) if self.sign == 0 else self.sign * u[0]) > self.least


def _gumbel(u: Array) -> Array:
    """Gumbel's distribution of largest values: mean 0.577, variance pi^2 / 6."""
    return -u - jnp.exp(-u)


def _log_gamma(u: Array) -> Array:
    """The logarithm of a Gamma variable of shape 1/2: a long exponential tail below."""
    return 0.5 * u - jnp.exp(u) - 0.5 * math.log(math.pi)


def _skew_normal(u: Array) -> Array:
    """2 phi(u) Phi(5 u): half of a normal behind a soft edge, with a mean square of 1."""
    return math.log(2) + norm.logpdf(u) + norm.logcdf(5 * u)


class StudentT(HardShape):
    """Student's t in many dimensions, whose coordinates are uncorrelated but not independent."""

    degrees: float = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    probability: float = eqx.field(static=True)
    constant: float = eqx.field(static=True)

    def __init__(self, degrees: float, dim: int):
        self.degrees, self.dim = degrees, dim
        self.scale = math.sqrt(degrees / (degrees - 2))
        self.probability = float(2 * scipy.stats.t.sf(4, degrees))
        gammas = math.lgamma(0.5 * (degrees + dim)) - math.lgamma(0.5 * degrees)
        self.constant = gammas - 0.5 * dim * math.log(degrees * math.pi)

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        square = jnp.sum(u**2) / self.degrees
        return self.constant - 0.5 * (self.degrees + self.dim) * jnp.log1p(square)

    def event(self, u: Float[Array, " dim"]) -> Bool[Array, ""]:
        return jnp.abs(u[0]) > 4


class Shell(HardShape):
    """A ring or shell: ln p = constant - ((|u| - radius) / width)^2 / 2."""

    radius: float = eqx.field(static=True)
    width: float = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    probability: float = eqx.field(static=True)
    constant: float = eqx.field(static=True)

    def __init__(self, radius: float, width: float, dim: int):
        self.radius, self.width, self.dim = radius, width, dim
        radii = np.linspace(0, radius + 12 * width, 200_001)[1:]
        profile = radii ** (dim - 1) * np.exp(-0.5 * ((radii - radius) / width) ** 2)
        # The area of the unit sphere is 2 pi^(dim/2) / Gamma(dim/2).
        log_area = math.log(2) + 0.5 * dim * math.log(math.pi) - math.lgamma(0.5 * dim)
        integral = np.sum(profile) * (radii[1] - radii[0])
        self.constant = float(-np.log(integral) - log_area)
        # In a cap of the unit sphere above the cosine c lies half of I_(1 - c^2)(dim/2 - 1/2, 1/2).
        cosines = np.minimum(0.5 * radius / radii, 1)
        caps = 0.5 * scipy.special.betainc(0.5 * (dim - 1), 0.5, 1 - cosines**2)
        self.probability = float(profile @ caps / profile.sum())
        self.scale = float(np.sqrt(profile @ radii**2 / profile.sum() / dim))

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        # What is added gives the length a gradient at 0, too.
        length = jnp.sqrt(jnp.sum(u**2) + 1e-12)
        return self.constant - 0.5 * ((length - self.radius) / self.width) ** 2

    def event(self, u: Float[Array, " dim"]) -> Bool[Array, ""]:
        return u[0] > 0.5 * self.radius


class Funnel(HardShape):
    """Neal's funnel: u_0 ~ N(0, 1.5^2), the others N(0, exp(u_0)); the event is its neck."""

    dim: int = eqx.field(static=True)
    # E exp(u_0) is the mean square of each of the others.
    scale: float = eqx.field(static=True, default=math.exp(0.25 * 1.5**2))
    probability: float = eqx.field(static=True, default=0.5 * _normal_tail(2 / 1.5))

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        widths = jnp.exp(0.5 * u[0])
        return norm.logpdf(u[0], scale=1.5) + jnp.sum(norm.logpdf(u[1:], scale=widths))

    def event(self, u: Float[Array, " dim"]) -> Bool[Array, ""]:
        return u[0] < -2


class TwentyModes(HardShape):
    """Twenty equal Gaussians of width 0.1 in a square of side 10, as in Liang and Wong (2001).

    The event is that u belongs to one of the first four.
    """

    centres: Float[Array, "20 2"]
    dim: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    probability: float = eqx.field(static=True)

    def __init__(self):
        # No two of these are nearer than 10 widths, so that the event has its probability exactly.
        centres = _scattered(np.random.default_rng(0), 20, 1.0)
        self.centres = jnp.asarray(centres, float)
        self.dim, self.probability = 2, 4 / 20
        self.scale = float(np.sqrt(np.max(np.mean(centres**2, axis=0))))

    def __call__(self, u: Float[Array, " 2"]) -> Float[Array, ""]:
        terms = jnp.sum(norm.logpdf(u, self.centres, 0.1), axis=1)
        return logsumexp(terms) - math.log(20)

    def event(self, u: Float[Array, " 2"]) -> Bool[Array, ""]:
        return jnp.argmin(jnp.sum((u - self.centres) ** 2, axis=1)) < 4


def _scattered(rng: np.random.Generator, number: int, apart: float) -> Float[np.ndarray, "n 2"]:
    """Makes points of a square of side 10, one after the other, no two nearer than a distance."""
    kept = np.zeros((0, 2))
    while len(kept) < number:
        point = rng.uniform(-5, 5, 2)
        if np.all(np.linalg.norm(kept - point, axis=1) > apart):
            kept = np.vstack([kept, point])
    return kept


def _cauchys(dim: int) -> Product:
    tail = 2 * float(scipy.stats.cauchy.sf(10))
    return Product(log_prob=cauchy.logpdf, dim=dim, scale=1.0, probability=tail, least=10.0)


def _gumbels(dim: int) -> Product:
    scale = math.hypot(np.euler_gamma, math.pi / math.sqrt(6))
    tail = float(scipy.stats.gumbel_r.sf(3))
    return Product(log_prob=_gumbel, dim=dim, scale=scale, probability=tail, least=3.0, sign=1)


def _log_gammas(dim: int) -> Product:
    scale = math.sqrt(scipy.special.psi(0.5) ** 2 + scipy.special.polygamma(1, 0.5))
    tail = float(scipy.stats.gamma.cdf(math.exp(-6), 0.5))
    return Product(log_prob=_log_gamma, dim=dim, scale=scale, probability=tail, least=6.0, sign=-1)


def _skew_normals(dim: int) -> Product:
    tail = float(scipy.stats.skewnorm.sf(2, 5))
    return Product(log_prob=_skew_normal, dim=dim, scale=1.0, probability=tail, least=2.0, sign=1)


_BENDS = ((1, 0.1), (1, 1.0), (2, 0.3), (3, 0.1), (3, 1.0), (5, 0.3), (10, 0.1), (10, 1.0))
_FAMILIES: dict[str, tuple[Callable[[int], HardShape], tuple[int, ...]]] = {
    **{f"banana {b} {s}": (functools.partial(Banana, b, s), (2,)) for b, s in _BENDS},
    "banana 3 0.3": (functools.partial(Banana, 3, 0.3), (5, 10, 32)),
    "Cauchy": (_cauchys, (2, 10)),
    "Student-t 3": (functools.partial(StudentT, 3), (5, 10, 32)),
    "Student-t 5": (functools.partial(StudentT, 5), (5, 10, 32)),
    "shell": (functools.partial(Shell, 3, 0.2), (2, 5, 10)),
    "funnel": (Funnel, (5, 10)),
    "Gumbel": (_gumbels, (10,)),
    "log-gamma": (_log_gammas, (10,)),
    "skew normal": (_skew_normals, (10,)),
    "two bananas": (lambda dim: TwoBananas(), (2,)),
    "twenty modes": (lambda dim: TwentyModes(), (2,)),
}

HARD_SHAPES: dict[str, Callable[[], HardShape]] = {
    f"{name}, {dim} dimensions": functools.partial(make, dim)
    for name, (make, dims) in _FAMILIES.items()
    for dim in dims
}
"""Makes each of the family, by name."""
