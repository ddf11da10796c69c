"""Simulated galaxies: bulge, disc, arms, bar and neighbours, seen through the atmosphere.

A picture is what a survey would have of a bright nearby galaxy if its exposure were endless: linear
in flux, the sky subtracted, no noise. It is linear because what instruments do to light, such as
blurring and binning, is linear in flux and in nothing else; stretch it (asinh) to look at it. Zero
is the dark sky. The brightest pixel of each picture lies between 0.4 and 1, since distance and
exposure are of no interest. Lengths are in pixels, angles in radians.

Values are whole multiples of 1 / `WHITE`. Machines differ in the last bit of an exponential, but
hardly one pixel in 10^12 is so near to the middle between two whole numbers that this decides how
it is rounded: machines make the same pictures.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int16, UInt8
from scipy.special import gamma, i0

from latentuq.data.archives import Progress, silent

SIDE = 64
WHITE = 10_000
KINDS = ("elliptical", "lenticular", "spiral", "barred spiral")
"""What the labels mean. A lenticular galaxy has a disc without arms."""

# Light is drawn on half pixels, since the atmosphere blurs it to about 2.5 pixels, and on 4 pixels
# beyond each side, from where it is blurred into the picture. FFTs of 144 are quick, and so few
# galaxies at a time stay in a processor's cache.
_FINE, _MARGIN, _BATCH = 2, 4, 25
_GRID = _FINE * (SIDE + 2 * _MARGIN)
_CENTRES = (np.arange(_GRID) + 0.5 - _GRID / 2) / _FINE
# Squared and in pixels: no cusp is sharper than the grid.
_SOFTENING = 0.1

Light = Float[np.ndarray, f"n {_GRID} {_GRID}"]
Column = Float[np.ndarray, " n"]


def simulate(
    count: int, seed: int = 0, progress: Progress = silent
) -> tuple[Int16[np.ndarray, f"count {SIDE} {SIDE}"], UInt8[np.ndarray, " count"]]:
    """Returns galaxies, in units of 1 / `WHITE`, and their kinds.

    Fewer of them, or more, begin with the same ones.
    """
    images = np.empty((count, SIDE, SIDE), np.int16)
    kinds = np.empty(count, np.uint8)
    for start in range(0, count, _BATCH):
        draws = _Draws(seed, start // _BATCH)
        galaxies = _draw_galaxies(draws)
        light = _bulge(galaxies, draws) + _disc(galaxies, draws) + _bar(galaxies, draws)
        _add_clusters(light, galaxies, draws)
        _add_neighbours(light, draws)
        seen, part = _expose(light, draws), slice(start, min(start + _BATCH, count))
        images[part] = np.rint(WHITE * seen)[: count - start]
        kinds[part] = galaxies.kind[: count - start]
        progress("simulating galaxies", part.stop, count)
    return images, kinds


class _Draws:
    """Random numbers of one batch: uniform ones, which are the same on every machine."""

    def __init__(self, seed: int, batch: int):
        self._random = np.random.RandomState([seed, batch])

    def between(self, low: float, high: float, each: int | None = None) -> np.ndarray:
        """A number for each galaxy, or `each` of them."""
        shape = (_BATCH,) if each is None else (_BATCH, each)
        return low + (high - low) * self._random.random_sample(shape)

    def scale(self, low: float, high: float, each: int | None = None) -> np.ndarray:
        """The same, as probable in every octave."""
        return low * (high / low) ** self.between(0, 1, each)

    def choose(self, *shares: float) -> np.ndarray:
        """0, 1, 2, ... with these probabilities, for each galaxy."""
        return np.searchsorted(np.cumsum(shares)[:-1], self.between(0, 1))

    def angle(self, each: int | None = None) -> np.ndarray:
        return self.between(0, 2 * np.pi, each)


@dataclass(frozen=True)
class _Galaxies:
    """What several components of a batch of galaxies share.

    Attributes:
        kind: A place in `KINDS`.
        x: Where the centre is, to the right of that of the picture.
        y: Where it is, below.
        tilt: The direction of the longer axis on the sky.
        flat: The shorter axis over the longer one: the cosine of the inclination, were discs thin.
        length: The scale length of the disc.
        bulge: The share of the light that the bulge has; a disc without end would have the rest.
        inner: The radius where arms begin, which is that of the bar.
        start: The direction from where the first arm and the bar begin, in the disc.
        arms: How many there are.
        slope: How far an arm winds while its radius grows e-fold: 1 / tan(pitch), with a sign.
    """

    kind: np.ndarray
    x: Column
    y: Column
    tilt: Column
    flat: Column
    length: Column
    bulge: Column
    inner: Column
    start: Column
    arms: np.ndarray
    slope: Column

    @property
    def disc(self) -> Column:
        """The central brightness of the disc."""
        return (1 - self.bulge) / (2 * np.pi * self.length**2 * self.flat)


def _draw_galaxies(draws: _Draws) -> _Galaxies:
    # More arms than in the sky, where a third of bright galaxies has a smooth disc or none.
    kind = draws.choose(0.13, 0.12, 0.4, 0.35)
    barred = kind == 3
    # Directions are random, so the cosine of the inclination is uniform; discs seen from their edge
    # are rarer here, as they are in catalogues with a limit of surface brightness. Discs are 0.15
    # as thick as wide.
    cosine = draws.between(0.3, 1)
    length = draws.scale(6.5, 11)
    # Bulges of spirals are small, mostly: seen in blue light, which shows arms best.
    spiral = 0.015 + 0.15 * draws.between(0, 1) ** 2
    bulge = np.where(kind == 0, 1, np.where(kind == 1, draws.between(0.15, 0.4), spiral))
    # Galaxies with heavier bulges are wound more tightly (the sequence of Hubble), with scatter.
    pitch = np.radians(np.clip(30 - 90 * np.minimum(bulge, 0.2) + draws.between(-8, 8), 10, 36))
    inner = length * np.where(barred, draws.between(0.6, 1.1), draws.between(0.25, 0.5))
    return _Galaxies(
        kind=kind,
        x=draws.between(-1.5, 1.5),
        y=draws.between(-1.5, 1.5),
        tilt=draws.angle(),
        flat=np.sqrt(0.15**2 + (1 - 0.15**2) * cosine**2),
        length=length,
        bulge=bulge,
        inner=inner,
        start=draws.angle(),
        # Bars drive two arms.
        arms=np.where(barred, 2, 2 + draws.choose(0.6, 0.2, 0.2)),
        slope=np.where(draws.between(0, 1) < 0.5, -1, 1) / np.tan(pitch),
    )


def _bulge(galaxies: _Galaxies, draws: _Draws) -> Light:
    """Bulges of discs, and elliptical galaxies, which are nothing else."""
    alone = galaxies.kind == 0
    # The heavier, the more concentrated: pseudobulges are near to exponential (n = 1), giants near
    # to that of de Vaucouleurs (n = 4).
    steep = np.where(alone, draws.between(1.5, 3.5), 1 + 5 * galaxies.bulge * draws.between(0.5, 1))
    radius = np.where(alone, draws.scale(5, 10), galaxies.length * draws.between(0.25, 0.45))
    # A bulge is rounder than its disc.
    flat = np.where(alone, draws.between(0.5, 1), 1 - (1 - galaxies.flat) * draws.between(0.3, 0.6))
    place = _coordinates(galaxies.x, galaxies.y, galaxies.tilt, flat)
    return _sersic(*place, flat, galaxies.bulge, radius, steep)


def _disc(galaxies: _Galaxies, draws: _Draws) -> Light:
    """An exponential disc, cut off at about 3 scale lengths as most are, times its arms."""
    x, y = _coordinates(galaxies.x, galaxies.y, galaxies.tilt, galaxies.flat)
    square = x * x + y * y + _SOFTENING
    radius = np.sqrt(square)
    cut = _column(galaxies.length * draws.between(2.5, 3.2))
    exponential = np.exp(-radius / _column(galaxies.length) - (square / cut**2) ** 3)
    # Most discs have one side that is brighter, the more so the farther out.
    side, excess = draws.angle(), draws.between(0, 0.35) / galaxies.length
    lopsided = 1 + _column(excess / 3) * (x * _column(np.cos(side)) + y * _column(np.sin(side)))
    modulation = _arms(galaxies, draws, square, np.arctan2(y, x))
    return _column(galaxies.disc) * exponential * np.maximum(lopsided, 0) * modulation


def _arms(galaxies: _Galaxies, draws: _Draws, square: Light, direction: Light) -> Light:
    """What arms multiply a disc by: about 1 on average, more on ridges, less between.

    Ridges are logarithmic spirals, direction = start + slope ln(radius / inner), that open or close
    a little on their way out and waver. Across, they are von Mises profiles.
    """
    turns = 0.5 * np.log(square / _column(galaxies.inner**2))
    wound = _column(galaxies.slope) * turns * (1 + _column(draws.between(-0.15, 0.15)) * turns)
    wavering = _column(draws.between(0, 0.5)) * np.sin(
        direction + _column(draws.between(2, 5)) * turns + _column(draws.angle())
    )
    phase = _column(galaxies.arms) * (direction - wound - _column(galaxies.start)) + wavering
    narrow = draws.between(1.2, 4)
    contrast = np.where(galaxies.kind >= 2, draws.between(0.6, 0.97), 0)
    fourth = square * square
    outside = fourth / (fourth + _column(galaxies.inner**4))
    ridges = np.exp(_column(narrow) * np.cos(phase)) / _column(i0(narrow))
    return 1 + _column(contrast) * outside * (ridges - 1)


def _bar(galaxies: _Galaxies, draws: _Draws) -> Light:
    """A flat ellipse in the plane of the disc that ends steeply where arms begin."""
    x, y = _coordinates(galaxies.x, galaxies.y, galaxies.tilt, galaxies.flat)
    cosine, sine = _column(np.cos(galaxies.start)), _column(np.sin(galaxies.start))
    along, across = x * cosine + y * sine, y * cosine - x * sine
    wide = _column(galaxies.inner * draws.between(0.2, 0.38))
    square = (along / _column(galaxies.inner)) ** 2 + (across / wide) ** 2
    bright = np.where(galaxies.kind == 3, galaxies.disc * draws.between(0.5, 1.3), 0)
    return _column(bright) * np.exp(-square * square)


def _add_clusters(light: Light, galaxies: _Galaxies, draws: _Draws, most: int = 24) -> None:
    """Adds clusters of young stars, too small to be resolved, along the arms."""
    length, inner = galaxies.length[:, None], galaxies.inner[:, None]
    radius = length * draws.between(0.8, 3, most)
    arm = np.floor(galaxies.arms[:, None] * draws.between(0, 1, most)) / galaxies.arms[:, None]
    ridge = galaxies.start[:, None] + galaxies.slope[:, None] * np.log(radius / inner)
    direction = ridge + 2 * np.pi * arm + draws.between(-0.3, 0.3, most)
    number = np.where(galaxies.kind >= 2, draws.between(0, most), 0)
    # Few are bright. They fade outwards as the disc does, but half as fast.
    flux = 0.03 * draws.between(0, 1, most) ** 3 * np.exp(-radius / length / 2)
    flux *= np.arange(most) < number[:, None]
    x, y = radius * np.cos(direction), radius * np.sin(direction) * galaxies.flat[:, None]
    cosine, sine = np.cos(galaxies.tilt)[:, None], np.sin(galaxies.tilt)[:, None]
    centre = galaxies.x[:, None], galaxies.y[:, None]
    _add_points(light, centre[0] + x * cosine - y * sine, centre[1] + x * sine + y * cosine, flux)


def _add_neighbours(light: Light, draws: _Draws, most: int = 3) -> None:
    """Adds stars of our own galaxy, and small galaxies nearby or far behind, anywhere."""
    edge = SIDE / 2 + 2
    stars = np.arange(most) < draws.choose(0.6, 0.25, 0.1, 0.05)[:, None]
    x, y = draws.between(-edge, edge, most), draws.between(-edge, edge, most)
    _add_points(light, x, y, stars * draws.scale(0.003, 0.036, most))
    number = draws.choose(0.5, 0.3, 0.14, 0.06)
    x, y = draws.between(-edge, edge, most), draws.between(-edge, edge, most)
    tilt, flat = draws.angle(most), draws.between(0.35, 1, most)
    flux, radius = draws.scale(0.01, 0.15, most), draws.scale(1, 2.7, most)
    steep = draws.between(0.8, 2.5, most)
    for which in range(most):
        there = number > which
        place = (each[there, which] for each in (x, y, tilt, flat))
        shape = (each[there, which] for each in (flat, flux, radius, steep))
        light[there] += _sersic(*_coordinates(*place), *shape)


def _expose(light: Light, draws: _Draws) -> Float[np.ndarray, f"n {SIDE} {SIDE}"]:
    """Blurs light by the atmosphere and collects it in pixels, scaled to its brightest one.

    All galaxies of a batch lie in one exposure. Pixels of less than half the blur's width sample it
    well, as surveys do.
    """
    width, ellipticity = draws.between(2.2, 3)[0], draws.between(0, 0.08)[0]
    spread = np.fft.rfft2(_moffat(width, ellipticity, draws.angle()[0]))
    blurred = np.fft.irfft2(np.fft.rfft2(light) * spread, s=light.shape[1:])
    half = _GRID // _FINE
    pixels = blurred.reshape(-1, half, _FINE, half, _FINE).mean((2, 4))
    seen = pixels[:, _MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
    brightest = draws.between(0.4, 1) / seen.max((1, 2))
    return np.maximum(seen, 0) * _column(brightest)  # FFTs leave -1e-17 where it is dark.


def _moffat(width: float, ellipticity: float, direction: float) -> Float[np.ndarray, "grid grid"]:
    """A Moffat profile of exponent 3, whose wings are those of turbulent air, around [0, 0].

    Args:
        width: Full width at half of the maximum.
        ellipticity: 1 - minor / major axis: from optics and wind.
        direction: That of the major axis.
    """
    steps = np.fft.fftfreq(_GRID, 1 / _GRID) / _FINE
    x, y = np.meshgrid(steps, steps)
    ratio = np.sqrt(1 - ellipticity)
    along = (x * np.cos(direction) + y * np.sin(direction)) * ratio
    across = (y * np.cos(direction) - x * np.sin(direction)) / ratio
    core = width / 2 / np.sqrt(2 ** (1 / 3) - 1)
    profile = (1 + (along**2 + across**2) / core**2) ** -3
    return profile / profile.sum()


def _sersic(x: Light, y: Light, flat: Column, flux: Column, radius: Column, steep: Column) -> Light:
    """I(r) = I_e exp(-b ((r / radius)^(1 / steep) - 1)), where `radius` contains half of `flux`."""
    b = 2 * steep - 1 / 3 + 4 / (405 * steep)
    area = 2 * np.pi * steep * radius**2 * flat * np.exp(b) * b ** (-2 * steep) * gamma(2 * steep)
    square = (x * x + y * y + _SOFTENING) / _column(radius**2)
    return _column(flux / area) * np.exp(_column(b) * (1 - square ** _column(0.5 / steep)))


def _coordinates(x: Column, y: Column, tilt: Column, flat: Column) -> tuple[Light, Light]:
    """Where the points of the grid lie in the plane of a disc, along its longer axis and across."""
    right = _CENTRES[None, None, :] - _column(x)
    down = _CENTRES[None, :, None] - _column(y)
    cosine, sine = _column(np.cos(tilt)), _column(np.sin(tilt))
    return right * cosine + down * sine, (down * cosine - right * sine) / _column(flat)


def _add_points(light: Light, x: np.ndarray, y: np.ndarray, flux: np.ndarray) -> None:
    """Adds points of light, some for each picture, each to the four nearest points of the grid."""
    column, row = x * _FINE + (_GRID - 1) / 2, y * _FINE + (_GRID - 1) / 2
    left, top = np.floor(column).astype(int), np.floor(row).astype(int)
    picture = np.broadcast_to(np.arange(len(light))[:, None], x.shape)
    for right, below in ((0, 0), (0, 1), (1, 0), (1, 1)):
        to, at = left + right, top + below
        share = (1 - abs(column - to)) * (1 - abs(row - at))
        inside = (to >= 0) & (to < _GRID) & (at >= 0) & (at < _GRID)
        place = picture[inside], at[inside], to[inside]
        np.add.at(light, place, (flux * share * _FINE**2)[inside])


def _column(values: np.ndarray) -> Float[np.ndarray, "n 1 1"]:
    """One number for each picture, to be combined with all of its points."""
    return values[:, None, None]
