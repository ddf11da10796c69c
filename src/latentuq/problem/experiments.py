"""The paper's four corruptions (Boehm, Lanusse and Seljak 2019), exactly as published.

Masks and noise vectors are those of the paper's code; they do not depend on the image.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentuq.core.arrays import read_finite
from latentuq.core.errors import UserError
from latentuq.forward.blur import Blur
from latentuq.forward.mask import RandomMask, RegionMask
from latentuq.forward.operator import Operator
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior.generative import GenerativePrior
from latentuq.problem.inverse import InverseProblem

SHAPE = (28, 28)
_SEED = 779


@dataclass(frozen=True)
class Experiment:
    """A published corruption.

    Attributes:
        name: What the paper's code calls it.
        image: Place in the MNIST test set of the paper's example.
        summary: One sentence.
        make_operator: Makes A for images of any shape.
        noise_std: Standard deviation of the noise on what is observed.
        starts: Minimisations that the paper ran to find the modes.
    """

    name: str
    image: int
    summary: str
    make_operator: Callable[[], Operator]
    noise_std: float
    starts: int = 10


class Corruption(NamedTuple):
    """What an inverse problem is made of besides its prior; y is NaN where nothing is observed."""

    operator: Operator
    noise: GaussianNoise
    y: Float[np.ndarray, "28 28"]


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="sparse95",
            image=1,
            summary="744 of 784 pixels are removed at random; no noise is added.",
            make_operator=lambda: RandomMask(0.95, seed=_SEED),
            noise_std=0.0,
        ),
        Experiment(
            name="masknoise05",
            image=6,
            summary="The right half is removed, and noise of 0.5 is added to the left one.",
            make_operator=lambda: RegionMask(columns=(14, 27)),
            noise_std=0.5,
        ),
        Experiment(
            name="blur",
            image=12,
            summary="A Gaussian of 3 pixels blurs the image, and noise of 0.05 is added.",
            make_operator=lambda: Blur(3.0, size=11),
            noise_std=0.05,
        ),
        Experiment(
            name="solidmask",
            image=6,
            summary="Columns 10 to 23 are removed, so that a 4 may be a 9; no noise is added.",
            make_operator=lambda: RegionMask(columns=(10, 23)),
            noise_std=0.0,
            starts=20,
        ),
    )
}


def corrupt(name: str, image: object) -> Corruption:
    """Applies a published corruption to any image: y = A x + std * RandomState(779).randn(784).

    The paper blurs without noise; the noise of "blur" is ours, to make the problem well-posed.

    Args:
        name: A name in `EXPERIMENTS`.
        image: The clean image, 28 x 28.

    Raises:
        UserError: The name is unknown, or the image is not one of 28 x 28 finite numbers.
    """
    if name not in EXPERIMENTS:
        raise UserError(f"There is no experiment {name!r}; the paper's: {', '.join(EXPERIMENTS)}.")
    experiment = EXPERIMENTS[name]
    x = read_finite(image, "The image")
    if x.shape != SHAPE:
        raise UserError(f"The paper's corruptions are for 28 x 28 images, not for {x.shape}.")
    operator = experiment.make_operator().bind(SHAPE)
    seen = np.asarray(operator.observed(jnp.ones(SHAPE, bool)))
    noise = experiment.noise_std * np.random.RandomState(_SEED).randn(x.size).reshape(SHAPE)
    y = np.where(seen, np.asarray(operator(x), np.float64) + noise, np.nan)
    return Corruption(operator, GaussianNoise(experiment.noise_std), y)


def make_problem(prior: GenerativePrior, name: str, image: object) -> InverseProblem:
    """The inverse problem of an image under a published corruption."""
    return InverseProblem(prior, *corrupt(name, image))
