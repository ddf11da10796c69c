"""Everything that a report shows, as plain arrays and numbers.

Without JAX: a process that draws figures need not import it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class ModeCard(NamedTuple):
    """One possibility.

    Attributes:
        image: The generator's image at the mode.
        weight: The posterior probability of the mode.
        weight_error: The standard error of the weight.
        depth: The value of -ln p(u | y) at the mode.
        chi_squared: The chi-squared of the data, divided by their number.
        deepest: Whether it is the deepest of all modes.
        std: The standard deviation of every pixel within the mode.
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
    """A direction in which pixels vary together, and its share of the variance of the image.

    The images `low` and `high` are the mean minus and plus two standard deviations along it.
    """

    share: float
    low: Float[np.ndarray, "height width"]
    high: Float[np.ndarray, "height width"]


class LatentView(NamedTuple):
    """Posterior draws of u, projected to two directions, with the mode of each.

    Attributes:
        points: The projected draws.
        mode: The most probable of each draw, by its place among the cards; -1 for any other.
        centres: The projected modes.
        parted: Whether the first direction is the one that parts the two heaviest modes.
    """

    points: Float[np.ndarray, "n 2"]
    mode: Int[np.ndarray, " n"]
    centres: Float[np.ndarray, "modes 2"]
    parted: bool


class Slice(NamedTuple):
    """-ln p through the centre of the heaviest mode's Gaussian, along one of its axes.

    Attributes:
        name: Which axis it is.
        width: The standard deviation of the Gaussian along it.
        steps: The distances from the centre, in standard deviations.
        exact: The value of -ln p(u | y), less that at the centre.
    """

    name: str
    width: float
    steps: Float[np.ndarray, " steps"]
    exact: Float[np.ndarray, " steps"]


class Comparison(NamedTuple):
    """The answer beside the truth.

    Attributes:
        hidden_inside_90_percent: The share of the hidden pixels whose true value lies in their
            90 % interval; None if no pixel is hidden.
        seen_inside_90_percent: The same of the pixels that are seen.
        rms_error_of_mean: The root mean square of the error of the mean, over all pixels.
    """

    hidden_inside_90_percent: float | None
    seen_inside_90_percent: float | None
    rms_error_of_mean: float

    def __str__(self) -> str:
        shares = {
            "hidden": self.hidden_inside_90_percent,
            "seen": self.seen_inside_90_percent,
        }
        found = [
            f"{share:.1%} of the {name} pixels"
            for name, share in shares.items()
            if share is not None
        ]
        return (
            f"{' and '.join(found)} lie in their 90 % intervals, and the mean is off by"
            f" {self.rms_error_of_mean:.3f} (root mean square)."
        )


class Overview(NamedTuple):
    """The images that answer the question at first sight; `Content` tells what each is.

    Data are None if they are not known, as in a posterior whose problem is missing.
    """

    data: Float[np.ndarray, "*data"] | None
    map_image: Float[np.ndarray, "height width"]
    mean: Float[np.ndarray, "height width"]
    std: Float[np.ndarray, "height width"]
    truth: Float[np.ndarray, "height width"] | None = None


class Content(NamedTuple):
    """What a report shows.

    Attributes:
        data: The data, NaN where they are missing.
        map_image: The generator's image at the deepest mode.
        mean: The posterior mean of every pixel.
        std: The posterior standard deviation of every pixel.
        truth: The clean image, where it is known.
        comparison: The answer beside the truth, where that is known.
        cards: The modes that are shown, the heaviest first.
        rest: The weight of all other modes together.
        samples: Clean images drawn from the posterior.
        replicates: What the instrument would have made of each sample.
        components: The leading principal components of posterior images.
        latent: The posterior of u in two directions.
        search_values: The value of -ln p where each start of the search ended.
        search_modes: The card of the mode that each start ended in; -1 for any other.
        slices: The density through the heaviest mode along three axes.
    """

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
