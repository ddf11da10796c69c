"""How like the prior's images are the data, if another brightness or a negative is allowed?"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# The number of images of the prior that the data are compared with, the most alike ones.
_ALIKE = 8
# A picture whose variance is a smaller part of the usual one is too faint to be compared, or not
# even there.
_FAINTEST = 0.05
_NOTHING = 0.001
# The share of the prior's images that may be less like the others than what is called alike.
_LEAST = 0.05


class Likeness(NamedTuple):
    """The picture in the data beside pictures that the prior makes.

    Attributes:
        factor: How bright the picture is, compared with the images most like it.
        offset: How bright its black is.
        correlation: The mean correlation with the images most like it.
        negative: The mean correlation with the images most unlike it, below zero for a negative.
    """

    factor: float
    offset: float
    correlation: float
    negative: float


class Usual(NamedTuple):
    """What likeness images of the prior have, if they stand for data.

    Attributes:
        factor_spread: The standard deviation of the logarithm of their factor.
        correlation: The correlation that nearly all of them reach.
    """

    factor_spread: float
    correlation: float


class Bank:
    """Images of the prior as the instrument sees them, and pictures beside them.

    Attributes:
        signal: The mean variance of these images, summed over the data.
        least: The least variance of these images; zero if it is next to nothing.
        faintest: The variance of a picture that is next to none.
    """

    def __init__(
        self,
        shown: Float[np.ndarray, "n data"],
        flat: Float[np.ndarray, " data"],
        roots: Float[np.ndarray, " data"],
    ):
        """Keeps the images.

        Args:
            shown: The predicted data of each image.
            flat: The data of an image that is 1 everywhere, of which any picture may have a part.
            roots: The roots of the weights of the data.
        """
        self._roots, self._flat = roots, flat
        self._weights = roots**2 * flat / max(np.sum(roots**2 * flat**2), 1e-30)
        self._shown, self._offsets = shown, shown @ self._weights
        self._centred = roots * (shown - self._offsets[:, None] * flat)
        self._squares = np.sum(self._centred**2, axis=1)
        self._seen = self._squares > _FAINTEST * np.median(self._squares)
        self.signal = float(np.mean(self._squares))
        least = float(np.min(self._squares))
        self.least = least if least > _NOTHING * self.signal else 0.0
        self.faintest = max(_FAINTEST * self.signal, 1e-30)

    def centre(self, y: Float[np.ndarray, " data"]) -> Float[np.ndarray, " data"]:
        """Takes off the flat part of the data and weighs the rest."""
        return self._roots * (y - (y @ self._weights) * self._flat)

    def compare(
        self, y: Float[np.ndarray, " data"], signal: float, own: int | None = None
    ) -> Likeness:
        """Compares data with the images; their factor follows from both variances.

        Args:
            y: The data.
            signal: The variance of the picture in them, without that of the noise.
            own: The image that the data were made of, which is left out.
        """
        centred = self.centre(y)
        lengths = np.sqrt(np.where(self._seen, self._squares, np.inf) * np.sum(centred**2))
        correlations = self._centred @ centred / np.maximum(lengths, 1e-30)
        if own is not None:
            correlations[own] = 0
        order = np.argsort(-correlations, kind="stable")
        alike, unlike = order[:_ALIKE], order[-_ALIKE:]
        factor = float(np.median(np.sqrt(signal / np.maximum(self._squares[alike], 1e-30))))
        return Likeness(
            factor,
            float(y @ self._weights - factor * np.median(self._offsets[alike])),
            float(np.mean(correlations[alike])),
            float(np.mean(correlations[unlike])),
        )

    def usual(
        self, noise: Float[np.ndarray, " data"], errors: Float[np.ndarray, "tried data"]
    ) -> Usual:
        """Lets images of the bank stand for data, without the generator's error and with it.

        Where the generator draws few brightnesses, those of real images are in its error. Where it
        draws many, the error blurs them, and a real image may have less of it.

        Args:
            noise: The variance of the noise of each datum, which is drawn afresh.
            errors: What the generator's error adds to the first images.
        """
        plain, whole = (self._try(noise, each) for each in (np.zeros_like(errors), errors))
        return plain._replace(factor_spread=max(plain.factor_spread, whole.factor_spread))

    def _try(
        self, noise: Float[np.ndarray, " data"], errors: Float[np.ndarray, "tried data"]
    ) -> Usual:
        generator = np.random.default_rng(1)
        found = []
        for own in np.flatnonzero(self._seen[: len(errors)]):
            picture = self._shown[own] + errors[own]
            y = picture + np.sqrt(noise) * generator.standard_normal(len(noise))
            found.append(self.compare(y, float(np.sum(self.centre(picture) ** 2)), int(own)))
        if not found:
            return Usual(np.inf, 0.0)
        factors, _, correlations, _ = np.array(found).T
        return Usual(
            float(np.std(np.log(np.maximum(factors, 1e-30)))),
            float(np.quantile(correlations, _LEAST)),
        )
