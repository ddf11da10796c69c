"""Posterior: what the inference found about u, and the images that follow from it."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from latentuq.core.arrays import read_count, read_real
from latentuq.core.batches import in_chunks
from latentuq.core.compilation import bounded_jit
from latentuq.core.errors import UserError
from latentuq.core.randomness import host_generator, read_key, spread_keys
from latentuq.inference.importance import expectation, systematic_index
from latentuq.inference.mixture import Mixture
from latentuq.inference.result import Diagnostics, Inference
from latentuq.inference.verdict import Verdict
from latentuq.posterior.dataset import Contents, SavedImages, make_dataset, make_samples
from latentuq.posterior.maps import (
    ImageMaps,
    decode_images,
    draw_images,
    make_maps,
    map_draws,
    missing_maps,
    quantiles,
)
from latentuq.posterior.summary import describe, tabulate
from latentuq.problem.inverse import InverseProblem

if TYPE_CHECKING:
    import xarray

LogDensity = Callable[[Float[Array, " dim"]], Float[Array, ""]]

# Points at which a density is evaluated at once.
_CHUNK = 1024
# Quantile maps that are exported; the others need the problem.
LEVELS = (0.005, 0.025, 0.05, 0.1, 0.16, 0.25, 0.5, 0.75, 0.84, 0.9, 0.95, 0.975, 0.995)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """p(u | y), and p(x | y) with it: modes, weights, evidence, draws, certificate and images.

    Everything about u is here for any density; what concerns images needs the problem, and says
    so in a `UserError` where there is none. The maps `mean`, `std` and `quantile` are made once,
    when first asked for, from n = 2048 draws of u (fewer for images of more than 16384 pixels)
    chosen by `key`. With n or ess, whichever is smaller, their Monte Carlo errors are at most about
    std / sqrt(n) for the mean, std / sqrt(2 n) for the standard deviation of a normal pixel, and
    sqrt(q (1 - q) / n) in probability for a quantile.

    Attributes:
        inference: What the engine returned; the properties below read it.
        key: The key that `solve` was called with.
        problem: The problem that was solved; None for `solve_density`.
        log_density_fn: The unnormalised log density of one u; None if a file could not hold it.
        chi_squared: The chi-squared of the data at each mode; None without data.
        provenance: Versions of the packages, name and checksum of the model.
        no_problem: Why there is no problem, where there is none.
        saved_images: Maps that came with a file.
    """

    inference: Inference
    key: Key[Array, ""]
    problem: InverseProblem | None = None
    log_density_fn: LogDensity | None = None
    chi_squared: Float[Array, " modes"] | None = None
    provenance: Mapping[str, str] = dataclasses.field(default_factory=dict)
    no_problem: str = ""
    saved_images: SavedImages | None = None

    @property
    def dim(self) -> int:
        """Size of u."""
        return self.inference.modes.shape[1]

    @property
    def modes(self) -> Float[Array, "modes dim"]:
        """Maxima of the density, heaviest first."""
        return self.inference.modes

    @property
    def weights(self) -> Float[Array, " modes"]:
        """Posterior mass of each mode."""
        return self.inference.weights

    @property
    def weight_errors(self) -> Float[Array, " modes"]:
        """Standard errors of the weights."""
        return self.inference.weight_errors

    @property
    def map_index(self) -> int:
        """Index of the deepest mode, which need not be the heaviest."""
        return self.inference.map_index

    @property
    def log_evidence(self) -> float:
        """Ln p(y), or the log of the integral of the density."""
        return float(self.inference.draws.log_evidence)

    @property
    def log_evidence_error(self) -> float:
        """The standard error of `log_evidence`."""
        return float(self.inference.draws.log_evidence_error)

    @property
    def draws(self) -> Float[Array, "n dim"]:
        """Draws of the proposal, which `log_weights` make represent the posterior."""
        return jnp.asarray(self.inference.draws.draws)

    @property
    def log_weights(self) -> Float[Array, " n"]:
        """The log weights of the draws, normalised: their logsumexp is 0."""
        return jnp.asarray(self.inference.draws.log_weights)

    @property
    def verdict(self) -> Verdict:
        """How far to trust the answer: three marks with their reasons, and what to do."""
        return self.inference.verdict

    @property
    def diagnostics(self) -> Diagnostics:
        """The numbers of the certificate, and the cost.

        `reduced_chi_squared` is that of the data at the deepest mode over the number of observed
        data: nothing is taken off for the dim numbers that the mode fits, nor for the pull of the
        prior.
        """
        return self.inference.diagnostics

    def responsibilities(self, u: ArrayLike) -> Float[Array, "*batch modes"]:
        """Probability that a posterior draw at u belongs to each mode, w_k q_k(u) / q(u).

        For any batch of u.
        """
        mixture, membership = self.inference.proposal.mixture, self.inference.membership
        return self._over_batch(lambda us: _responsibilities(mixture, membership, us), u)

    def log_prob(self, u: ArrayLike) -> Float[Array, "*batch"]:
        """Normalised log posterior density, log_density(u) - log_evidence, for any batch of u."""
        if self.log_density_fn is None:
            raise UserError(f"The log density is not known: {self.no_problem}")
        fn, log_evidence = self.log_density_fn, jnp.asarray(self.inference.draws.log_evidence)
        return self._over_batch(lambda us: _log_probs(fn, log_evidence, us), u)

    def sample(self, key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
        """Draws n points u from the posterior, in random order.

        The weighted draws are resampled systematically: each appears n W times, rounded up or
        down at random, which repeats as few as possible. Draws do repeat when n is not small
        compared with `diagnostics.ess`, and n cannot make up for a small ess.
        """
        n = read_count(n)
        if not self._has_draws:
            raise UserError(f"There is nothing to draw from: the posterior is {self.verdict}")
        rng = host_generator(read_key(key))
        chosen = rng.permutation(systematic_index(rng, self.log_weights, n))
        return jax.device_put(np.asarray(self.draws)[chosen])

    def sample_images(
        self, key: Key[Array, ""], n: int, mean: bool = False
    ) -> Float[Array, "n *shape"]:
        """Draws n clean images x from p(x | y), model error included (`mean=True`: g(u) alone)."""
        problem = self._problem()
        u_key, image_key = jax.random.split(read_key(key))
        us = self.sample(u_key, n)
        if mean:
            return decode_images(problem.prior, us)
        return draw_images(spread_keys(image_key, n), problem, us)

    def expect(
        self, fn: Callable[[Float[Array, " dim"]], Array]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Posterior mean of fn(u), a number or an array, and its Monte Carlo standard error.

        All weighted draws are used, so this beats an average over `sample`. NaN if no draw has any
        weight.
        """
        values = self._over_batch(lambda us: _evaluate(fn, us), self.draws)
        mean, error = expectation(values, self.log_weights)
        return jnp.asarray(mean, self.draws.dtype), jnp.asarray(error, self.draws.dtype)

    @cached_property
    def mode_images(self) -> Float[Array, "modes *shape"]:
        """The decoder's image g(u) at each mode."""
        if self.saved_images is not None:
            return self.saved_images.mode_images
        return decode_images(self._problem().prior, self.modes)

    @property
    def mean(self) -> Float[Array, "*shape"]:
        """Posterior mean of every pixel of x."""
        return self._moments[0]

    @property
    def std(self) -> Float[Array, "*shape"]:
        """Posterior standard deviation of every pixel of x, model error included."""
        return self._moments[1]

    def quantile(self, q: ArrayLike) -> Float[Array, "*levels_and_shape"]:
        """Posterior quantiles of every pixel of x, model error included; q: level(s) in [0, 1]."""
        levels = read_real(q, "q")
        if not np.all((levels >= 0) & (levels <= 1)):
            raise UserError(f"A quantile's level is between 0 and 1, not {q!r}.")
        if self.saved_images is not None:
            saved = self.saved_images.levels
            if np.all(np.isin(levels, saved)):
                return self.saved_images.quantiles[np.searchsorted(saved, levels)]
            if self.problem is None:
                raise UserError(
                    f"Of the quantiles only {', '.join(f'{level:g}' for level in saved)} were"
                    f" saved. {self.no_problem}"
                )
        return jax.device_put(quantiles(self._maps, levels))

    def to_xarray(self) -> "xarray.Dataset":
        """Everything as one labelled dataset.

        Modes, their weights, errors, log densities, chi-squared and images along `mode`; weighted
        draws of u along `weighted_draw`; maps of x along `row` and `column`, quantiles also along
        `quantile`; evidence; verdict, diagnostics, versions, model and key as attributes. The
        draws carry `log_weights`: programs that expect equally weighted draws, such as ArviZ, want
        `sample` instead, as one chain, or the file that `save` writes.
        """
        return make_dataset(self._contents())

    def save(self, path: str | Path, force: bool = False, samples: int = 500) -> None:
        """Writes a netCDF file for `load_posterior`, or for any program that reads netCDF.

        The problem goes into the file as well, but not its prior, nor operators that are Python
        code: `load_posterior` says what it takes to have images again.

        Args:
            path: The file, by convention `.nc`.
            force: Whether to replace a file that exists.
            samples: Equally weighted draws of u, and of x if there is a problem, in the group
                `posterior`, which `arviz.from_netcdf` reads; 0 for none.
        """
        drawn = None
        if samples and self._has_draws:
            _, _, samples_key = jax.random.split(self.key, 3)
            u_key, image_key = jax.random.split(samples_key)
            us, images = self.sample(u_key, samples), None
            if (problem := self.problem) is not None:
                images = draw_images(spread_keys(image_key, samples), problem, us)
            drawn = make_samples(us, images)
        # Reading and writing files is of no use to most posteriors.
        from latentuq.posterior.file import write_posterior

        write_posterior(path, self._contents(), drawn, force)

    def summary(self) -> str:
        """A table of the modes, the evidence and the certificate, as text."""
        downweighted = self.problem is not None and self.problem.downweighted
        return tabulate(self.inference, self.chi_squared, downweighted)

    def __repr__(self) -> str:
        return describe(self.inference)

    @property
    def _has_draws(self) -> bool:
        return bool(np.any(np.asarray(self.log_weights) > -np.inf))

    def _problem(self) -> InverseProblem:
        if self.problem is None:
            raise UserError(self.no_problem)
        return self.problem

    @cached_property
    def _maps(self) -> ImageMaps:
        problem = self._problem()
        if not self._has_draws:
            return missing_maps(problem.prior.shape)
        u_key, image_key = jax.random.split(_image_key(self.key))
        us = self.sample(u_key, map_draws(problem.prior.shape))
        return make_maps(image_key, problem, us)

    @cached_property
    def _moments(self) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
        maps = self.saved_images or self._maps
        return jax.device_put((maps.mean, maps.std))

    def _contents(self) -> Contents:
        images = self.saved_images
        if self.problem is not None:
            levels = np.asarray(LEVELS)
            images = SavedImages(
                self.mean, self.std, levels, self.quantile(levels), self.mode_images
            )
        return Contents(
            self.inference,
            self.key,
            self.provenance,
            self.problem,
            self.no_problem,
            self.chi_squared,
            images,
        )

    def _over_batch(self, fn: Callable[[Array], Array], u: ArrayLike) -> Array:
        u = jnp.asarray(u, self.modes.dtype)
        if u.ndim == 0 or u.shape[-1] != self.dim:
            raise UserError(f"u has shape {u.shape}, but its last axis must be {self.dim} long.")
        if not u.size:
            raise UserError(f"u of shape {u.shape} holds no point.")
        flat = u.reshape(-1, self.dim)
        values = jax.device_put(in_chunks(fn, _chunk(len(flat)), flat))
        return values.reshape(*u.shape[:-1], *values.shape[1:])


def _image_key(key: Key[Array, ""]) -> Key[Array, ""]:
    """The half of the key that `_infer` leaves."""
    _, image_key = jax.random.split(key)
    return image_key


def _chunk(n: int) -> int:
    """A power of two, so that batches of many sizes compile few times."""
    return min(_CHUNK, 1 << (n - 1).bit_length())


@bounded_jit
def _evaluate(
    fn: Callable[[Float[Array, " dim"]], Array], us: Float[Array, "n dim"]
) -> Float[Array, "n ..."]:
    return jax.vmap(fn)(us)


@bounded_jit
def _responsibilities(
    mixture: Mixture, membership: Float[Array, "components modes"], us: Float[Array, "n dim"]
) -> Float[Array, "n modes"]:
    return jax.vmap(mixture.responsibilities)(us) @ membership


@bounded_jit
def _log_probs(
    fn: LogDensity, log_evidence: Float[Array, ""], us: Float[Array, "n dim"]
) -> Float[Array, " n"]:
    log_densities = jax.vmap(fn)(us)
    return jnp.where(jnp.isnan(log_densities), -jnp.inf, log_densities) - log_evidence
