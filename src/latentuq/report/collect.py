"""Draws and computes what a report shows."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from latentuq.core.batches import padded
from latentuq.core.compilation import bounded_jit
from latentuq.core.errors import UserError
from latentuq.core.randomness import host_generator, spread_keys
from latentuq.inference.importance import systematic_index
from latentuq.inference.membership import responsibilities
from latentuq.posterior.maps import draw_images
from latentuq.posterior.posterior import Posterior
from latentuq.problem.inverse import InverseProblem
from latentuq.report.content import (
    Comparison,
    Component,
    Content,
    LatentView,
    ModeCard,
    Overview,
    Slice,
)

# Modes that get a card, and the share of the mass from which one does.
_MOST_CARDS = 6
_LEAST_WEIGHT = 0.005
_SAMPLES = 24
_CARD_SAMPLES = 6
# Images behind the uncertainty of one mode, and behind the components.
_PER_MODE = 96
_FOR_COMPONENTS = 512
_COMPONENTS = 3
_POINTS = 1500


def collect(
    key: Key[Array, ""], post: Posterior, truth: Float[np.ndarray, "height width"] | None = None
) -> Content:
    """Draws and computes what a report shows.

    Args:
        key: Randomness of the samples.
        post: A posterior with its problem.
        truth: The clean image, where it is known.
    """
    problem = post.problem
    if problem is None:
        raise UserError(post.no_problem)
    if len(problem.prior.shape) != 2:
        raise UserError(f"A report needs two-dimensional images, not {problem.prior.shape}.")
    sample_key, noise_key, mode_key, latent_key = jax.random.split(key, 4)
    shown = shown_modes(post)
    images = np.asarray(post.sample_images(sample_key, _FOR_COMPONENTS))
    data = int(np.count_nonzero(problem.observed))
    evidence = post.log_evidence
    cards = []
    # On the host, where an index is not compiled.
    mode_images, weights, weight_errors, log_densities = jax.device_get(
        (post.mode_images, post.weights, post.weight_errors, post.inference.log_densities)
    )
    chi_squared = np.asarray(
        np.full(len(weights), np.nan) if post.chi_squared is None else post.chi_squared
    )
    members = _members(mode_key, post, shown)
    for mode, us in zip(shown, members, strict=True):
        keys = spread_keys(jax.random.fold_in(mode_key, mode), _PER_MODE)
        within = np.asarray(draw_images(keys, problem, jax.device_put(padded(us, _PER_MODE))))
        cards.append(
            ModeCard(
                image=mode_images[mode],
                weight=float(weights[mode]),
                weight_error=float(weight_errors[mode]),
                depth=evidence - float(log_densities[mode]),
                chi_squared=float(chi_squared[mode]) / max(data, 1),
                deepest=mode == post.map_index,
                std=np.std(within, axis=0),
                samples=within[: min(_CARD_SAMPLES, len(us))],
                draws=len(us),
            )
        )
    return Content(
        data=np.asarray(problem.y),
        map_image=mode_images[post.map_index],
        mean=np.asarray(post.mean),
        std=np.asarray(post.std),
        truth=truth,
        comparison=None if truth is None else _compare(post, problem, truth),
        cards=tuple(cards),
        rest=max(0.0, 1.0 - sum(card.weight for card in cards)),
        samples=images[:_SAMPLES],
        replicates=_replicates(noise_key, problem, images[:_SAMPLES]),
        components=_components(images),
        latent=_latent_view(latent_key, post, shown),
        search_values=-np.asarray(post.inference.search.log_densities, np.float64) + evidence,
        search_modes=_places(np.asarray(post.inference.search.modes), shown),
        slices=_slices(post),
    )


def collect_overview(
    post: Posterior, truth: Float[np.ndarray, "height width"] | None = None
) -> Overview:
    """The images of the overview alone, for posteriors that have them, with or without a problem.

    Args:
        post: A posterior with its problem, or with the maps that came with a file.
        truth: The clean image, where it is known.
    """
    images = np.asarray(post.mode_images)
    if images.ndim != 3:
        raise UserError(f"An overview needs two-dimensional images, not {images.shape[1:]}.")
    data = None if post.problem is None else np.asarray(post.problem.y)
    mean, std = np.asarray(post.mean), np.asarray(post.std)
    return Overview(data, images[post.map_index], mean, std, truth)


def _compare(
    post: Posterior, problem: InverseProblem, truth: Float[np.ndarray, "height width"]
) -> Comparison:
    low, high = np.asarray(post.quantile(np.array([0.05, 0.95])))
    inside = (truth >= low) & (truth <= high)
    seen = np.asarray(problem.observed)
    if seen.shape != truth.shape:  # Data that are no such image hide no pixel in particular.
        seen = np.ones(truth.shape, bool)
    error = np.asarray(post.mean) - truth
    return Comparison(
        hidden_inside_90_percent=float(np.mean(inside[~seen])) if (~seen).any() else None,
        seen_inside_90_percent=float(np.mean(inside[seen])) if seen.any() else None,
        rms_error_of_mean=float(np.sqrt(np.mean(error**2))),
    )


def shown_modes(post: Posterior) -> list[int]:
    """The heaviest modes, and the deepest in any case."""
    heavy = np.flatnonzero(np.asarray(post.weights) >= _LEAST_WEIGHT).tolist()
    shown = (heavy or [0])[:_MOST_CARDS]
    return shown if post.map_index in shown else [*shown[: _MOST_CARDS - 1], post.map_index]


def _members(
    key: Key[Array, ""], post: Posterior, shown: list[int]
) -> list[Float[np.ndarray, "n dim"]]:
    """Posterior draws of each mode: those that were followed to it, or the mode alone if none was.

    Where none was followed at all, each mode has a component of the proposal to itself.
    """
    rng, probes, draws = host_generator(key), post.inference.probes, np.asarray(post.draws)
    ends = np.asarray(probes.modes)
    shares = None if len(ends) else _shares(post, draws)
    members = []
    for mode in shown:
        if shares is None:
            chosen = rng.permutation(np.asarray(probes.points)[ends == mode])[:_PER_MODE]
        else:
            with np.errstate(divide="ignore"):
                log_weights = np.asarray(post.log_weights, np.float64) + np.log(shares[:, mode])
            some = np.isfinite(log_weights).any()
            index = systematic_index(rng, log_weights, _PER_MODE) if some else []
            chosen = rng.permutation(draws[np.asarray(index, int)])
        members.append(chosen if len(chosen) else np.asarray(post.modes)[mode : mode + 1])
    return members


def _replicates(
    key: Key[Array, ""], problem: InverseProblem, images: Float[np.ndarray, "n height width"]
) -> Float[np.ndarray, "n *data"]:
    """What the instrument would have made of each image, missing where the data are."""
    made = _observe(problem, spread_keys(key, len(images)), images)
    return np.where(np.asarray(problem.observed), made, np.nan)


@bounded_jit
def _observe(
    problem: InverseProblem, keys: Key[Array, " n"], images: Float[np.ndarray, "n height width"]
) -> Float[Array, "n *data"]:
    def observe_one(key, x):
        return problem.operator.apply(x) + problem.noise.sample(key, problem.y.shape)

    return jax.vmap(observe_one)(keys, jnp.asarray(images))


def _components(images: Float[np.ndarray, "n height width"]) -> tuple[Component, ...]:
    """Leading principal components of posterior images."""
    shape = images.shape[1:]
    mean = np.mean(images, axis=0).ravel()
    centred = images.reshape(len(images), -1) - mean
    values, vectors = np.linalg.eigh(centred @ centred.T / len(images))
    total = max(float(np.sum(values)), 1e-30)
    found = []
    for place in range(1, _COMPONENTS + 1):
        value = max(float(values[-place]), 0.0)
        axis = vectors[:, -place] @ centred
        axis *= 2 * np.sqrt(value) / max(float(np.linalg.norm(axis)), 1e-30)
        found.append(
            Component(value / total, (mean - axis).reshape(shape), (mean + axis).reshape(shape))
        )
    return tuple(found)


def _latent_view(key: Key[Array, ""], post: Posterior, shown: list[int]) -> LatentView:
    """Two directions: what parts the two heaviest modes, if there are two, and the widest left."""
    us, mode = labelled_draws(key, post, _POINTS)
    spread = np.cov(us.T).reshape(post.dim, post.dim)
    axes = np.linalg.eigh(spread)[1][:, ::-1][:, :2]
    parted = len(shown) > 1
    if parted:  # Fisher's discriminant; modes differ, while the means of their Gaussians may not.
        first, second = np.asarray(post.modes, np.float64)[shown[:2]]
        factors = np.asarray(post.inference.factors, np.float64)[shown[:2]]
        axis = np.linalg.solve(np.sum(factors @ factors.mT, axis=0), first - second)
        axis /= np.linalg.norm(axis)
        off = np.eye(post.dim) - np.outer(axis, axis)
        axes = np.column_stack([axis, np.linalg.eigh(off @ spread @ off)[1][:, -1]])
    if post.dim == 1:  # There is no second direction.
        axes = np.array([[1.0, 0.0]])
    centres = np.asarray(post.modes)[shown] @ axes
    return LatentView(us @ axes, _places(mode, shown), centres, parted)


def labelled_draws(
    key: Key[Array, ""], post: Posterior, n: int
) -> tuple[Float[np.ndarray, "n dim"], Int[np.ndarray, " n"]]:
    """Posterior draws, each with its most probable mode; -1 for one that belongs to none.

    They are those that were followed to their modes, however many these are, or else n fresh ones:
    then every mode has a component of the proposal to itself.
    """
    probes = post.inference.probes
    us, modes = np.asarray(probes.points, np.float64), np.asarray(probes.modes)
    if len(us):
        return us, modes
    us = np.asarray(post.sample(key, n), np.float64)
    return us, np.argmax(_shares(post, us), axis=1)


def _shares(post: Posterior, us: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n modes"]:
    """How much of each draw belongs to each mode, compiled: `Posterior.responsibilities` is not."""
    inference = post.inference
    by_component = responsibilities(inference.proposal.mixture, np.asarray(us, post.modes.dtype))
    return by_component @ np.asarray(inference.membership, np.float64)


def _places(modes: Int[np.ndarray, " n"], shown: list[int]) -> Int[np.ndarray, " n"]:
    """Where each mode stands among those shown, -1 for others."""
    places = {mode: place for place, mode in enumerate(shown)}
    return np.array([places.get(int(mode), -1) for mode in modes], int)


def _slices(post: Posterior) -> tuple[Slice, ...]:
    """Through the heaviest mode's Gaussian along its widest, its middle and its narrowest axis."""
    centre = np.asarray(post.inference.means, np.float64)[0]
    factor = np.asarray(post.inference.factors, np.float64)[0]
    vectors, widths, _ = np.linalg.svd(factor)
    steps = np.linspace(-3, 3, 41)
    names = {post.dim // 2: "middle axis", post.dim - 1: "narrowest axis", 0: "widest axis"}
    chosen = sorted(names)
    points = [centre + steps[:, None] * widths[axis] * vectors[:, axis] for axis in chosen]
    points = np.concatenate([*points, centre[None]]).astype(post.modes.dtype)
    exact = -np.asarray(post.log_prob(points), np.float64)
    return tuple(
        Slice(names[axis], float(widths[axis]), steps, part - exact[-1])
        for axis, part in zip(chosen, np.split(exact[:-1], len(chosen)), strict=True)
    )
