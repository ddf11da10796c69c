"""Classifier two-sample test: can a small network tell two sets of draws apart?"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from latentuq.core.errors import UserError
from latentuq.prior.networks import init_linear

_WIDTH = 64
_BATCH = 256
_EPOCHS = 30
_FEWEST_STEPS = 200
_FOLDS = 3

FEWEST_DRAWS = 10 * _FOLDS
"""Fewer draws than this in either set say nothing."""


def two_sample_accuracy(
    key: Key[Array, ""], a: Float[Array, "n ..."], b: Float[Array, "n ..."]
) -> float:
    """Held-out accuracy of a perceptron (64-64) that separates `a` from `b`; 0.5: it cannot.

    Draws are flattened and standardised; each fold is predicted by a network trained on the others.
    """
    if a.shape[1:] != b.shape[1:]:
        raise UserError(f"The two sets have points of different shapes, {a.shape} and {b.shape}.")
    if min(len(a), len(b)) < FEWEST_DRAWS:
        raise UserError(
            f"A two-sample test needs {FEWEST_DRAWS} draws of each, not {len(a)} and {len(b)}."
        )
    per_fold = min(len(a), len(b)) // _FOLDS
    n = per_fold * _FOLDS
    a_key, b_key, fit_key = jax.random.split(key, 3)
    points = jnp.concatenate([_pick(a_key, a, n), _pick(b_key, b, n)])
    points = (points - jnp.mean(points, axis=0)) / (jnp.std(points, axis=0) + 1e-6)
    labels = jnp.repeat(jnp.array([0.0, 1.0]), n)
    # Row f of a fold's matrix: the same number of points from both sets.
    index = jnp.arange(2 * n).reshape(2, _FOLDS, per_fold).swapaxes(0, 1).reshape(_FOLDS, -1)
    training = jnp.stack([jnp.delete(index, f, axis=0).ravel() for f in range(_FOLDS)])
    steps = max(_FEWEST_STEPS, _EPOCHS * training.shape[1] // _BATCH)
    accuracies = _fold_accuracies(
        points, labels, jax.random.split(fit_key, _FOLDS), training, index, steps
    )
    return float(jnp.mean(accuracies))


def _pick(key: Key[Array, ""], draws: Array, n: int) -> Array:
    return jnp.asarray(draws, jnp.float32).reshape(len(draws), -1)[
        jax.random.permutation(key, len(draws))[:n]
    ]


@eqx.filter_jit
def _fold_accuracies(points, labels, keys, training, testing, steps):
    fold = partial(_fold_accuracy, points, labels, steps)
    return jax.vmap(fold)(keys, training, testing)


def _fold_accuracy(points, labels, steps, key, training, testing):
    import optax

    init_key, batch_key = jax.random.split(key)
    keys = jax.random.split(init_key, 3)
    sizes = [points.shape[1], _WIDTH, _WIDTH, 1]
    layers = [init_linear(k, i, o) for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True)]
    optimizer = optax.adamw(optax.cosine_decay_schedule(2e-3, steps), weight_decay=1e-2)

    def logits(layers, x):
        first, second, last = layers
        return last(jax.nn.silu(second(jax.nn.silu(first(x)))))[:, 0]

    def loss(layers, index):
        values = optax.sigmoid_binary_cross_entropy(logits(layers, points[index]), labels[index])
        return jnp.mean(values)

    def step(carry, key):
        layers, moments = carry
        index = jax.random.choice(key, training, (_BATCH,))
        changes, moments = optimizer.update(jax.grad(loss)(layers, index), moments, layers)
        return (optax.apply_updates(layers, changes), moments), None

    (layers, _), _ = jax.lax.scan(
        step, (layers, optimizer.init(layers)), jax.random.split(batch_key, steps)
    )
    return jnp.mean((logits(layers, points[testing]) > 0) == (labels[testing] > 0.5))
