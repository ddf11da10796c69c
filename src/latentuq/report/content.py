"""Everything that a report shows, as plain arrays and numbers.

Without JAX: a process that draws figures need not import it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class ModeCard(NamedTuple):
    """One possibility.

    Attributes:
        image: g(u) at the mode.
        weight: Its posterior probability.
        weight_error: Standard error of that.
        depth: -ln p(u | y) at the mode.
        chi_squared: Of the data, per datum.
        deepest: Whether it is the deepest of all.
        std: Of every pixel, within the mode.
        samples: Clean images of draws in its basin.
        draws: How many `std` and `samples` rest on; a single one may be the mode itself.
    """

    image: Float[np.ndarray, "height width"]
    weight: float
    weight_error: float
    depth: float
    chi_squared: float
    deepest: bool
    std: Float[np.ndarray, "height width"]
    samples: Float[np.ndarray, "n height width"]
    draws: int


class Component(NamedTuple):
    """A direction in which pixels vary together: the mean and two standard deviations either way.

    Attributes:
        share: Of the variance of the image.
        low: Mean minus two standard deviations.
        high: Mean plus two.
    """

    share: float
    low: Float[np.ndarray, "height width"]
    high: Float[np.ndarray, "height width"]


class LatentView(NamedTuple):
    """Posterior draws of u, projected to two directions, with the mode of each.

    Attributes:
        points: Draws.
        mode: The most probable of each draw, by its place among the cards; -1 for any other.
        centres: The modes.
        parted: Whether the first direction is the one that parts the two heaviest modes.
    """

    points: Float[np.ndarray, "n 2"]
    mode: Int[np.ndarray, " n"]
    centres: Float[np.ndarray, "modes 2"]
    parted: bool


class Slice(NamedTuple):
    """-ln p through the centre of the heaviest mode's Gaussian, against the Gaussian itself.

    Attributes:
        name: Which axis it is.
        width: Standard deviation of the Gaussian along it.
        steps: In standard deviations.
        exact: -ln p(u | y), less its value at the centre.
        fitted: Half the square of the steps.
    """

    name: str
    width: float
    steps: Float[np.ndarray, " steps"]
    exact: Float[np.ndarray, " steps"]
    fitted: Float[np.ndarray, " steps"]


class Comparison(NamedTuple):
    """The answer beside the truth.

    Attributes:
        rms_error_of_mean: Over all pixels.
        inside_90_percent: Share of the pixels whose true value lies in their 90 % interval.
    """

    rms_error_of_mean: float
    inside_90_percent: float


class Content(NamedTuple):
    """What a report shows."""

    data: Float[np.ndarray, "*data"]
    map_image: Float[np.ndarray, "height width"]
    mean: Float[np.ndarray, "height width"]
    std: Float[np.ndarray, "height width"]
    truth: Float[np.ndarray, "height width"] | None
    comparison: Comparison | None
    cards: tuple[ModeCard, ...]
    rest: float
    samples: Float[np.ndarray, "n height width"]
    replicates: Float[np.ndarray, "n *data"]
    components: tuple[Component, ...]
    latent: LatentView
    search_values: Float[np.ndarray, " starts"]
    search_modes: Int[np.ndarray, " starts"]
    slices: tuple[Slice, ...]
