import dataclasses
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq import prior_from, train_prior
from latentuq.core.errors import UserError
from latentuq.core.tensors import flatten
from latentuq.data.image_sets import make_image_set
from latentuq.prior.architecture import FlowSize, VAESize
from latentuq.prior.training.checkpoint import Checkpoints
from latentuq.prior.training.config import FitConfig, ModelErrorConfig
from latentuq.prior.training.loop import batch_size
from latentuq.prior.training.quality import compare_elbos
from latentuq.prior.training.train import run_training, split_images


def assert_same_weights(a, b):
    left, right = flatten(a), flatten(b)
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


class StopError(Exception):
    """Raised in place of a power cut."""


@pytest.mark.parametrize(("stage", "epoch"), [("vae", 1), ("vae", 2), ("flow", 1)])
@pytest.mark.slow
def test_resumed_training_equals_uninterrupted_training(
    tmp_path, tiny_images, tiny_config, tiny_prior, stage, epoch
):
    path = tmp_path / "checkpoint"
    identity = {"run": 1}

    def interrupt(current, progress):
        per_epoch = progress.steps // getattr(tiny_config, f"{stage}_fit").epochs
        if current == stage and progress.step > epoch * per_epoch:
            raise StopError

    first = Checkpoints(path, identity, interval=0.0)
    with pytest.raises(StopError):
        run_training(jax.random.key(0), tiny_images, tiny_config, first, interrupt)
    assert path.exists()

    second = Checkpoints(path, identity, interval=0.0)
    second.find()
    resumed = run_training(jax.random.key(0), tiny_images, tiny_config, second)
    assert_same_weights(resumed, tiny_prior)


@pytest.mark.slow
def test_a_checkpoint_of_another_run_is_refused(tmp_path, tiny_images, tiny_config):
    path = tmp_path / "checkpoint"
    with pytest.raises(UserError, match="no checkpoint"):
        Checkpoints(path, {}).find()
    short = dataclasses.replace(tiny_config, vae_fit=FitConfig(epochs=1, batch=50))
    run_training(jax.random.key(0), tiny_images, short, Checkpoints(path, {"run": 1}, 0.0))
    with pytest.raises(UserError, match="other data or another configuration"):
        Checkpoints(path, {"run": 2}).find()
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="truncated"):
        Checkpoints(path, {"run": 1}).find()


@pytest.mark.slow
def test_kill_at_any_moment_leaves_a_checkpoint_that_resumes(tmp_path, tiny_images):
    """Kills a process that saves as fast as it can, and reads what it left behind."""
    program = f"""
import numpy as np
from pathlib import Path
from latentuq.prior.training.checkpoint import Checkpoints
from latentuq.prior.training.loop import FitState
state = FitState(np.ones(200_000, np.float32), np.ones(3), np.zeros(2), 0)
checkpoints = Checkpoints(Path({str(tmp_path / "checkpoint")!r}), {{"run": 1}}, interval=0.0)
save = checkpoints.saver("vae", {{}})
for epoch in range(100_000):
    save(state._replace(epoch=epoch, parameters=np.full(200_000, epoch, np.float32)))
    if epoch == 0:
        print("saving", flush=True)
"""
    for delay in (0.0, 0.011, 0.023):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        checkpoints = Checkpoints(tmp_path / "checkpoint", {"run": 1})
        checkpoints.find()
        like = (np.zeros(200_000, np.float32), np.ones(3), np.zeros(2))
        from latentuq.prior.training.loop import FitState

        state = checkpoints.resume("vae")(FitState(*like, 0))
        assert float(state.parameters[0]) == float(state.parameters[-1]) == state.epoch


@pytest.mark.slow
def test_training_learns(tiny_images, tiny_config):
    config = dataclasses.replace(
        tiny_config,
        vae=VAESize(latent=2, blocks=1, width=32, encoder_blocks=1, encoder_width=32),
        vae_fit=FitConfig(epochs=60, batch=32, learning_rate=5e-3, average=0.9),
        flow_fit=FitConfig(epochs=30, batch=32, learning_rate=5e-3, average=0.9),
    )
    # A key whose latents are far from normal, so that there is something for the flow to learn.
    prior = train_prior(jax.random.key(1), tiny_images, config)
    metrics = prior.card.metrics
    spread = float(np.std(tiny_images.train - tiny_images.train.mean(axis=0)))
    assert metrics["test_rms"] < 0.6 * spread
    assert metrics["flow_nll"] < metrics["gaussian_nll"]
    assert metrics["latent_c2st_after"] <= metrics["latent_c2st_before"] + 0.1
    scores = metrics["model_error_log_likelihood"]
    assert scores["low-rank"] > scores["scalar"]
    best = max(scores, key=scores.get)
    assert metrics["model_error"] == ("signal-dependent" if best == "low-rank" else best)


@pytest.mark.parametrize(
    ("n", "epochs", "batch"),
    [(170, 30, 16), (830, 30, 59), (830, 80, 166), (60_000, 30, 256), (10, 30, 10)],
)
def test_few_images_are_fitted_in_smaller_batches(n, epochs, batch):
    """As many steps as were best for 200 and for 1000 digits, a few of which are held out."""
    assert batch_size(FitConfig(epochs=epochs, batch=256), n) == batch


def test_too_few_images_are_taken_for_a_mistake(tiny_images):
    few = make_image_set(tiny_images.train[:9], source="nine")
    with pytest.raises(UserError, match="nine holds 9 images; training needs at least 40"):
        train_prior(jax.random.key(0), few)


@pytest.mark.parametrize(("test", "words"), [(90.0, "has not learnt"), (60.0, "has learnt")])
def test_elbos_are_compared_in_words(test, words):
    assert words in compare_elbos({"train_elbo": 100.0, "test_elbo": test}, 100)


def test_metrics_name_everything_the_models_command_promises(tiny_prior):
    promised = {
        "test_elbo",
        "test_rms",
        "sigma_model",
        "flow_nll",
        "gaussian_nll",
        "latent_c2st_before",
        "latent_c2st_after",
        "image_c2st_before",
        "image_c2st_after",
        "train_seconds",
    }
    assert promised <= set(tiny_prior.card.metrics)


@pytest.mark.slow
def test_training_without_a_flow_still_says_whether_one_was_needed(tiny_images, tiny_config):
    config = dataclasses.replace(tiny_config, flow=FlowSize(depth=0), sigma="measured")
    trained = run_training(jax.random.key(0), tiny_images, config)
    metrics = trained.card.metrics
    assert trained.flow is None
    assert metrics["flow_nll"] is None
    assert metrics["flow_needed"] in (True, False)
    assert metrics["sigma_model"] == metrics["sigma_measured"]
    assert trained.decode(jnp.zeros((4, 2))).shape == (4, 6, 8)


@pytest.mark.slow
def test_a_few_dozen_images_are_enough_to_train_on(tiny_images, tiny_config):
    few = make_image_set(tiny_images.train[:60])
    metrics = run_training(jax.random.key(0), few, tiny_config).card.metrics
    assert metrics["test_elbo"] is not None
    assert metrics["latent_c2st_before"] is None, "six test images say nothing"
    assert metrics["flow_needed"] is None


def test_a_split_that_leaves_nothing_to_train_on_is_refused(tiny_images, tiny_config):
    greedy = ModelErrorConfig(held_out=0.5, choice=0.4)
    with pytest.raises(UserError, match=r"held_out = 0.5 and choice = 0.4 leave 0 of 300"):
        split_images(
            jax.random.key(0), tiny_images, dataclasses.replace(tiny_config, model_error=greedy)
        )


def test_measured_sigma_is_the_rms_of_held_out_residuals(tiny_prior):
    metrics = tiny_prior.card.metrics
    # Held-out and test images are a few dozen each: their rms agree to some per cent.
    assert metrics["sigma_measured"] == pytest.approx(metrics["test_rms"], rel=0.2)


def test_the_split_uses_every_image_once(tiny_images, tiny_config):
    split = split_images(jax.random.key(0), tiny_images, tiny_config)
    parts = [part.reshape(len(part), -1) for part in split]
    rows = np.concatenate(parts)
    assert len(rows) == len(tiny_images.train)
    assert len(np.unique(rows, axis=0)) == len(tiny_images.train)


def test_test_images_that_come_along_are_the_test_set(tiny_config):
    images = np.random.default_rng(0).uniform(size=(60, 4, 4)).astype(np.float32)
    image_set = make_image_set(images[:50], images[50:])
    split = split_images(jax.random.key(0), image_set, tiny_config)
    assert len(split.test) == 10
    assert sum(len(part) for part in (split.fit, split.held_out, split.choice)) == 50


@pytest.mark.slow
def test_images_in_other_units_are_scaled_and_the_scaling_is_kept(tiny_images, tiny_config):
    prior = train_prior(jax.random.key(0), 500 + 1000 * tiny_images.train, tiny_config)
    assert prior.scaling.to_unit(500.0) == pytest.approx(0, abs=1e-3)
    assert prior.scaling.from_unit(1.0) == pytest.approx(1500, rel=1e-3)


def half_moon(n):
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, np.pi, n)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1) * 3
    return points + 0.2 * rng.normal(size=(n, 2))


@pytest.mark.slow
def test_a_flow_makes_a_users_latent_normal():
    points = half_moon(4000)

    def decode(z):
        return jnp.outer(z, z)

    prior = prior_from(
        decode,
        2,
        (2, 2),
        0.1,
        latents=points[:3000],
        key=jax.random.key(0),
        flow=FlowSize(depth=6, width=32),
        flow_fit=FitConfig(epochs=40, batch=200, learning_rate=5e-3, average=0.98),
    )
    assert prior.flow is not None
    u, _ = jax.vmap(prior.flow.inverse)(jnp.asarray(points[3000:], jnp.float32))
    # The radius of a half moon has a skewed, hollow distribution; in u it is N(0, I).
    assert np.abs(u.mean(axis=0)).max() < 0.15
    assert np.abs(np.cov(u.T) - np.eye(2)).max() < 0.25
    radius = np.linalg.norm(
        jax.vmap(prior.flow)(jax.random.normal(jax.random.key(1), (2000, 2))), axis=1
    )
    assert np.quantile(radius, 0.1) > 2
    assert np.quantile(radius, 0.9) < 4


@jax.custom_vjp
def only_reverse(u):
    return jnp.outer(u, u)


only_reverse.defvjp(lambda u: (jnp.outer(u, u), u), lambda u, ct: ((ct + ct.T) @ u,))


@jax.custom_jvp
def only_once(u):
    return jnp.outer(u, u)


@only_once.defjvp
def _(primals, tangents):
    (u,), (tangent,) = primals, tangents
    made = only_reverse(u)  # Of which there is no forward derivative.
    return made, jnp.outer(u, tangent) + jnp.outer(tangent, u) + 0 * made * jnp.sum(tangent)


def only_forward(u):
    return jax.lax.while_loop(lambda x: jnp.sum(x) < 9, lambda x: 2 * x, jnp.outer(u, u))


def only_single(u):
    out = jax.ShapeDtypeStruct((2, 2), jnp.float32)
    return jax.pure_callback(lambda u: np.outer(u, u), out, u)


@pytest.mark.parametrize(
    ("decode_fn", "words"),
    [
        (only_reverse, r"forward mode \(jax.jvp\), .*must be a jax.custom_jvp"),
        (only_forward, r"reverse mode \(jax.grad\), .*fixed number of steps"),
        (only_once, r"differentiated twice \(jax.hessian\)"),
        (only_single, r"many latent vectors at once \(jax.vmap\)"),
        (lambda u: jnp.outer(u, u).astype(int), "real numbers, not int32"),
    ],
)
def test_a_generator_without_the_derivatives_of_the_inference_is_refused(decode_fn, words):
    with pytest.raises(UserError, match=words) as caught:
        prior_from(decode_fn, 2, (2, 2), 0.1)
    assert "\n" not in str(caught.value)


def test_a_generator_with_a_derivative_of_its_own_is_a_prior():
    @jax.custom_jvp
    def decode(u):
        return jnp.outer(u, u)

    decode.defjvps(lambda tangent, made, u: jnp.outer(u, tangent) + jnp.outer(tangent, u))
    assert prior_from(decode, 2, (2, 2), 0.1).decode(jnp.ones(2)).shape == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"shape": (3, 3)}, "was announced"),
        ({"dim": 3, "decode_fn": lambda u: u @ jnp.ones((2, 2))}, "fails on a vector of length 3"),
        ({"latents": np.ones((5, 3)), "key": jax.random.key(0)}, r"\(n, 2\) is expected"),
        ({"latents": np.full((5, 2), np.nan), "key": jax.random.key(0)}, "finite"),
        ({"latents": np.ones((5, 2))}, "give key="),
        ({"model_error": -1.0}, "positive"),
        ({"model_error": "small"}, "real numbers"),
        ({"dim": 0}, "dim=0"),
        ({"flow_fit": FitConfig(batch=0)}, "flow_fit.batch = 0"),
        ({"latents": np.ones((5, 2)), "flow": FlowSize(depth=0)}, "depth 0"),
    ],
)
def test_what_cannot_be_a_prior_is_refused(arguments, words):
    given = {"decode_fn": lambda u: jnp.outer(u, u), "dim": 2, "shape": (2, 2), "model_error": 0.1}
    with pytest.raises(UserError, match=words):
        prior_from(**(given | arguments))
