"""What every likelihood is: how probable data are, given the image that the generator shows."""

import abc
from typing import Self

import equinox as eqx
from jaxtyping import Array, Float, Key

from latentuq.likelihood.data import ObservedData, Rows


class Likelihood(eqx.Module):
    """p(y | g): the density of the data if the generator shows the image g.

    The generator's own error is integrated out: x = g + n_model, y = A x + n. A member writes the
    maths for one image; everything works under jit, vmap and grad.

    Attributes:
        data: The data, and what made them of the clean image.
        model_variance: The variance that the generator's error gives each row of the data.
    """

    data: eqx.AbstractVar[ObservedData]
    model_variance: eqx.AbstractVar[Float[Array, " rows"]]

    @abc.abstractmethod
    def log_prob(self, image: Float[Array, "*shape"]) -> Float[Array, ""]:
        """Computes ln p(y | g), all constants included."""

    @abc.abstractmethod
    def residual(self, image: Float[Array, "*shape"]) -> Float[Array, " rows"]:
        """Computes r with ln p(y | g) = constant - r.r / 2, for least-squares methods."""

    @abc.abstractmethod
    def misfit(self, image: Float[Array, "*shape"]) -> Float[Array, ""]:
        """Computes a chi-squared: large where the data do not look like what g would give."""

    @abc.abstractmethod
    def variance(self, image: Float[Array, "*shape"]) -> Float[Array, " rows"]:
        """Computes the variance of every row, noise and model error, if the generator shows g."""

    @abc.abstractmethod
    def simulate(
        self, error_key: Key[Array, ""], noise_key: Key[Array, ""], image: Float[Array, "*shape"]
    ) -> tuple[Float[Array, "*shape"], Float[Array, " rows"]]:
        """Draws a clean image x and data y, given that the generator shows g."""

    @abc.abstractmethod
    def sample_image(
        self, key: Key[Array, ""], image: Float[Array, "*shape"]
    ) -> Float[Array, "*shape"]:
        """Draws a clean image x from p(x | g, y)."""

    @abc.abstractmethod
    def with_data(self, y: Float[Array, " data"]) -> Self:
        """The likelihood of other values of the problem's flattened data."""

    @abc.abstractmethod
    def at(self, rows: Rows) -> Self:
        """The same likelihood for images of which only some pixels are made.

        It evaluates densities; it cannot draw images, because it does not see the whole one.
        """

    @property
    @abc.abstractmethod
    def downweighted(self) -> bool:
        """Whether data count less than once, so that the evidence is no density of the data."""
