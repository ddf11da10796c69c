"""A server of the page whose workers compute nothing, for tests of everything around them."""

import contextlib
import os
import signal
import threading
import time

import httpx
import numpy as np
import uvicorn

from latentuq.web.answer import Answer, Mark, Mode, Trust
from latentuq.web.application import make_app
from latentuq.web.desk import Settings
from latentuq.web.guard import Access
from latentuq.web.pictures import picture
from latentuq.web.pool import Limits
from latentuq.web.schema import Found, Stated
from latentuq.web.server import listen
from latentuq.web.tasks import (
    Cancel,
    Catalogue,
    Done,
    Draws,
    Event,
    Example,
    Failed,
    Model,
    ModelView,
    Order,
    ReadImage,
    Ready,
    Solve,
    Solved,
    Stopped,
)

SHAPE = (6, 8)
LIMITS = Limits()
DIES, HANGS, WRONG = 666, 777, 888
"""Seeds of what goes wrong in a worker. All others take as many tenths of a second as the blur."""


def work(pipe, models, warm):
    """What a worker process does, in the place of `run_worker`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    image = np.linspace(0, 1, 48).reshape(SHAPE)
    examples = [Example(label=f"image {place}", image=picture(image)) for place in range(3)]
    rest = {"height": SHAPE[0], "width": SHAPE[1], "dim": 2, "check": None, "examples": examples}
    pipe.send(Catalogue([Model(ModelView(name=name, **rest), [image] * 3) for name in models]))
    pipe.send(Ready())
    with contextlib.suppress(EOFError, OSError):
        while True:
            if isinstance(order := pipe.recv(), Order):
                pipe.send(_do(pipe, order, image))


def _do(pipe, order, image):
    task = order.task
    if isinstance(task, ReadImage):
        return Failed("Cannot read it.") if task.content.startswith(b"bad") else Done(image)
    if not isinstance(task, Solve):
        names = ("report.html", "summary.json", "posterior.nc", "figures/overview.png")
        return Done({name: name.encode() for name in names})
    if task.statement.seed == DIES:
        os.kill(os.getpid(), signal.SIGKILL)
    if task.statement.seed == HANGS:
        time.sleep(60)
    if task.statement.seed == WRONG:
        return Failed("The noise is wrong.")
    pipe.send(Event("stated", Stated(data=picture(image)).model_dump_json()))
    found = Found(stage="map", message="One.", seconds=0.1, modes=[picture(image)], weights=None)
    pipe.send(Event("found", found.model_dump_json()))
    until = time.monotonic() + task.statement.blur / 10
    while time.monotonic() < until:
        if pipe.poll(0.01) and pipe.recv() == Cancel(order.number):
            return Stopped()
    return Done(Solved(_answer(image).model_dump_json(), _draws()))


def _answer(image):
    shown = picture(image)
    mode = {"weight_error": 0.01, "depth": 1.0, "chi_squared": 1.0, "image": shown, "std": shown}
    modes = [Mode(weight=weight, deepest=weight > 0.5, **mode) for weight in (0.7, 0.3)]
    mark = Mark(question="Is it?", answer="Yes", standing="ok", sentence="It is.", details="It is.")
    return Answer(
        verdict=Trust(word="reliable", text="reliable: yes.", marks=[mark], advice=[]),
        **dict.fromkeys(("data", "most_probable", "mean", "std", "truth"), shown),
        comparison=None,
        modes=modes,
        rest=0.0,
        numbers={"ln evidence": "1"},
        learned="",
        notes=[],
        draws=20,
        seconds=0.1,
    )


def _draws():
    images = np.random.default_rng(0).integers(0, 255, (20, *SHAPE), np.uint8)
    return Draws(images, np.array([0] * 13 + [1] * 6 + [-1], np.int8), -0.2, 1.2)


@contextlib.contextmanager
def serving(limits=LIMITS, memory=2**24):
    """Serves in a thread; yields the address and the desk."""
    settings = Settings({"stub": "stub"}, "stub", Access(), limits, memory, work)
    app = make_app(settings)
    with listen("127.0.0.1", 0) as listener:
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", app.state.desk
        finally:
            server.should_exit = True
            thread.join(10)


def client(address, **options):
    return httpx.Client(base_url=address, timeout=60, **options)


def solve(web, **request):
    return web.post("/api/solve", json={"model": "stub", "example": 0} | request)


def wait(web, name):
    """A job once it is finished."""
    while True:
        job = web.get(f"/api/jobs/{name}").json()
        if job["state"] not in ("queued", "running"):
            return job
        time.sleep(0.02)
