"""GenerativePrior: u -> z -> x as one callable, with the generator's error beside it."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.core.errors import UserError
from latentuq.core.text import show_size
from latentuq.data.scaling import Scaling
from latentuq.prior.check import PriorCheck
from latentuq.prior.flow import Flow
from latentuq.prior.model_error import ModelError
from latentuq.prior.vae import Encoder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Card:
    """What is known about a prior besides its numbers: name, metrics, how it was made, its file.

    `checksum` is that of the weights in the model file. `held_out` are a few images on the prior's
    scale that played no part in training, and `check` is what such images have shown.

    It rides along in the static part of compiled functions, so it is compared by name and checksum
    alone: a model that is loaded twice compiles nothing twice.
    """

    name: str = "unnamed"
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)
    checksum: str = ""
    check: PriorCheck | None = dataclasses.field(default=None, compare=False)
    held_out: Float[np.ndarray, "n *shape"] | None = dataclasses.field(
        default=None, compare=False, repr=False
    )
    path: Path | None = dataclasses.field(default=None, compare=False)


class GenerativePrior(eqx.Module):
    """x = decode(u) + n_model with u ~ N(0, I) and n_model ~ N(0, S_model).

    `decode` is differentiable to second order. `model_error` is the S_model in use;
    `model_errors` holds every estimate that came with the prior, by name.
    """

    decoder: Callable[[Float[Array, " dim"]], Float[Array, "*shape"]]
    flow: Flow | None
    model_error: ModelError
    model_errors: dict[str, ModelError]
    encoder: Encoder | None
    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    scaling: Scaling = eqx.field(static=True, default=Scaling(0.0, 1.0))
    card: Card = eqx.field(static=True, default=Card())

    def generate(self, u: Float[Array, " dim"]) -> Float[Array, "*shape"]:
        """g(u) = decoder(flow(u)) at one point, in the networks' own precision."""
        if jnp.shape(u) != (self.dim,):
            raise UserError(
                f"u has shape {jnp.shape(u)}, but one point has shape ({self.dim},); map over"
                " many with jax.vmap."
            )
        return self.decoder(u if self.flow is None else self.flow(u))

    def decode(self, u: Float[Array, "*batch dim"]) -> Float[Array, "*batch_and_shape"]:
        """g(u), the image mean, at one point or at any batch of points."""
        u = jnp.asarray(u)
        if u.ndim == 0 or u.shape[-1] != self.dim:
            raise UserError(
                f"u has shape {u.shape}, but the last axis must be the prior's dim, {self.dim}."
            )
        return _over_batch(self.generate, u.ndim - 1)(u)

    def sample(self, key: Key[Array, ""], n: int, mean: bool = False) -> Float[Array, "n *shape"]:
        """Draws n clean images x from the prior, model error included (`mean=True`: g(u) alone)."""
        u_key, error_key = jax.random.split(key)
        images = self.decode(jax.random.normal(u_key, (n, self.dim)))
        if mean:
            return images
        errors = jax.vmap(self.model_error.sample)(jax.random.split(error_key, n))
        return images + self.model_error.gain_at(images) * errors

    def plot(self, n: int = 24, key: Key[Array, ""] | None = None) -> "Figure":
        """Draws a sheet of n samples, model error included; notebooks show it.

        Args:
            n: The number of samples.
            key: The randomness of the samples; always the same by default.
        """
        from latentuq.report.notebook import plot_prior

        return plot_prior(self, n, key)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Writes a model file for `load_prior`; one that exists is replaced only with `force`."""
        from latentuq.prior.model_file import save_prior

        if Path(path).exists() and not force:
            raise UserError(f"{path} exists and would be overwritten; force=True allows it.")
        save_prior(path, self)

    def encode(
        self, x: Float[Array, "*batch_and_shape"]
    ) -> tuple[Float[Array, "*batch dim"], Float[Array, "*batch dim"]]:
        """Mean and standard deviation of the VAE's approximate posterior over z (not u)."""
        if self.encoder is None:
            raise UserError(f"The prior {self.card.name!r} has no encoder.")
        x = jnp.asarray(x)
        if x.shape[x.ndim - len(self.shape) :] != self.shape:
            raise UserError(f"x has shape {x.shape}, but the prior's images are {self.shape}.")
        return _over_batch(self.encoder, x.ndim - len(self.shape))(x)

    def with_model_error(self, name: str) -> "GenerativePrior":
        """The same prior with another of its estimates of S_model in use."""
        if name not in self.model_errors:
            known = ", ".join(sorted(self.model_errors)) or "none"
            raise UserError(f"There is no model error {name!r}; this prior has: {known}.")
        return dataclasses.replace(self, model_error=self.model_errors[name])

    def with_gaussian_error(self) -> "GenerativePrior":
        """The same prior with S_model alone: no gain, no limit to what data count for."""
        error = ModelError(self.model_error.variance, self.model_error.factors)
        return dataclasses.replace(self, model_error=error)

    @property
    def model_error_name(self) -> str:
        """The name by which `model_errors` lists the error in use, or one equal to it."""
        for name, error in self.model_errors.items():
            if eqx.tree_equal(*jax.device_get((error, self.model_error))):
                return name
        raise UserError(f"The model error in use has no name: it is none that {self!r} came with.")

    # Compared by identity: `jax.jit(prior.decode)` needs a hash, which arrays lack.
    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        flow = "no flow" if self.flow is None else f"flow of {self.flow.kept.shape[0]} couplings"
        image = f"{show_size(self.shape)} image"
        return f"GenerativePrior({self.card.name!r}: u in R^{self.dim} -> {image}, {flow})"


def _over_batch(fn: Callable, axes: int) -> Callable:
    for _ in range(axes):
        fn = jax.vmap(fn)
    return fn
