"""What every likelihood is: how probable data are, given the image that the generator shows."""

import abc
from typing import Self

import equinox as eqx
from jaxtyping import Array, Float, Key

from latentuq.likelihood.data import ObservedData


class Likelihood(eqx.Module):
    """p(y | g): the density of the data if the generator shows the image g.

    The generator's own error is integrated out: x = g + n_model, y = A x + n. A member writes the
    maths for one image; everything works under jit, vmap and grad. Data are measured in the units
    of their rows, see `ObservedData`; only `simulate` and `with_data` know those of the problem.

    Attributes:
        data: The data, and what made them of the clean image.
        model_variance: The variance that the generator's error gives each row of the data.
        log_units: What is subtracted from `log_prob` for the density in the problem's units.
    """

    data: eqx.AbstractVar[ObservedData]
    model_variance: eqx.AbstractVar[Float[Array, " rows"]]
    log_units: eqx.AbstractVar[Float[Array, ""]]

    @abc.abstractmethod
    def log_prob(self, image: Float[Array, "*shape"]) -> Float[Array, ""]:
        """Computes ln p(y | g), all constants included, of the data in the rows' units.

        The constant of other units may be so large that float32 would round the rest.
        """

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
        """Draws a clean image x and data y in the problem's units, given that g is shown."""

    @abc.abstractmethod
    def sample_image(
        self, key: Key[Array, ""], image: Float[Array, "*shape"]
    ) -> Float[Array, "*shape"]:
        """Draws a clean image x from p(x | g, y)."""

    @abc.abstractmethod
    def with_data(self, y: Float[Array, " rows"]) -> Self:
        """The likelihood of other values of the problem's flattened data."""

    @property
    @abc.abstractmethod
    def downweighted(self) -> bool:
        """Whether data count less than once, so that the evidence is no density of the data."""
