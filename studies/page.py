"""How long somebody who paints on the page waits: docs/results/page.md."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from latentuq import load_digits, load_prior, solve
from latentuq.app.solving import Given, Solver
from latentuq.core.cells import Cells, Job, job
from latentuq.core.compilation import keep_compiled
from latentuq.prior.generative import GenerativePrior
from latentuq.web.statement import Statement
from studies.pages import ROOT, rows

STROKES = 20
FIRST_BAR, WEIGHTS_BAR = 0.7, 1.2
# Strokes that are not counted: what they need first is loaded or compiled.
_WARMING = 3
_BROWSER = "/usr/bin/chromium"
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
# Notes in the page when a stroke ends, and when what came of it is shown.
_WATCH = """() => {
  const shown = (stage) => document.querySelector(`[data-stage=${stage}].done`);
  let ended = 0;
  window.times = {};
  document.getElementById("painter").addEventListener("pointerup", () => {
    ended = performance.now();
    window.times = {};
  }, true);
  new MutationObserver(() => {
    for (const stage of ["map", "certified"]) {
      if (ended && shown(stage)) window.times[stage] ??= (performance.now() - ended) / 1000;
    }
  }).observe(document.getElementById("stages"), { attributes: true, subtree: true });
}"""


def make_setup() -> dict[str, Any]:
    return {"strokes": STROKES}


def make_jobs() -> dict[str, Job]:
    return {"strokes": job(measure, STROKES)}


def measure(strokes: int) -> dict[str, Any]:
    """Seconds from the end of each stroke to what it changes in a browser, and of `lu.solve`."""
    from playwright.sync_api import sync_playwright

    waits, requests = [], []
    with _server() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_BROWSER, args=_FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("request", lambda each: requests.extend([each.post_data] * (each.method == "POST")))
        # A picture of which nothing is hidden, so that the first stroke is the first damage.
        page.goto(f"{address}#model=mnist&example=6&noise=0.1")
        done = page.locator("#status", has_text="Done in")
        done.wait_for(timeout=600_000)
        page.evaluate(_WATCH)
        box = page.locator("#painter").bounding_box()
        assert box is not None
        for number in range(_WARMING + strokes):
            across = (0.3 + 0.4 * np.random.default_rng(number).uniform(size=2)) * box["width"]
            page.mouse.move(box["x"] + across[0], box["y"] + 0.1 * box["height"])
            page.mouse.down()
            page.mouse.move(box["x"] + across[1], box["y"] + 0.9 * box["height"], steps=10)
            page.mouse.up()
            page.wait_for_timeout(300)  # The answer before is out of date by then.
            done.wait_for(timeout=120_000)
            waits.append(page.evaluate("() => window.times"))
            if number % 4 == 3:  # What is hidden must not become everything.
                page.locator("#clear").click()
                page.wait_for_timeout(300)
                done.wait_for(timeout=120_000)
                requests.pop()
        browser.close()
    stated = [json.loads(each) for each in requests[1:]]
    keep_compiled()
    prior = load_prior("mnist")
    plain = [_time_solve(prior, each) for each in stated]
    return {
        "first": [round(each["map"], 3) for each in waits[_WARMING:]],
        "weights": [round(each["certified"], 3) for each in waits[_WARMING:]],
        "solve": [round(each, 3) for each in plain[_WARMING:]],
    }


def _time_solve(prior: GenerativePrior, request: dict[str, Any]) -> float:
    """The seconds of `lu.solve` for what the page has asked for."""
    image = load_digits().images[request["example"]].astype(np.float64)
    mask = None if "mask" not in request else np.array(request["mask"], bool)
    statement = Statement("mnist", image, mask, request["noise"], request["blur"])
    key = jax.random.key(0)
    problem = Solver(prior, statement.specification, corrupt=True).state(key, Given(image))
    start = time.perf_counter()
    jax.block_until_ready(solve(jax.random.split(key, 4)[2], problem).weights)
    return time.perf_counter() - start


@contextmanager
def _server() -> Iterator[str]:
    """`latentuq serve` on a free port; yields its address."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "latentuq", "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[4]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


def make_values(cells: Cells) -> dict[str, Any]:
    cell = cells["strokes"]
    first, weights, plain = (np.array(cell[name]) for name in ("first", "weights", "solve"))
    ratio = float(np.median(weights / plain))
    found = {"the first image": first, "certified weights": weights, "`lu.solve` alone": plain}
    form = "{name} | {median:.2f} | {low:.2f} | {high:.2f}"
    return {
        "strokes": len(first),
        "first_bar": FIRST_BAR,
        "first": _bar(float(np.median(first)), FIRST_BAR, "s"),
        "weights_bar": WEIGHTS_BAR,
        "weights": _bar(ratio, WEIGHTS_BAR, "times"),
        "rows": rows(
            form,
            [
                {"name": name, "median": np.median(each), "low": each.min(), "high": each.max()}
                for name, each in found.items()
            ],
        ),
    }


def _bar(found: float, bar: float, unit: str) -> str:
    return f"{'holds' if found <= bar else 'is missed'} ({found:.2f} {unit})"
