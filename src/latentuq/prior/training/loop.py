"""Adam with warm-up, cosine decay and weight averaging: one loop for VAE and flow, resumable."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from latentuq.prior.training.config import FitConfig
from latentuq.prior.training.progress import Progress

# Few images make batches smaller, down to the second number, until there are so many steps in all.
_LEAST_STEPS = 400
_SMALLEST_BATCH = 16

LossFn = Callable[[Any, Key[Array, ""], Array], tuple[Float[Array, ""], dict[str, Array]]]


class FitState(NamedTuple):
    """What the next epoch needs: trainable arrays, their average, Adam's moments, epochs done."""

    parameters: Any
    average: Any
    moments: Any
    epoch: int


class Fitter(NamedTuple):
    """The two compiled halves of a training step.

    They are two because XLA on CPU gains next to nothing by fusing them, and on some machines
    loses; `python -m studies priors` measures both.
    """

    init: Callable[[Any], FitState]
    gradient: Callable
    update: Callable


def make_fitter(static: Any, loss_fn: LossFn, config: FitConfig, steps_per_epoch: int) -> Fitter:
    """Compiles gradient and update for models that share the non-array part `static`."""
    steps = max(2, steps_per_epoch * config.epochs)
    warmup = min(round(config.warmup * steps_per_epoch), steps // 2)
    schedule = optax.warmup_cosine_decay_schedule(
        0.0 if warmup else config.learning_rate,
        config.learning_rate,
        warmup,
        steps,
        0.01 * config.learning_rate,
    )
    optimizer = optax.adamw(
        schedule,
        weight_decay=config.weight_decay,
        mask=lambda parameters: jax.tree.map(_is_stacked_matrix, parameters),
    )

    def init(parameters: Any) -> FitState:
        return FitState(parameters, parameters, optimizer.init(parameters), 0)

    @eqx.filter_jit
    def gradient(parameters, key, examples, index):
        def loss(parameters):
            return loss_fn(eqx.combine(parameters, static), key, examples[index])

        return jax.grad(loss, has_aux=True)(parameters)

    @eqx.filter_jit
    def update(parameters, average, moments, gradients, step):
        changes, moments = optimizer.update(gradients, moments, parameters)
        # A lone scalar (the VAE's log sigma) has far to go and Adam's early, large gradients make
        # it late; it takes longer steps.
        changes = jax.tree.map(lambda c: 10 * c if c.ndim == 0 else c, changes)
        parameters = optax.apply_updates(parameters, changes)
        # Young averages forget the initial weights faster.
        decay = jnp.minimum(config.average, (1 + step) / (10 + step))
        decay = jnp.where(config.average > 0, decay, 0.0)
        average = jax.tree.map(lambda a, p: decay * a + (1 - decay) * p, average, parameters)
        return parameters, average, moments

    return Fitter(init, gradient, update)


def fit(
    key: Key[Array, ""],
    model: Any,
    loss_fn: LossFn,
    examples: Float[Array, "n ..."],
    config: FitConfig,
    resume: Callable[[FitState], FitState] = lambda state: state,
    on_epoch: Callable[[FitState], None] = lambda state: None,
    on_step: Callable[[Progress], None] = lambda progress: None,
) -> Any:
    """Minimises the mean of `loss_fn` over the examples and returns the averaged model.

    Randomness depends on the key and the epoch alone, so a fit resumed from the state after any
    epoch ends in the same weights as one that was never interrupted.

    Args:
        key: The randomness of shuffling and of the loss.
        model: An equinox module, whose floating-point arrays are fitted.
        loss_fn: A function of model, key and batch that returns the loss and metrics.
        examples: The training set.
        config: The number of epochs, the size of a batch, the learning rate.
        resume: A function that maps the initial state to the state to continue from.
        on_epoch: A function that is called with the state after every epoch.
        on_step: A function that is called now and then with the progress.
    """
    n = examples.shape[0]
    batch = batch_size(config, n)
    steps_per_epoch = n // batch
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    fitter = make_fitter(static, loss_fn, config, steps_per_epoch)
    state = resume(fitter.init(parameters))
    reporter = _Reporter(on_step, steps_per_epoch * config.epochs)
    for epoch in range(state.epoch, config.epochs):
        order_key, loss_key = jax.random.split(jax.random.fold_in(key, epoch))
        order = np.asarray(jax.random.permutation(order_key, n))
        parameters, average, moments, _ = state
        for i, step_key in enumerate(jax.random.split(loss_key, steps_per_epoch)):
            step = epoch * steps_per_epoch + i
            index = order[i * batch : (i + 1) * batch]
            gradients, values = fitter.gradient(parameters, step_key, examples, index)
            # An array: a number would be compiled anew at every step.
            parameters, average, moments = fitter.update(
                parameters, average, moments, gradients, jnp.asarray(step)
            )
            reporter(step + 1, values)
        state = FitState(parameters, average, moments, epoch + 1)
        on_epoch(state)
    return eqx.combine(state.average, static)


def batch_size(config: FitConfig, n: int) -> int:
    """The number of images per step: smaller than stated where there are few images.

    More epochs in the place of smaller batches would learn few images by heart.
    """
    steps_per_epoch = -(-_LEAST_STEPS // max(config.epochs, 1))
    return min(config.batch, n, max(_SMALLEST_BATCH, n // steps_per_epoch))


class _Reporter:
    """Passes metrics on a few times a second, one step late: reading them earlier would wait."""

    def __init__(self, on_step: Callable[[Progress], None], steps: int, interval: float = 0.3):
        self._on_step, self._steps, self._interval = on_step, steps, interval
        self._last, self._previous = 0.0, {}

    def __call__(self, step: int, values: dict[str, Array]) -> None:
        now = time.monotonic()
        if self._previous and (now - self._last > self._interval or step == self._steps):
            readable = {name: float(value) for name, value in self._previous.items()}
            self._on_step(Progress(step, self._steps, readable))
            self._last = now
        self._previous = values


def _is_stacked_matrix(leaf: Array) -> bool:
    """Matrices of equal, stacked layers; not a VAE's first and last layers.

    Those set the latent's scale: decaying them makes the encoder spread its means, which costs KL
    and gives the flow more to undo.
    """
    return leaf.ndim > 2
