import time

import jax
import jax.numpy as jnp

from latentuq.app.progress import Stages
from latentuq.inference.result import COMPILING, Progress


def test_seconds_go_to_the_stage_that_ends():
    stages = Stages(started=time.perf_counter() - 2)
    stages.end("start-up")
    time.sleep(0.02)
    stages.end("search")
    time.sleep(0.03)
    stages.end("search")
    assert 2 <= stages.seconds["start-up"] < 3
    assert 0.05 <= stages.seconds["search"] < 1
    assert stages.seconds["compile"] == 0


def test_compiling_is_counted_apart():
    stages = Stages()
    jax.jit(lambda x: jnp.sin(x) @ x.T)(jnp.ones((3, 3)))
    stages.end("search")
    assert stages.seconds["compile"] > 0
    again = Stages()
    again.end("search")
    assert again.seconds["compile"] == 0


def test_messages_of_the_inference_are_passed_on():
    events = []
    stages = Stages(events.append)
    stages.say("Reading.")
    for name in ("map", "modes", "fitted", "certified"):
        stages.follow(Progress(name, f"It is {name}.", jnp.zeros((1, 2)), None, 0.1))
    assert [event.stage for event in events] == ["", "search", "search", "fit", "certify"]
    assert [event.fraction for event in events] == [None, 0.2, 0.4, 0.6, 0.8]
    assert events[1].message == "It is map."
    stages.follow(Progress(COMPILING, "It compiles.", jnp.zeros((0, 2)), None, 0.1))
    # Nothing has ended, and no share of the work is done by it.
    assert (events[-1].stage, events[-1].message, events[-1].fraction) == (
        "certify",
        "It compiles.",
        None,
    )
