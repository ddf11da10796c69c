"""Posterior: what the inference found about u, and the images that follow from it."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property, partial
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
from latentuq.inference.result import Diagnostics, Inference
from latentuq.inference.target import LogDensity
from latentuq.inference.verdict import Verdict
from latentuq.posterior.maps import (
    ImageMaps,
    SavedImages,
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
    from matplotlib.figure import Figure

# The number of points at which a density is evaluated at once.
_CHUNK = 1024


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
        provenance: The versions of the packages, the name and the checksum of the model.
        no_problem: A sentence that says why there is no problem, where there is none.
        saved_images: The maps that came with a file; None if there are none.
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
        """The length of u."""
        return self.inference.modes.shape[1]

    @property
    def modes(self) -> Float[Array, "modes dim"]:
        """The maxima of the density, the heaviest first."""
        return self.inference.modes

    @property
    def weights(self) -> Float[Array, " modes"]:
        """The posterior mass of each mode."""
        return self.inference.weights

    @property
    def weight_errors(self) -> Float[Array, " modes"]:
        """The standard errors of the weights."""
        return self.inference.weight_errors

    @property
    def map_index(self) -> int:
        """The index of the deepest mode, which need not be the heaviest."""
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
        """The draws of the proposal, which `log_weights` make represent the posterior."""
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
        """Computes the probabilities that posterior draws at any batch of u belong to each mode."""
        by_component = self._over_batch(self.inference.proposal.mixture.responsibilities, u)
        return by_component @ self.inference.membership

    def log_prob(self, u: ArrayLike) -> Float[Array, "*batch"]:
        """Computes the log posterior density, normalised by the evidence, for any batch of u."""
        if self.log_density_fn is None:
            raise UserError(f"The log density is not known: {self.no_problem}")
        log_densities = self._over_batch(self.log_density_fn, u)
        log_densities = jnp.where(jnp.isnan(log_densities), -jnp.inf, log_densities)
        return log_densities - self.inference.draws.log_evidence

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
        """Computes the posterior mean of fn(u), a number or an array, and its standard error.

        All weighted draws are used, so this beats an average over `sample`. Both are NaN if no
        draw has any weight.
        """
        values = self._over_batch(fn, self.draws)
        mean, error = expectation(values, self.log_weights, self.inference.draws.groups)
        return jnp.asarray(mean, self.draws.dtype), jnp.asarray(error, self.draws.dtype)

    @cached_property
    def mode_images(self) -> Float[Array, "modes *shape"]:
        """The decoder's image g(u) at each mode."""
        if self.saved_images is not None:
            return self.saved_images.mode_images
        return decode_images(self._problem().prior, self.modes)

    @cached_property
    def mean(self) -> Float[Array, "*shape"]:
        """The posterior mean of every pixel of x."""
        return jax.device_put((self.saved_images or self._maps).mean)

    @cached_property
    def std(self) -> Float[Array, "*shape"]:
        """The posterior standard deviation of every pixel of x, model error included."""
        return jax.device_put((self.saved_images or self._maps).std)

    def quantile(self, q: ArrayLike) -> Float[Array, "*levels_and_shape"]:
        """Computes quantiles of every pixel of x, model error included, at levels q in [0, 1]."""
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
        """Returns everything as one labelled dataset.

        Modes, their weights, errors, log densities, chi-squared and images along `mode`; weighted
        draws of u along `weighted_draw`; maps of x along `row` and `column`, quantiles also along
        `quantile`; evidence; verdict, diagnostics, versions, model and key as attributes. The
        draws carry `log_weights`: programs that expect equally weighted draws, such as ArviZ, want
        `sample` instead, as one chain, or the file that `save` writes.
        """
        from latentuq.posterior.dataset import make_dataset

        return make_dataset(self)

    def save(self, path: str | Path, force: bool = False, samples: int = 500) -> None:
        """Writes a netCDF file for `load_posterior`, or for any program that reads netCDF.

        The problem goes into the file as well, but not its prior, nor operators that are Python
        code: `load_posterior` says what it takes to have images again.

        Args:
            path: The file, by convention `.nc`.
            force: Whether to replace a file that exists.
            samples: The number of equally weighted draws of u, and of x if there is a problem, in
                the group `posterior`, which `arviz.from_netcdf` reads; 0 for none.
        """
        from latentuq.posterior.dataset import make_samples
        from latentuq.posterior.file import check_samples, write_posterior

        drawn = None
        if self.problem is not None:
            check_samples(samples, self.problem.prior)
        if samples and self._has_draws:
            _, _, samples_key = jax.random.split(self.key, 3)
            u_key, image_key = jax.random.split(samples_key)
            us, images = self.sample(u_key, samples), None
            if (problem := self.problem) is not None:
                images = draw_images(spread_keys(image_key, samples), problem, us)
            drawn = make_samples(us, images)
        write_posterior(path, self, drawn, force)

    def report(
        self,
        folder: str | Path,
        force: bool = False,
        title: str | None = None,
        truth: ArrayLike | None = None,
    ) -> Path:
        """Writes the report that `latentuq reconstruct` writes, and returns the path of its page.

        Args:
            folder: Where the report shall be; made if it is missing.
            force: Whether the folder may hold files already.
            title: The title of the page; by default it names the prior.
            truth: The clean image, where it is known.

        Raises:
            UserError: There is no problem, its images are not two-dimensional, or the folder cannot
                be written.
        """
        from latentuq.report.notebook import report_posterior

        return report_posterior(self, folder, force, title, truth)

    def plot(self, truth: ArrayLike | None = None) -> "Figure":
        """Draws data, most probable image, mean and standard deviation, and the truth if given.

        The figure has the method `savefig`; notebooks show it.
        """
        from latentuq.report.notebook import plot_posterior

        return plot_posterior(self, truth)

    def _repr_html_(self) -> str:
        from latentuq.report.notebook import show_posterior

        return show_posterior(self)

    def summary(self) -> str:
        """Writes a table of the modes, the evidence and the certificate, as text."""
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
        _, maps_key = jax.random.split(self.key)  # The inference has used the first half.
        u_key, image_key = jax.random.split(maps_key)
        us = self.sample(u_key, map_draws(problem.prior.shape))
        return make_maps(image_key, problem, us)

    def _over_batch(
        self, fn: Callable[[Float[Array, " dim"]], Array], u: ArrayLike
    ) -> Float[Array, "..."]:
        """Evaluates a function of one u at any batch of them."""
        u = jnp.asarray(u if isinstance(u, Array) else read_real(u, "u"), self.modes.dtype)
        if u.ndim == 0 or u.shape[-1] != self.dim:
            raise UserError(f"u has shape {u.shape}, but its last axis must be {self.dim} long.")
        if not u.size:
            raise UserError(f"u of shape {u.shape} holds no point.")
        flat = u.reshape(-1, self.dim)
        # A power of two, so that batches of many sizes compile few times.
        chunk = min(_CHUNK, 1 << (len(flat) - 1).bit_length())
        values = jax.device_put(in_chunks(partial(_evaluate, fn), chunk, flat))
        return values.reshape(*u.shape[:-1], *values.shape[1:])


@bounded_jit
def _evaluate(
    fn: Callable[[Float[Array, " dim"]], Array], us: Float[Array, "n dim"]
) -> Float[Array, "n ..."]:
    return jax.vmap(fn)(us)
